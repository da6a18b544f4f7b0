// asinh, acosh and atanh: logarithms of 1 + z, where z has two words. For float they compute in double, so the result
// is correctly rounded unless the exact value is extremely close to the middle between two floats.
#pragma once

#include "logarithm.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// log(2 x) if x is so large that 1 does not matter, else log(1 + z).
template <class C>
ELEMENTWISE_INLINE C logarithm_1p_or_of_twice(C x, Words<C> z) {
  const bool large = x > C(0x1p80);
  return logarithm_1p<C>({choose(large, x, z.high), choose(large, C(0), z.low)}, choose(large, C(1), C(0)));
}

} // namespace math

// The inverse of sinh, for all x. Error: 0.51 (float), 1.28 (double).
//
// With a = |x| it is the logarithm of a + sqrt(a^2 + 1) = 1 + a + a^2 / (1 + sqrt(a^2 + 1)).
template <class C>
ELEMENTWISE_INLINE C asinh(C x) {
  using namespace math;
  if constexpr (kFloat<C>) return C(elementwise::asinh(double{x}));
  const C a = magnitude(x);
  const C square = a * a;
  const Words<C> z = sum_of_ordered(a, square / (1 + std::sqrt(square + 1)));
  const C to = logarithm_1p_or_of_twice(a, z);
  return with_sign(choose(a < kInfinity<C>, to, a + a), x); // a + a: a quiet NaN
}

// The inverse of cosh, for x >= 1, else NaN. Error: 0.51 (float), 1.82 (double).
//
// With t = x - 1 it is the logarithm of x + sqrt(x^2 - 1) = 1 + t + sqrt(t^2 + 2 t).
template <class C>
ELEMENTWISE_INLINE C acosh(C x) {
  using namespace math;
  if constexpr (kFloat<C>) return C(elementwise::acosh(double{x}));
  const C t = x - 1;
  const C to = logarithm_1p_or_of_twice(x, sum_of_ordered(std::sqrt(std::fma(t, t, t + t)), t));
  return choose(x >= 1, choose(x < kInfinity<C>, to, x), kNaN<C>);
}

// The inverse of tanh, for |x| <= 1, else NaN; infinite at 1 and -1. Error: 0.51 (float), 1.14 (double).
//
// With a = |x| it is half the logarithm of (1 + a) / (1 - a) = 1 + 2 a / (1 - a).
template <class C>
ELEMENTWISE_INLINE C atanh(C x) {
  using namespace math;
  if constexpr (kFloat<C>) return C(elementwise::atanh(double{x}));
  const C a = magnitude(x), twice = a + a;
  const Words<C> below = sum_of_ordered(C(1), -a);
  const C inverse = 1 / below.high;
  const C z = twice * inverse;
  const C rest = std::fma(-z, below.low, std::fma(-z, below.high, twice));
  const C to = C(0.5) * logarithm_1p<C>({z, rest * inverse});
  return with_sign(choose(a < 1, to, choose(a == 1, kInfinity<C>, kNaN<C>)), x);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
