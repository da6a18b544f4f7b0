// The building blocks of the functions of math.h: access to the bits of a number, rounding to an integer, polynomials,
// and numbers of two words, high + low, whose low word holds the rounding error of the high one. Example: the sum of
// 2^60 and 1 is 2^60 in one double; as two words it is {2^60, 1}.
//
// Nothing here branches. `choose` selects one of two values that are both computed, so that the compiler can vectorise.
//
// Sources of the algorithms of two words: T. J. Dekker, A floating-point technique for extending the available
// precision (1971); with fma: M. Joldes, J.-M. Muller, V. Popescu, Tight and rigorous error bounds for basic building
// blocks of double-word arithmetic (2017).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "../functor.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

template <class C>
constexpr bool kFloat = std::is_same_v<C, float>;

// The integer with the bits of a float or double.
template <class C>
struct BitsOf {
  static_assert(
      std::is_same_v<C, float> || std::is_same_v<C, double>,
      "the functions of elementwise/math.h take float and double: convert an integer, as in "
      "elementwise::exp(double(n))");
  using type = std::conditional_t<kFloat<C>, uint32_t, uint64_t>;
};
template <class C>
using bits_t = typename BitsOf<C>::type;

// Returns x for functions of <cmath>, which would convert an integer to double; ours refuse it.
template <class C>
ELEMENTWISE_INLINE C real(C x) {
  static_assert(sizeof(bits_t<C>) == sizeof(C));
  return x;
}

template <class C>
constexpr int kMantissa = std::numeric_limits<C>::digits - 1; // stored bits of the significand: 23 or 52
template <class C>
constexpr int kBias = std::numeric_limits<C>::max_exponent - 1; // the bias of the exponent: 127 or 1023
template <class C>
constexpr bits_t<C> kSign = bits_t<C>{1} << (8 * sizeof(C) - 1);

template <class C>
constexpr C kInteger = C(bits_t<C>{1} << kMantissa<C>); // from here on, every number is an integer
template <class C>
constexpr C kInfinity = std::numeric_limits<C>::infinity();
template <class C>
constexpr C kNaN = std::numeric_limits<C>::quiet_NaN();
template <class C>
constexpr C kLeastNormal = std::numeric_limits<C>::min();
// Integers have one, too. It is a constant because nvcc refuses to call lowest() in a function of the device.
template <class C>
constexpr C kLowest = std::numeric_limits<C>::lowest();

template <class C>
ELEMENTWISE_INLINE bits_t<C> bits(C x) {
  return __builtin_bit_cast(bits_t<C>, x); // std::bit_cast cannot be called on a GPU
}

template <class C>
ELEMENTWISE_INLINE C number(bits_t<C> x) {
  return __builtin_bit_cast(C, x);
}

// `magnitude` with the sign of `sign`.
template <class C>
ELEMENTWISE_INLINE C with_sign(C magnitude, C sign) {
  return number<C>((bits(magnitude) & ~kSign<C>) | (bits(sign) & kSign<C>));
}

template <class C>
ELEMENTWISE_INLINE C magnitude(C x) {
  return number<C>(bits(x) & ~kSign<C>);
}

// The smaller of two numbers that are not negative; b if a is a NaN. It compares their bits as integers, for which
// processors have an instruction.
template <class C>
ELEMENTWISE_INLINE C least(C a, C b) {
  return number<C>(bits(a) < bits(b) ? bits(a) : bits(b));
}

// `condition ? yes : no`, by masking bits. If one of the two is a constant, GCC compiles the conditional operator to
// two copies of the code that follows, one with the constant folded in, and computes both for every vector.
template <class C>
ELEMENTWISE_INLINE C choose(bool condition, C yes, C no) {
  if constexpr (std::is_class_v<C>) { // a number of python/reads.h
    return condition ? yes : no;
  } else {
    const bits_t<C> mask = -bits_t<C>{condition};
    return number<C>((bits(yes) & mask) | (bits(no) & ~mask));
  }
}

// Adding it to a number below 2^21 (float) or 2^50 (double) rounds that number to the nearest integer, ties to even:
// the low bits of the sum hold the integer. Subtracting it again gives the integer as a number. Example for float: 2.7
// + 1.5 * 2^23 is 12582915, that is 1.5 * 2^23 + 3.
template <class C>
constexpr C kRound = kFloat<C> ? C(0x1.8p23) : C(0x1.8p52);

// An integer, as a number and as bits in two's complement.
template <class C>
struct Nearest {
  C value;
  bits_t<C> integer;
};

// The integer nearest to x, for x in the range of kRound.
template <class C>
ELEMENTWISE_INLINE Nearest<C> nearest(C x) {
  const C shifted = x + kRound<C>;
  return {shifted - kRound<C>, bits(shifted) - bits(kRound<C>)};
}

// 2^n. Requires that it is a normal number.
template <class C>
ELEMENTWISE_INLINE C power_of_two(bits_t<C> n) {
  return number<C>((n + kBias<C>) << kMantissa<C>);
}

// c[k] + c[k + 1] x + ... by Horner's rule. It is a recursion because GCC 12 does not vectorise code around a loop.
template <size_t k, class C, class Written, size_t n>
ELEMENTWISE_INLINE C horner(C x, const Written (&c)[n]) {
  if constexpr (k + 1 == n)
    return C(c[k]);
  else
    return std::fma(horner<k + 1>(x, c), x, C(c[k]));
}

// c[0] + c[1] x + c[2] x^2 + ... In Horner's rule each step waits for the one before. So if there are more than five
// coefficients, we first combine pairs, c[0] + c[1] x, c[2] + c[3] x and so on (Estrin's scheme), which leaves a
// polynomial in x^2 with half as many coefficients. For few coefficients Horner's rule is better: it has the fewest
// operations, and the processor computes other elements while it waits. Coefficients for float are written as doubles.
template <class C, class Written, size_t n, size_t... I>
ELEMENTWISE_INLINE C polynomial(C x, const Written (&c)[n], std::index_sequence<I...>) {
  if constexpr (n > 5) {
    const C joined[] = {(2 * I + 1 < n ? std::fma(C(c[(2 * I + 1) % n]), x, C(c[2 * I])) : C(c[2 * I]))...};
    return polynomial(x * x, joined, std::make_index_sequence<(sizeof...(I) + 1) / 2>{});
  } else {
    return horner<0>(x, c);
  }
}
template <class C, class Written, size_t n>
ELEMENTWISE_INLINE C polynomial(C x, const Written (&c)[n]) {
  return polynomial(x, c, std::make_index_sequence<(n + 1) / 2>{});
}

// The number high + low; |low| is at most half a unit in the last place of high.
template <class C>
struct Words {
  C high, low;
};

// x * 2^n, rounded once if the result is a normal number; |n| is at most 3/2 of the largest exponent. 2^n itself may
// overflow, so we multiply by 2^(n - h) and then by 2^h, where h is half the largest exponent with the sign of n.
template <class C>
ELEMENTWISE_INLINE C scale(Words<C> x, bits_t<C> n) {
  constexpr bits_t<C> kTop = kSign<C> >> 1; // the bit of an exponent that 2^h has for positive h only
  constexpr bits_t<C> kPositive = (kTop | bits_t<C>{kBias<C> / 2} << kMantissa<C>);
  const bits_t<C> negative = n >> 1 & kTop;
  const C first = number<C>((n << kMantissa<C>)+(negative ^ (kPositive ^ kTop)));
  return std::fma(x.low, first, x.high * first) * number<C>(negative ^ kPositive);
}

// a + b, exactly. Requires |a| >= |b|, or a = 0.
template <class C>
ELEMENTWISE_INLINE Words<C> sum_of_ordered(C a, C b) {
  const C high = a + b;
  return {high, b - (high - a)};
}

// a + b, exactly.
template <class C>
ELEMENTWISE_INLINE Words<C> sum(C a, C b) {
  const C high = a + b;
  const C of_b = high - a;
  return {high, (a - (high - of_b)) + (b - of_b)};
}

// a * b, exactly, unless it underflows.
template <class C>
ELEMENTWISE_INLINE Words<C> product(C a, C b) {
  const C high = a * b;
  return {high, std::fma(a, b, -high)};
}

} // namespace math
} // namespace elementwise::inline ELEMENTWISE_TARGET
