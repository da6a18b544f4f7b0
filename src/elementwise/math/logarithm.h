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

template <class C>
ELEMENTWISE_MATH Parts<C> parts(C x) {
  constexpr bits_t<C> kOne = bits_t<C>{kBias<C>} << kMantissa<C>;
  constexpr bits_t<C> kRoot = kFloat<C> ? 0x3f3504f3 : 0x3fe6a09e667f3bcd; // sqrt(1/2)
  constexpr bits_t<C> kFraction = (bits_t<C>{1} << kMantissa<C>)-1;
  // An integer of less than 2^kMantissa, put into the bits of this number, is added to it.
  constexpr bits_t<C> kWhole = bits_t<C>{kBias<C> + kMantissa<C>} << kMantissa<C>;
  const bits_t<C> shifted = bits(x) + (kOne - kRoot);
  return {number<C>((shifted >> kMantissa<C>) | kWhole) - (C(kFraction) + 1 + kBias<C>),
          number<C>((shifted & kFraction) + kRoot) - 1, number<C>(2 * kOne - (shifted & ~kFraction))};
}

// The logarithm of 2^exponent (1 + high + low) to base e, 2 or 10; |low| is at most an ulp of 1 + high. (Adding -0, the
// low word of most callers, changes no number, and compilers leave it out.)
//
// log(1 + f) = f + f^2 (-1/2 + f/3 - ...), the bracket by a polynomial. What rounding takes from the sum of the two large
// terms, exponent log 2 and f, is added to the small ones.
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
  C p;
  if constexpr (kFloat<C>)
    p = polynomial(high, {-0x1.fffff8p-2, 0x1.555544p-2, -0x1.0003fep-2, 0x1.99a966p-3, -0x1.54324cp-3, 0x1.221196p-3,
                          -0x1.0e841ap-3, 0x1.0a5574p-3, -0x1.406f28p-4});
  else
    p = polynomial(high, {-0x1.0000000000004p-1, 0x1.555555555553ap-2,  -0x1.fffffffffd9adp-3, 0x1.999999999cad4p-3,
                          -0x1.5555555708da5p-3, 0x1.249249247847ap-3,  -0x1.fffffee797c2bp-4, 0x1.c71c70dd30ef2p-4,
                          -0x1.9999ca34be9e7p-4, 0x1.745d644ea3f21p-4,  -0x1.555079eb9489cp-4, 0x1.3b088a7df22efp-4,
                          -0x1.24d9b48fe6373p-4, 0x1.11ef79521412cp-4,  -0x1.fbcb0eca273f8p-5, 0x1.cecbc8e3c338dp-5,
                          -0x1.ce8b850b801f6p-5, 0x1.0bc046138327p-4,   -0x1.f392927010743p-5, 0x1.b9182783335d3p-6});
  const C whole = exponent * kTwo.high;
  if constexpr (base == 0) {
    const Words<C> to = sum_of_ordered(whole, high);
    return to.high + std::fma(high * high, p, std::fma(exponent, kTwo.low, to.low + low));
  } else {
    const Words<C> first = product(high, kE.high);
    const Words<C> to = sum_of_ordered(whole, first.high);
    const C rest = std::fma(exponent, kTwo.low, to.low + std::fma(high, kE.low, first.low));
    return to.high + std::fma(std::fma(high * high, p, low), kE.high, rest);
  }
}

// log x for all x.
template <int base, class C>
ELEMENTWISE_MATH C logarithm(C x) {
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  const bool subnormal = x < std::numeric_limits<C>::min();
  const Parts<C> of = parts(x * choose(subnormal, C(bits_t<C>{1} << kMantissa<C>), C(1)));
  C to = logarithm<base>(of.exponent - choose(subnormal, C(kMantissa<C>), C(0)), of.fraction);
  to = choose(x < kInfinity, to, x);
  return choose(x > 0, to, choose(x == 0, -kInfinity, std::numeric_limits<C>::quiet_NaN()));
}

// log(1 + x) + times log 2 for finite x with 1 + x > 0.
template <class C>
ELEMENTWISE_MATH C logarithm_1p(Words<C> x) {
  constexpr C kHuge = kFloat<C> ? C(0x1p40) : C(0x1p80); // what 1 adds to it is lost in any case
  const Words<C> one_more = sum(C(1), x.high);
  const Parts<C> of = parts(one_more.high);
  // The fraction is exact, and gets the low word: f, and what rounding has left of it.
  const C low = choose(x.high < kHuge, one_more.low + x.low, C(0)) * of.inverse;
  const C f = of.fraction + low;
  return logarithm<0>(of.exponent, f, low - (f - of.fraction));
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
