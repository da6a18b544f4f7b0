// log, log2, log10 and log1p.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// x = 2^exponent (1 + fraction), sqrt(1/2) <= 1 + fraction < sqrt(2), of a positive normal number; `fraction` is exact.
template <class C>
struct Parts {
  C exponent, fraction;
  C inverse; // 2^-exponent, unless that is less than 2^-1022 or, of floats, 2^-126
};

// x * 2^-up is the number.
template <class C>
constexpr C kNotUp = C(bits_t<C>{1} << kMantissa<C>) + kBias<C>;
template <class C>
ELEMENTWISE_MATH Parts<C> parts(C x, C from = kNotUp<C>) {
  constexpr bits_t<C> kOne = bits_t<C>{kBias<C>} << kMantissa<C>;
  constexpr bits_t<C> kRoot = kFloat<C> ? 0x3f3504f3 : 0x3fe6a09e667f3bcd; // sqrt(1/2)
  constexpr bits_t<C> kFraction = (bits_t<C>{1} << kMantissa<C>)-1;
  // An integer of less than 2^kMantissa, put into the bits of this number, is added to it.
  constexpr bits_t<C> kWhole = bits_t<C>{kBias<C> + kMantissa<C>} << kMantissa<C>;
  const bits_t<C> shifted = bits(x) + (kOne - kRoot);
  return {
      number<C>((shifted >> kMantissa<C>) | kWhole) - from, number<C>((shifted & kFraction) + kRoot) - 1,
      number<C>(2 * kOne - (shifted & ~kFraction))};
}

// The logarithm of 2^exponent (1 + high + low) to base e, 2 or 10; |low| is at most an ulp of 1 + high. (Adding -0, the
// low word of most callers, changes no number, and compilers leave it out.)
//
// log(1 + f) = f - f^2 / 2 + f^3 (1/3 - f/4 + ...), the bracket by a polynomial. What rounding takes from the sum of
// the two large terms, exponent log 2 and f, is added to the small ones.
template <int base, class C>
ELEMENTWISE_MATH C logarithm(C exponent, C high, C low = C(-0.0)) {
  static_assert(base == 0 || base == 2 || base == 10); // 0 is e
  // The logarithm of 2, of which the first word times any exponent is exact; and that of e.
  constexpr Words<C> kTwo = base == 2    ? Words<C>{1, C(-0.0)}
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
        high, {0x1.55554ap-2, -0x1.00022p-2, 0x1.99a596p-3, -0x1.54788cp-3, 0x1.226e4cp-3, -0x1.0ce078p-3,
               0x1.07d0d2p-3, -0x1.41edep-4});
  else
    p = polynomial(
        high, {0x1.5555555555546p-2, -0x1.fffffffffee8bp-3, 0x1.999999999befcp-3, -0x1.55555556711dep-3,
               0x1.2492492455fdp-3, -0x1.ffffff2a5c41ap-4, 0x1.c71c711935563p-4, -0x1.9999c215fd6a9p-4,
               0x1.745d5817eb25cp-4, -0x1.55510ba80653cp-4, 0x1.3b09bbbd8c724p-4, -0x1.24d400ad091ecp-4,
               0x1.11df960ea09a5p-4, -0x1.fc00548a52a2fp-5, 0x1.cfa5487f35ee7p-5, -0x1.ce7c18c8804bcp-5,
               0x1.0a93669899644p-4, -0x1.f18c42fd1285ep-5, 0x1.b90dcd5370a5fp-6});
  const C square = high * high;
  // exponent log 2 + `first`, and what rounding takes from it
  const Words<C> first = base == 0 ? Words<C>{high, low} : product(high, kE.high);
  const C sum = std::fma(exponent, kTwo.high, first.high);
  const C lost = first.high - std::fma(exponent, -kTwo.high, sum);
  if constexpr (base == 0) {
    const C rest = std::fma(exponent, kTwo.low, lost + low);
    return sum + std::fma(square * high, p, std::fma(square, C(-0.5), rest));
  } else {
    const C tail = std::fma(square * high, p, square * C(-0.5));
    const C rest = std::fma(exponent, kTwo.low, (lost + low) + std::fma(high, kE.low, first.low));
    return sum + std::fma(tail, kE.high, rest);
  }
}

// What is to be added to a finite number in place of the logarithm of x: infinity for infinity, -infinity for 0, NaN
// for what has no logarithm; else 0.
template <class C>
ELEMENTWISE_MATH C no_logarithm(C x) {
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  return choose(
      x > 0, choose(x == kInfinity, x, C(0)), choose(x == 0, -kInfinity, std::numeric_limits<C>::quiet_NaN()));
}

// log x for all x.
template <int base, class C>
ELEMENTWISE_MATH C logarithm(C x) {
  const bool subnormal = x < std::numeric_limits<C>::min();
  const Parts<C> of = parts(
      x * choose(subnormal, C(bits_t<C>{1} << kMantissa<C>), C(1)),
      choose(subnormal, kNotUp<C> + kMantissa<C>, kNotUp<C>));
  return logarithm<base>(of.exponent, of.fraction, no_logarithm(x));
}

// log(1 + x) + twos log 2 for a finite x with 1 + x > 0.
template <class C>
ELEMENTWISE_MATH C logarithm_1p(Words<C> x, C twos = C(-0.0)) {
  constexpr C kHuge = kFloat<C> ? C(0x1p40) : C(0x1p80); // to this nothing that is lost of the sum matters
  const Words<C> one_more = sum(C(1), x.high);
  const Parts<C> of = parts(one_more.high);
  // The fraction is exact, and gets the low word: f, and what rounding has left of it.
  const bool huge = !(x.high < kHuge);
  const C low = choose(huge, C(0), one_more.low + x.low) * choose(huge, C(0), of.inverse);
  const C f = of.fraction + low;
  return logarithm<0>(of.exponent + twos, f, low - (f - of.fraction));
}

} // namespace math

template <class C>
ELEMENTWISE_MATH C log(C x) {
  return math::logarithm<0>(x);
}

template <class C>
ELEMENTWISE_MATH C log2(C x) {
  return math::logarithm<2>(x);
}

template <class C>
ELEMENTWISE_MATH C log10(C x) {
  return math::logarithm<10>(x);
}

// log(1 + x), of which a small x is not lost.
template <class C>
ELEMENTWISE_MATH C log1p(C x) {
  using namespace math;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  C to = with_sign(logarithm_1p<C>({x, C(-0.0)}), x); // the sign of 0
  to = choose(x < kInfinity, to, x);
  return choose(x > -1, to, choose(x == -1, -kInfinity, std::numeric_limits<C>::quiet_NaN()));
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
