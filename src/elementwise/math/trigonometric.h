// sin, cos and tan.
//
// The argument is first reduced: x = (q + r) pi/2 with an integer q and |r| <= 1/2. For large x this is the method of
// M. Payne and R. Hanek (Radian reduction for trigonometric functions, 1983). It multiplies x by some binary digits of
// 2/pi only. Leading digits can be left out, because even times the last bit of x they are multiples of whole turns.
// Trailing digits can be left out when their contribution is smaller than the allowed error. No float is closer to a
// multiple of pi/2 than about 2^-33, and no double closer than 2^-61, so some 87 digits are enough for a float, and
// some 172 for a double.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// A number of turns: an integer, of which only the lowest bit is valid, and the rest.
struct Turns {
  double rest; // at most 1/2 in magnitude, or a little more if x is large
  uint64_t whole;
};

// A float as a number of half turns (unit 1) or quarter turns (unit 2). It multiplies x by two words of unit / pi.
// There are four pairs of words, because larger x need later digits: below 2^49 the words are the first digits of unit
// / pi; later pairs leave out digits that contribute multiples of 2. With `cos`, the rest is changed so that its sine
// is the cosine.
template <int unit, bool cos>
ELEMENTWISE_INLINE Turns turns(float argument) {
  const double x = argument, size = magnitude(x);
  const bool second = size >= 0x1p49, third = size >= 0x1p75, fourth = size >= 0x1p102;
  double high = choose(second, unit * 0x1.b9391054a7f0ap-27, unit * 0x1.45f306dc9c882p-2);
  high = choose(third, unit * 0x1.529fc2757d1f5p-53, high);
  high = choose(fourth, unit * -0x1.505c1596447e5p-82, high);
  double low = choose(second, unit * -0x1.505c1596447e5p-82, unit * 0x1.4a7f09d5f47d5p-55);
  low = choose(third, unit * 0x1.a6ee06db14acdp-108, low);
  low = choose(fourth, unit * 0x1.b14acc9e21c82p-136, low);
  const double shifted = std::fma(x, high, kRound<double>);
  const double rest = std::fma(x, high, -(shifted - kRound<double>));
  // cos(pi r) = sin(pi (1/2 - |r|)).
  if constexpr (cos)
    return {
        std::fma(number<double>(bits(x) ^ (~bits(rest) & kSign<double>)), low, 0.5 - magnitude(rest)), bits(shifted)};
  return {std::fma(x, low, rest), bits(shifted)};
}

// sin(pi (whole + rest)).
ELEMENTWISE_INLINE float sin_of_half_turns(Turns turns) {
  const double x = turns.rest, square = x * x;
  double p = -0x1.ca41df84cf448p-8;
  p = std::fma(square, p, 0x1.4ffdc0ff929e4p-4);
  p = std::fma(square, p, -0x1.32d09ca77f274p-1);
  p = std::fma(square, p, 0x1.466bbd668eb0fp+1);
  p = std::fma(square, p, -0x1.4abbce46df7bbp+2);
  p = std::fma(square, p, 0x1.921fb5440ccb7p+1);
  p *= x;
  return float(number<double>(bits(p) ^ (turns.whole << 63)));
}

// A table with the digits of 2/pi that a double of each exponent needs: four words of 52 digits.
struct TwoOverPi {
  static constexpr int kFirst = 995;                        // the biased exponent of 2^-28; below, sin(x) is x
  static constexpr int kDigits = 52;                        // digits in a word
  static constexpr int kSize = 2048 - kFirst + 3 * kDigits; // the last exponent needs three words more
  static constexpr int kScale = 200;                        // words are multiplied by 2^200, as some would be subnormal
  double word[kSize] = {};

  // The first word for an exponent begins with the binary digit of 2/pi that, times the last bit of such a double, is 2
  // quarter turns. A word is rounded to nearest, so the following word may be negative. The second word is the first
  // word for an exponent that is greater by 52, and so on.
  ELEMENTWISE_INLINE constexpr TwoOverPi() {
    // clang-format off
    constexpr uint64_t kBits[] = {
        0, 0,
        0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
        0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
        0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
        0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};
    // clang-format on
    // The last bit of a double with the first exponent is 2^-80, so the first digit has the weight 2^81.
    double unit = 1; // the weight of a word's last digit, times 2^200
    for (int i = 0; i < 30 + kScale; i++) unit *= 2;
    for (int i = 0; i < kSize; i++, unit /= 2) {
      const int from = 128 - 82 + i; // the digit of weight 1/2 has the number 128
      const uint64_t high = kBits[from / 64], low = kBits[from / 64 + 1];
      const uint64_t digits = from % 64 ? high << from % 64 | low >> (64 - from % 64) : high;
      const int64_t rounded = int64_t(digits >> 12) + int64_t(digits >> 11 & 1);
      word[i] = double(rounded - (int64_t(digits >> 63) << 52)) * unit;
    }
  }
};

// A number of quarter turns: an integer, of which only the lowest two bits are valid, and the rest.
struct QuarterTurns {
  Words<double> rest;
  uint64_t whole;
};

// A double as a number of quarter turns, for |x| >= 2^-28. The products of x and the second and third word are split at
// fixed binary places, so that the parts are exact.
ELEMENTWISE_INLINE QuarterTurns quarter_turns(double argument) {
  static constexpr TwoOverPi kTwoOverPi = TwoOverPi(); // not just `kTwoOverPi;`: nvcc 13 would leave that zero on a GPU
  constexpr int kDigits = TwoOverPi::kDigits;
  const uint64_t exponent = (bits(argument) & ~kSign<double>) >> kMantissa<double>;
  const uint64_t at = exponent - TwoOverPi::kFirst;
  const double word[] = {
      kTwoOverPi.word[at], kTwoOverPi.word[at + kDigits], kTwoOverPi.word[at + 2 * kDigits],
      kTwoOverPi.word[at + 3 * kDigits]};
  const double x = argument * 0x1p-200;
  static_assert(TwoOverPi::kScale == 200);
  // |x word[0]| <= 2^54. We drop multiples of 8; the rest is at most 4, and a multiple of 2^-50.
  constexpr double kEights = 0x1.8p55;
  const double first = std::fma(x, word[0], -(std::fma(x, word[0], kEights) - kEights));
  // |x word[1]| <= 4. We split it into a multiple of 2^-49, and a rest of at most 2^-50.
  constexpr double kSecond = 12;
  const double second = std::fma(x, word[1], kSecond) - kSecond;
  const double second_rest = std::fma(x, word[1], -second);
  // |x word[2]| <= 2^-50. We split it into a multiple of 2^-101, and a rest of at most 2^-102.
  constexpr double kThird = 0x1.8p-49;
  const double third = std::fma(x, word[2], kThird) - kThird;
  const double third_rest = std::fma(x, word[3], std::fma(x, word[2], -third));
  const double all = first + second;
  const double shifted = all + kRound<double>;
  const Words<double> rest = sum_of_ordered(all - (shifted - kRound<double>), second_rest + third);
  return {{rest.high, rest.low + third_rest}, bits(shifted)};
}

// A sine or cosine, constant + factor * value. `rounded` computes it with one rounding.
struct Sine {
  double factor, value, constant;
};

// sin(pi/2 x) = pi/2 x + x^3 P(x^2).
ELEMENTWISE_INLINE Sine sine_of(Words<double> x) {
  constexpr double kHigh = 0x1.921fb54442d18p+0, kLow = 0x1.1a62633145c07p-54; // pi/2
  const double square = x.high * x.high;
  const double p = polynomial(
      square, {-0x1.4abbce625be47p-1, 0x1.466bc67758df5p-4, -0x1.32d2cce339b69p-8, 0x1.50783020f019p-13,
               -0x1.e300aac113fa4p-19, 0x1.e405224ef31bfp-25});
  return {x.high, kHigh, std::fma(square * x.high, p, std::fma(x.high, kLow, x.low * kHigh))};
}

// cos(pi/2 x) = 1 + x^2 P(x^2).
ELEMENTWISE_INLINE Sine cosine_of(Words<double> x) {
  const double square = x.high * x.high;
  const double p = polynomial(
      square, {0x1.03c1f081b5a5p-2, -0x1.55d3c7e3bf82ap-6, 0x1.e1f50674e846dp-11, -0x1.a6d1e180a3729p-16,
               0x1.f9c4124ee8014p-22, -0x1.b00301cf1f116p-28});
  return {std::fma(x.high + x.high, x.low, square), std::fma(square, p, -0x1.3bd3cc9be45dep+0), 1};
}

ELEMENTWISE_INLINE double rounded(Sine sine) {
  return std::fma(sine.factor, sine.value, sine.constant);
}

// A sine and a cosine as two words. In a sine the product is the larger term, in a cosine the constant is.
ELEMENTWISE_INLINE Words<double> sine_words(Sine sine) {
  const double high = rounded(sine);
  return {high, std::fma(sine.factor, sine.value, -high) + sine.constant};
}
ELEMENTWISE_INLINE Words<double> cosine_words(Sine cosine) {
  const double high = rounded(cosine);
  return {high, std::fma(cosine.factor, cosine.value, cosine.constant - high)};
}

template <bool cos, class C>
ELEMENTWISE_INLINE C sin_or_cos(C argument) {
  if constexpr (kFloat<C>) {
    return sin_of_half_turns(turns<1, cos>(argument));
  } else {
    const bool small = magnitude(argument) < 0x1p-27;
    const QuarterTurns turns = quarter_turns(choose(small, 0x1p-27, argument));
    const double sine = rounded(sine_of(turns.rest)), cosine = rounded(cosine_of(turns.rest));
    const double size = choose((turns.whole & 1) != cos, cosine, sine);
    const double to = number<double>(bits(size) ^ ((turns.whole + cos) >> 1 << 63));
    return cos ? to : choose(small, argument, to);
  }
}

} // namespace math

// The sine, for all finite x; NaN for infinities. Error: 0.51 (float), 1.03 (double).
template <class C>
ELEMENTWISE_INLINE C sin(C x) {
  return math::sin_or_cos<false>(x);
}

// The cosine, for all finite x; NaN for infinities. Error: 0.51 (float), 1.03 (double).
template <class C>
ELEMENTWISE_INLINE C cos(C x) {
  return math::sin_or_cos<true>(x);
}

// The tangent, for all finite x; NaN for infinities. Error: 0.57 (float), 1.45 (double).
//
// After an even number of quarter turns and a rest y it is tan(y), after an odd number -1 / tan(y).
template <class C>
ELEMENTWISE_INLINE C tan(C argument) {
  using namespace math;
  if constexpr (kFloat<C>) {
    // A Pade approximation of degrees 5 and 4, in which the coefficients of the numerator were fitted.
    const Turns of = turns<2, false>(argument);
    const double x = of.rest, square = x * x;
    const double above = x * polynomial(square, {0x1.921fb55d78adcp+0, -0x1.b8fa78f8e9067p-2, 0x1.4ba50e2ed715cp-7});
    const double below = polynomial(square, {1.0, -0x1.18bc4418cafe2p+0, 0x1.8bd23188b34f9p-4});
    const bool even = (of.whole & 1) == 0;
    return float(choose(even, above, -below) / choose(even, below, above));
  } else {
    const bool small = magnitude(argument) < 0x1p-27;
    const QuarterTurns turns = quarter_turns(choose(small, 0x1p-27, argument));
    const Words<double> sine = sine_words(sine_of(turns.rest)), cosine = cosine_words(cosine_of(turns.rest));
    const bool even = (turns.whole & 1) == 0;
    const double sign = number<double>(bits(1.0) | (turns.whole << 63));
    const double above = choose(even, sine.high, cosine.high) * sign,
                 above_low = choose(even, sine.low, cosine.low) * sign;
    const double below = choose(even, cosine.high, sine.high), below_low = choose(even, cosine.low, sine.low);
    // The quotient, corrected by its rounding error.
    const double reciprocal = 1 / below;
    const double quotient = above * reciprocal;
    const double lack = std::fma(-quotient, below, above) + std::fma(-quotient, below_low, above_low);
    return choose(small, argument, std::fma(lack, reciprocal, quotient));
  }
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
