// pow.
#pragma once

#include "exponential.h"
#include "logarithm.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// The logarithm of 2^exponent (1 + f) to about 66 bits, for the power multiplies it, and its error, by up to 745 and
// more. log(1 + f) = 2 atanh(s) = 2 s (1 + s^2 / 3 + s^4 p(s^2)) with s = f / (2 + f), |s| < 0.172; all but p is two
// words.
ELEMENTWISE_MATH Words<double> logarithm_in_two_words(double exponent, double f) {
  const Words<double> below = sum_of_ordered(2.0, f);
  const double inverse = 1 / below.high;
  const double s = f * inverse;
  const double s_low = std::fma(-s, below.low, std::fma(-s, below.high, f)) * inverse;
  // s^2 / 3 + s^4 p
  Words<double> square = product(s, s);
  square.low = std::fma(s + s, s_low, square.low);
  const double p = polynomial(
      square.high, {0x1.9999999999996p-3, 0x1.2492492492f51p-3, 0x1.c71c71c5968f3p-4, 0x1.745d182956e21p-4,
                    0x1.3b1364c9265cp-4, 0x1.11206f347691dp-4, 0x1.de3d6f6e34484p-5, 0x1.eac5c8ac70e54p-5});
  constexpr double kThird = 0x1.5555555555555p-2, kThirdLow = 0x1.5555555555555p-56;
  Words<double> tail = product(square.high, kThird);
  tail.low += std::fma(square.high, kThirdLow, square.low * kThird);
  tail.low = std::fma(square.high * square.high, p, tail.low);
  // 2 s (1 + tail)
  Words<double> cubic = product(s + s, tail.high);
  cubic.low = std::fma(s + s, tail.low, std::fma(s_low + s_low, tail.high, cubic.low));
  // The sum, the largest first; the product of the exponent and the high word of log 2 is exact.
  const Words<double> two = sum_of_ordered(exponent * 0x1.62e42fefa38p-1, s + s);
  const Words<double> three = sum_of_ordered(two.high, cubic.high);
  const double low = std::fma(exponent, 0x1.ef35793c7673p-45, (s_low + s_low) + cubic.low);
  return sum_of_ordered(three.high, three.low + (two.low + low));
}

ELEMENTWISE_MATH bool is_whole(double x) { // of x >= 0
  constexpr double kWhole = 0x1p52;        // from here on all numbers are integers
  return (x >= kWhole) | ((x + kWhole) - kWhole == x);
}

// x^y, by a logarithm of two words or of one, which is enough for floats.
template <bool is_float>
ELEMENTWISE_MATH double power(double x, double y) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const double a = magnitude(x);
  Words<double> l;
  if constexpr (is_float) {
    const Parts<double> of = parts(a);
    l = {logarithm<0>(of.exponent, of.fraction), -0.0};
  } else {
    const bool subnormal = a < std::numeric_limits<double>::min();
    const Parts<double> of = parts(a * choose(subnormal, 0x1p52, 1.0));
    l = logarithm_in_two_words(of.exponent - choose(subnormal, 52.0, 0.0), of.fraction);
  }
  l.high = choose(a == 0, -kInfinity, choose(a < kInfinity, l.high, a));
  Words<double> exponent = {y * l.high, -0.0};
  if constexpr (!is_float) exponent.low = std::fma(y, l.low, std::fma(y, l.high, -exponent.high));
  double to = exp_of(exponent);

  const double b = magnitude(y);
  const bool whole = is_whole(b), odd = whole & !is_whole(b * 0.5);
  to = with_sign(to, choose(odd, x, 0.0));
  to = choose((x < 0) & (a < kInfinity) & !whole, kNaN, to);
  return choose((x == 1) | (y == 0) | ((a == 1) & (b == kInfinity)), 1.0, to);
}

} // namespace math

// x^y. pow(x, 0) and pow(1, y) are 1 even of a NaN, as in C.
template <class C>
ELEMENTWISE_MATH C pow(C x, C y) {
  return C(math::power<math::kFloat<C>>(x, y));
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
