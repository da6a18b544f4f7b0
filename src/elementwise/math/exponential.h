// exp and its like.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {

// e^x. x = n ln 2 + r, |r| <= ln 2 / 2, and e^r is a polynomial.
template <class C>
ELEMENTWISE_MATH C exp(C x) {
  using namespace math;
  constexpr C kMost = kFloat<C> ? C(89) : C(710);    // e^x is infinite
  constexpr C kLeast = kFloat<C> ? C(-104) : C(-746); // e^x is 0
  x = choose(x > kMost, kMost, x);
  x = choose(x < kLeast, kLeast, x);
  const Nearest<C> n = nearest(x * C(1.44269504088896340736));
  C r, p;
  if constexpr (kFloat<C>) {
    r = std::fma(n.value, -0x1.62e4p-1f, x);
    r = std::fma(n.value, 0x1.7f7d1cp-20f * -1, r);
    p = polynomial(r, {0.5f, 0.16666667f, 0.041666667f, 0.0083333333f, 0.0013888889f});
  } else {
    r = std::fma(n.value, -0x1.62e42fefa39efp-1, x);
    r = std::fma(n.value, -0x1.abc9e3b39803fp-56, r);
    p = polynomial(r, {1./2, 1./6, 1./24, 1./120, 1./720, 1./5040, 1./40320, 1./362880, 1./3628800, 1./39916800, 1./479001600});
  }
  p = std::fma(r * r, p, r) + 1;
  return scale(p, n.integer);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
