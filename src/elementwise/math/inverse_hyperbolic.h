// asinh, acosh and atanh: logarithms of 1 + z, for a z of two words. Floats go through double, which is
// short of the correct rounding only where the double is next to the middle of two floats.
#pragma once

#include "logarithm.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// log(2 x) for an x to which 1 is nothing, else log(1 + z).
template <class C>
ELEMENTWISE_MATH C logarithm_1p_or_of_twice(C x, Words<C> z) {
  const bool large = x > C(0x1p80);
  return logarithm_1p<C>({choose(large, x, z.high), choose(large, C(0), z.low)}, choose(large, C(1), C(0)));
}

} // namespace math

// With a = |x|: a + sqrt(a^2 + 1) = 1 + a + a^2 / (1 + sqrt(a^2 + 1)).
template <class C>
ELEMENTWISE_MATH C asinh(C x) {
  using namespace math;
  if constexpr (kFloat<C>) return C(elementwise::asinh(double{x}));
  const C a = magnitude(x);
  const C square = a * a;
  const Words<C> z = sum_of_ordered(a, square / (1 + std::sqrt(square + 1)));
  const C to = logarithm_1p_or_of_twice(a, z);
  return with_sign(choose(a < std::numeric_limits<C>::infinity(), to, a), x);
}

// With t = x - 1: x + sqrt(x^2 - 1) = 1 + t + sqrt(t^2 + 2 t).
template <class C>
ELEMENTWISE_MATH C acosh(C x) {
  using namespace math;
  if constexpr (kFloat<C>) return C(elementwise::acosh(double{x}));
  const C t = x - 1;
  const C to = logarithm_1p_or_of_twice(x, sum_of_ordered(std::sqrt(std::fma(t, t, t + t)), t));
  return choose(x >= 1, choose(x < std::numeric_limits<C>::infinity(), to, x), std::numeric_limits<C>::quiet_NaN());
}

// With a = |x|: half the logarithm of (1 + a) / (1 - a) = 1 + 2 a / (1 - a).
template <class C>
ELEMENTWISE_MATH C atanh(C x) {
  using namespace math;
  if constexpr (kFloat<C>) return C(elementwise::atanh(double{x}));
  const C a = magnitude(x), twice = a + a;
  const Words<C> below = sum_of_ordered(C(1), -a);
  const C inverse = 1 / below.high;
  const C z = twice * inverse;
  const C rest = std::fma(-z, below.low, std::fma(-z, below.high, twice));
  const C to = C(0.5) * logarithm_1p<C>({z, rest * inverse});
  const C infinity = std::numeric_limits<C>::infinity();
  return with_sign(choose(a < 1, to, choose(a == 1, infinity, std::numeric_limits<C>::quiet_NaN())), x);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
