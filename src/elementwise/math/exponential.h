// exp and its like.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {

// e^x. x = n ln 2 + r, |r| <= ln 2 / 2, and e^r is a polynomial.
template <class C>
ELEMENTWISE_MATH C exp(C x) {
  using namespace math;
  constexpr C kMost = kFloat<C> ? C(89) : C(710);     // e^x is infinite
  constexpr C kLeast = kFloat<C> ? C(-104) : C(-746); // e^x is 0
  x = choose(x > kMost, kMost, x);
  x = choose(x < kLeast, kLeast, x);
  const Nearest<C> n = nearest(x * C(1.44269504088896340736));
  C r, p;
  if constexpr (kFloat<C>) {
    r = std::fma(n.value, -0x1.62e4p-1f, x);
    r = std::fma(n.value, 0x1.7f7d1cp-20f * -1, r);
    p = polynomial(r, {0x1p-1, 0x1.55548ap-3, 0x1.555524p-5, 0x1.123e88p-7, 0x1.6d02fap-10});
  } else {
    r = std::fma(n.value, -0x1.62e42fefa39efp-1, x);
    r = std::fma(n.value, -0x1.abc9e3b39803fp-56, r);
    p = polynomial(
        r, {0x1p-1, 0x1.555555555555cp-3, 0x1.5555555555556p-5, 0x1.111111110e983p-7, 0x1.6c16c16c15f31p-10,
            0x1.a01a01b489e2bp-13, 0x1.a01a01a8f3994p-16, 0x1.71ddedab93141p-19, 0x1.27e4d385ba678p-22,
            0x1.af6f87f684aaap-26, 0x1.1f7c321e07d53p-29});
  }
  p = std::fma(r * r, p, r) + 1;
  return scale(p, n.integer);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
