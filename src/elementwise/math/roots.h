// The cube root, and the root of a sum of squares.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {

// The cube root, for all x. Error: 0.51 (float), 0.51 (double).
//
// The bits of a number, read as an integer, are roughly a logarithm. So -1/3 of them plus a constant are the bits of a
// first guess r of 1 / cbrt(x), with an error of one part in thirty. (The constant makes positive and negative errors
// alike.) With h = 1 - x r^3, 1 / cbrt(x) = r (1 - h)^(-1/3) = r (1 + h / 3 + 2 h^2 / 9 + ...). Then the root is x r^2,
// and a step of Newton's method, with a residual in two words, corrects it.
template <class C>
ELEMENTWISE_INLINE C cbrt(C x) {
  using namespace math;
  // The residual of a small number would be subnormal, so we multiply small numbers by the cube of a power of two.
  constexpr C kSmall = kFloat<C> ? C(0x1p-60) : C(0x1p-600), kTimes = kFloat<C> ? C(0x1p60) : C(0x1p300);
  constexpr C kBack = kFloat<C> ? C(0x1p-20) : C(0x1p-100);
  const bool small = magnitude(x) < kSmall;
  const C a = magnitude(x) * choose(small, kTimes, C(1));
  constexpr int kLeft = kFloat<C> ? 10 : 32; // the bits above these are an integer that fits into kRound
  constexpr C kAtOne = C((kBias<C> * 4 / 3.0 - 0.066) * (1 << (kMantissa<C> - kLeft)));
  const C upper = number<C>(bits(kRound<C>) + (bits(a) >> kLeft)) - kRound<C>;
  C r = number<C>(bits(std::fma(upper, C(-1) / 3, kRound<C> + kAtOne)) << kLeft);
  C h = std::fma(a * r * r, -r, C(1));
  r = std::fma(r * h, polynomial(h, {C(1) / 3, C(2) / 9, C(14) / 81, C(35) / 243}), r);
  if constexpr (!kFloat<C>) {
    h = std::fma(a * r * r, -r, C(1));
    r = std::fma(r * h, polynomial(h, {C(1) / 3, C(2) / 9}), r);
  }
  const C y = a * r * r;
  const Words<C> square = product(y, y);
  const C left = std::fma(-square.low, y, std::fma(-square.high, y, a)); // a - y^3
  const C root = std::fma(r * r * (C(1) / 3), left, y) * choose(small, kBack, C(1));
  return choose(magnitude(x) < kInfinity<C>, with_sign(root, x), x + x);
}

// sqrt(x^2 + y^2), without overflow on the way; infinite if x or y is, even if the other is NaN. Error: 0.51
// (float), 1.02 (double).
template <class C>
ELEMENTWISE_INLINE C hypot(C x, C y) {
  using namespace math;
  const C a = magnitude(x), b = magnitude(y);
  C root;
  if constexpr (kFloat<C>) {
    // In double the squares are exact, and neither overflow nor underflow.
    root = static_cast<C>(std::sqrt(static_cast<double>(a) * a + static_cast<double>(b) * b));
  } else {
    // The squares of large numbers would overflow, and those of small ones underflow, so we scale both.
    const C most = choose(a > b, a, b), least = choose(a > b, b, a);
    const bool large = most > 0x1p500, small = most < 0x1p-400;
    const C times = choose(large, 0x1p-600, choose(small, 0x1p600, C(1)));
    const C back = choose(large, 0x1p600, choose(small, 0x1p-600, C(1)));
    root = std::sqrt(std::fma(most * times, most * times, (least * times) * (least * times))) * back;
  }
  return choose(a == kInfinity<C>, a, choose(b == kInfinity<C>, b, root));
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
