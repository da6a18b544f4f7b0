// log, log2, log10 and log1p.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// The exponent and the fraction of a positive normal number x = 2^exponent (1 + fraction); `fraction` is exact.
// 1 + fraction is from sqrt(1/2) to sqrt(2) for double. For float it is from 0.695 to 1.39, because just below sqrt(2)
// the error of log2 would exceed an ulp.
template <class C>
struct Parts {
  C exponent, fraction;
  C inverse; // 2^-exponent, if that is a normal number
};

// `parts` subtracts this from a number to get the exponent.
template <class C>
constexpr C kFrom = kInteger<C> + kBias<C>;
template <class C>
ELEMENTWISE_INLINE Parts<C> parts(C x, C from = kFrom<C>) {
  constexpr bits_t<C> kOne = bits_t<C>{kBias<C>} << kMantissa<C>;
  constexpr bits_t<C> kLeast = kFloat<C> ? 0x3f320000 : 0x3fe6a09e667f3bcd;
  constexpr bits_t<C> kFraction = (bits_t<C>{1} << kMantissa<C>)-1;
  // The bits of kInteger. ORing a smaller integer into them adds it to the number.
  constexpr bits_t<C> kWhole = bits_t<C>{kBias<C> + kMantissa<C>} << kMantissa<C>;
  const bits_t<C> shifted = bits(x) + (kOne - kLeast);
  return {
      number<C>((shifted >> kMantissa<C>) | kWhole) - from, number<C>((shifted & kFraction) + kLeast) - 1,
      number<C>(2 * kOne - (shifted & ~kFraction))};
}

// The same for any finite positive number, also a subnormal one. `inverse` is not valid.
template <class C>
ELEMENTWISE_INLINE Parts<C> parts_of_positive(C x) {
  const bool subnormal = x < kLeastNormal<C>;
  return parts(x * choose(subnormal, kInteger<C>, C(1)), choose(subnormal, kFrom<C> + kMantissa<C>, kFrom<C>));
}

// The logarithm of 2^exponent (1 + high + low) to base e, 2 or 10; |low| is at most an ulp of 1 + high. (`low` is -0.0
// by default, because compilers drop x + -0.0.)
//
// It is exponent log 2 + log(1 + f), and log(1 + f) = f - f^2 / 2 + f^3 (1/3 - f/4 + ...), where a polynomial computes
// the bracket. The rounding error of the sum of the two large terms, exponent log 2 and f, is added to the small terms.
template <int base, class C>
ELEMENTWISE_INLINE C logarithm(C exponent, C high, C low = C(-0.0)) {
  static_assert(base == 0 || base == 2 || base == 10); // 0 means e
  // log 2 and log e in this base. The product of an exponent and kTwo.high is exact.
  constexpr Words<C> kTwo = base == 2    ? Words<C>{1, 0}
                            : base == 10 ? (kFloat<C> ? Words<C>{C(0x1.3442p-2), C(-0x1.95ec1p-19)}
                                                      : Words<C>{C(0x1.34413509f78p-2), C(0x1.fef311f12b358p-46)})
                            : kFloat<C>  ? Words<C>{C(0x1.62e4p-1), C(0x1.7f7d1cp-20)}
                                         : Words<C>{C(0x1.62e42fefa38p-1), C(0x1.ef35793c7673p-45)};
  constexpr Words<C> kE = base == 2 ? (kFloat<C> ? Words<C>{C(0x1.715476p+0), C(0x1.4ae0cp-26)}
                                                 : Words<C>{C(0x1.71547652b82fep+0), C(0x1.777d0ffda0d24p-56)})
                                    : (kFloat<C> ? Words<C>{C(0x1.bcb7b2p-2), C(-0x1.5b235ep-27)}
                                                 : Words<C>{C(0x1.bcb7b1526e50ep-2), C(0x1.95355baaafad3p-57)});
  C p; // 1/3 - f/4 + ...
  if constexpr (kFloat<C>)
    p = polynomial(
        high, {0x1.55554ap-2, -0x1.ffff7ap-3, 0x1.99a296p-3, -0x1.557daap-3, 0x1.238592p-3, -0x1.f78af6p-4,
               0x1.dd017ep-4, -0x1.f79d54p-4, 0x1.4cfafcp-4});
  else
    p = polynomial(
        high, {0x1.5555555555546p-2, -0x1.fffffffffee88p-3, 0x1.999999999bf43p-3, -0x1.55555556713f5p-3,
               0x1.24924924543ffp-3, -0x1.ffffff2a49123p-4, 0x1.c71c7119d0bb1p-4, -0x1.9999c219035c7p-4,
               0x1.745d5809ca52dp-4, -0x1.55510b5f8711ap-4, 0x1.3b09bc6acd61cp-4, -0x1.24d404c0c8d5dp-4,
               0x1.11df927e8f9a2p-4, -0x1.fc0010dff3c98p-5, 0x1.cfa53f8fa2cacp-5, -0x1.ce7d3827604acp-5,
               0x1.0a93d816aa1bdp-4, -0x1.f18a851a61945p-5, 0x1.b909babf976dep-6});
  const C square = high * high;
  // exponent log 2 + `first`, and its rounding error
  const Words<C> first = base == 0 ? Words<C>{high, low} : product(high, kE.high);
  const C sum = std::fma(exponent, kTwo.high, first.high);
  const C lost = first.high - std::fma(exponent, -kTwo.high, sum);
  if constexpr (base == 0) {
    const C rest = std::fma(exponent, kTwo.low, std::fma(square, C(-0.5), low)) + lost;
    return sum + std::fma(square * high, p, rest);
  } else {
    const C tail = std::fma(square * high, p, square * C(-0.5));
    const C square_low = std::fma(high, high, -square);
    const C others = std::fma(square_low, -kE.high / 2, std::fma(high, kE.low, first.low + low));
    const C rest = (base == 2 ? others : std::fma(exponent, kTwo.low, others)) + lost;
    return sum + std::fma(tail, kE.high, rest);
  }
}

// A number that is added to the logarithm. It is 0 for ordinary x. For a special x it makes the result infinity for
// infinity, -infinity for 0, and NaN for a negative x or NaN.
template <class C>
ELEMENTWISE_INLINE C no_logarithm(C x) {
  return choose(x > 0, choose(x == kInfinity<C>, x, C(0)), choose(x == 0, -kInfinity<C>, kNaN<C>));
}

// log x for all x, to base e (0), 2 or 10.
template <int base, class C>
ELEMENTWISE_INLINE C logarithm(C x) {
  const Parts<C> of = parts_of_positive(x);
  return logarithm<base>(of.exponent, of.fraction, no_logarithm(x));
}

// log(1 + x) + twos log 2 for a finite x with 1 + x > 0.
template <class C>
ELEMENTWISE_INLINE C logarithm_1p(Words<C> x, C twos = C(-0.0)) {
  constexpr C kHuge = kFloat<C> ? C(0x1p40) : C(0x1p80); // from here on, low words do not matter
  const Words<C> one_more = sum(C(1), x.high);
  const Parts<C> of = parts(one_more.high);
  // f is the fraction with the low word added; the rounding error of that sum is passed on as low word.
  const bool huge = !(x.high < kHuge);
  const C low = choose(huge, C(0), one_more.low + x.low) * choose(huge, C(0), of.inverse);
  const C f = of.fraction + low;
  return logarithm<0>(of.exponent + twos, f, low - (f - of.fraction));
}

} // namespace math

// The natural logarithm; -infinity at 0, NaN for x < 0. Error: 0.79 (float), 0.94 (double).
template <class C>
ELEMENTWISE_INLINE C log(C x) {
  return math::logarithm<0>(x);
}

// The logarithm to base 2; -infinity at 0, NaN for x < 0. Error: 0.82 (float), 1.02 (double).
template <class C>
ELEMENTWISE_INLINE C log2(C x) {
  return math::logarithm<2>(x);
}

// The logarithm to base 10; -infinity at 0, NaN for x < 0. Error: 0.85 (float), 0.87 (double).
template <class C>
ELEMENTWISE_INLINE C log10(C x) {
  return math::logarithm<10>(x);
}

// log(1 + x), accurate near 0 too; -infinity at -1, NaN for x < -1. Error: 0.94 (float), 0.94 (double).
template <class C>
ELEMENTWISE_INLINE C log1p(C x) {
  using namespace math;
  C to = with_sign(logarithm_1p<C>({x, C(-0.0)}), x); // log1p(-0.0) is -0.0
  to = choose(x < kInfinity<C>, to, x);
  return choose(x > -1, to, choose(x == -1, -kInfinity<C>, kNaN<C>));
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
