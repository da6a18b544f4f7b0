// pow.
#pragma once

#include "exponential.h"
#include "logarithm.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// The natural logarithm of 2^exponent (1 + f) to about 66 bits. pow needs them, because it multiplies the logarithm and
// its error. log(1 + f) = 2 atanh(s) = 2 s (1 + s^2 / 3 + s^4 p(s^2)) with s = f / (2 + f), |s| < 0.172; everything
// but p has two words.
ELEMENTWISE_INLINE Words<double> logarithm_in_two_words(double exponent, double f) {
  const Words<double> below = sum_of_ordered(2.0, f);
  const double inverse = 1 / below.high;
  const double s = f * inverse;
  const double s_low = std::fma(-s, below.low, std::fma(-s, below.high, f)) * inverse;
  // s^2 / 3 + s^4 p
  Words<double> square = product(s, s);
  square.low = std::fma(s + s, s_low, square.low);
  const double p = polynomial(
      square.high, {0x1.9999999999996p-3, 0x1.2492492492f51p-3, 0x1.c71c71c5968f9p-4, 0x1.745d182956719p-4,
                    0x1.3b1364c957ccfp-4, 0x1.11206f2a1ab69p-4, 0x1.de3d71852a408p-5, 0x1.eac5b3c1fe22ep-5});
  constexpr double kThird = 0x1.5555555555555p-2, kThirdLow = 0x1.5555555555555p-56;
  Words<double> tail = product(square.high, kThird);
  tail.low += std::fma(square.high, kThirdLow, square.low * kThird);
  tail.low = std::fma(square.high * square.high, p, tail.low);
  // 2 s (1 + tail)
  Words<double> cubic = product(s + s, tail.high);
  cubic.low = std::fma(s + s, tail.low, std::fma(s_low + s_low, tail.high, cubic.low));
  // The sum, beginning with the largest terms. The product of the exponent and the high word of log 2 is exact.
  const Words<double> two = sum_of_ordered(exponent * 0x1.62e42fefa38p-1, s + s);
  const Words<double> three = sum_of_ordered(two.high, cubic.high);
  const double low = std::fma(exponent, 0x1.ef35793c7673p-45, (s_low + s_low) + cubic.low);
  return sum_of_ordered(three.high, three.low + (two.low + low));
}

// a^y for a >= 0 or NaN. (1^infinity is NaN here; pow replaces it.) For floats, a logarithm in one double is accurate
// enough.
template <class C>
ELEMENTWISE_INLINE C power_of_magnitude(C magnitude, C y) {
  const double a = magnitude;
  Words<double> l;
  if constexpr (kFloat<C>) {
    const Parts<double> of = parts(a);
    l = {logarithm<0>(of.exponent, of.fraction), -0.0};
  } else {
    const Parts<double> of = parts_of_positive(a);
    l = logarithm_in_two_words(of.exponent, of.fraction);
  }
  l.high = choose(a == 0, -kInfinity<double>, choose(a < kInfinity<double>, l.high, a));
  Words<double> exponent = {y * l.high, -0.0};
  if constexpr (!kFloat<C>) exponent.low = std::fma(y, l.low, std::fma(y, l.high, -exponent.high));
  const double power = exp_of(exponent);
  // The power of a float may lie exactly between two floats, as 4097^2 does. Rounding it to 44 significant bits first
  // removes the error of the double, so that the conversion to float rounds it to even.
  return kFloat<C> ? C(number<double>((bits(power) + 0x100) & ~bits_t<double>{0x1ff})) : C(power);
}

// Whether x >= 0 is an integer.
template <class C>
ELEMENTWISE_INLINE bool is_whole(C x) {
  const C rounded = x + kInteger<C>; // to an integer
  return (x >= kInteger<C>) | (rounded - kInteger<C> == x);
}

} // namespace math

// x^y, for all x and y as in C: NaN if x < 0 is finite and y is not an integer; pow(x, 0) and pow(1, y) are 1 even if
// the other argument is NaN. Error: 0.51 (float), 1.64 (double).
template <class C>
ELEMENTWISE_INLINE C pow(C x, C y) {
  using namespace math;
  const C a = magnitude(x), b = magnitude(y);
  const bool whole = is_whole(b), even = is_whole(b * C(0.5));
  const bool none = !whole & (x < 0) & (a < kInfinity<C>);
  C to = power_of_magnitude(a, y);
  to = choose(none, kNaN<C>, with_sign(to, choose(whole & !even, x, C(0))));
  return choose((x == 1) | (y == 0) | ((a == 1) & (b == kInfinity<C>)), C(1), to);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
