// What the functions of math.h are made of: operations that IEEE 754 specifies, the bits of a number, and numbers of
// two words, high + low, whose low word holds what the high one has lost to rounding. Nothing here branches: a
// condition chooses between two values that are there already, so that the compiler can do the elements of a vector at
// once.
//
// The algorithms of two words: T. J. Dekker, A floating-point technique for extending the available precision (1971);
// with fma: M. Joldes, J.-M. Muller, V. Popescu, Tight and rigorous error bounds for basic building blocks of
// double-word arithmetic (2017).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../functor.h"

// Before each function.
#define ELEMENTWISE_MATH ELEMENTWISE_INLINE

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

template <class C>
constexpr int kMantissa = std::numeric_limits<C>::digits - 1; // bits of it that are stored: 23 or 52
template <class C>
constexpr int kBias = std::numeric_limits<C>::max_exponent - 1; // 127 or 1023
template <class C>
constexpr bits_t<C> kSign = bits_t<C>{1} << (8 * sizeof(C) - 1);

template <class C>
constexpr C kInfinity = std::numeric_limits<C>::infinity();
template <class C>
constexpr C kNaN = std::numeric_limits<C>::quiet_NaN();
template <class C>
constexpr C kLeastNormal = std::numeric_limits<C>::min();

template <class C>
ELEMENTWISE_MATH bits_t<C> bits(C x) {
  bits_t<C> to;
  std::memcpy(&to, &x, sizeof(to));
  return to;
}

template <class C>
ELEMENTWISE_MATH C number(bits_t<C> x) {
  C to;
  std::memcpy(&to, &x, sizeof(to));
  return to;
}

// The magnitude of one and the sign of the other.
template <class C>
ELEMENTWISE_MATH C with_sign(C magnitude, C sign) {
  return number<C>((bits(magnitude) & ~kSign<C>) | (bits(sign) & kSign<C>));
}

template <class C>
ELEMENTWISE_MATH C magnitude(C x) {
  return number<C>(bits(x) & ~kSign<C>);
}

// The smaller one of two that are not negative, by their bits, for which there is an instruction; b where a is a NaN.
template <class C>
ELEMENTWISE_MATH C least(C a, C b) {
  return number<C>(bits(a) < bits(b) ? bits(a) : bits(b));
}

// `yes` where the condition holds, else `no`, by their bits. Of `condition ? yes : no` with a constant GCC makes two
// branches, folds the constant into each, and computes both for every vector.
template <class C>
ELEMENTWISE_MATH C choose(bool condition, C yes, C no) {
  if constexpr (std::is_class_v<C>) { // a number of python/reads.h
    return condition ? yes : no;
  } else {
    const bits_t<C> mask = -bits_t<C>{condition};
    return number<C>((bits(yes) & mask) | (bits(no) & ~mask));
  }
}

// Added to a number of less than 2^21 (float) or 2^50 (double), it leaves the nearest integer, ties to even, in the low
// bits; less itself, it is that integer as a number.
template <class C>
constexpr C kRound = kFloat<C> ? C(0x1.8p23) : C(0x1.8p52);

// An integer as a number, and as the bits that it has in kRound + n: n mod 2^22 or 2^51.
template <class C>
struct Nearest {
  C value;
  bits_t<C> integer; // two's complement
};

template <class C>
ELEMENTWISE_MATH Nearest<C> nearest(C x) {
  const C shifted = x + kRound<C>;
  return {shifted - kRound<C>, bits(shifted) - bits(kRound<C>)};
}

// 2^n, where that is a normal number.
template <class C>
ELEMENTWISE_MATH C power_of_two(bits_t<C> n) {
  return number<C>((n + kBias<C>) << kMantissa<C>);
}

// c[k] + c[k + 1] x + ... by Horner's rule, in a recursion: GCC 12 would not vectorise the elements around a loop.
template <size_t k, class C, class Written, size_t n>
ELEMENTWISE_MATH C horner(C x, const Written (&c)[n]) {
  if constexpr (k + 1 == n)
    return C(c[k]);
  else
    return std::fma(horner<k + 1>(x, c), x, C(c[k]));
}

// c[0] + c[1] x + c[2] x^2 + ... By Horner's rule alone each step would wait for the one before: of more than five
// coefficients neighbours are joined, c[0] + c[1] x and so on (Estrin), which leaves a polynomial in x^2 of
// half as many. Few waits are filled by other elements, and Horner's rule has the fewest operations. Coefficients of
// float are written as doubles.
template <class C, class Written, size_t n, size_t... I>
ELEMENTWISE_MATH C polynomial(C x, const Written (&c)[n], std::index_sequence<I...>) {
  if constexpr (n > 5) {
    const C joined[] = {(2 * I + 1 < n ? std::fma(C(c[(2 * I + 1) % n]), x, C(c[2 * I])) : C(c[2 * I]))...};
    return polynomial(x * x, joined, std::make_index_sequence<(sizeof...(I) + 1) / 2>{});
  } else {
    return horner<0>(x, c);
  }
}
template <class C, class Written, size_t n>
ELEMENTWISE_MATH C polynomial(C x, const Written (&c)[n]) {
  return polynomial(x, c, std::make_index_sequence<(n + 1) / 2>{});
}

// high + low; |low| is at most half a unit in the last place of high.
template <class C>
struct Words {
  C high, low;
};

// x * 2^n, rounded once if that is a normal number, |n| at most 3/2 of the largest exponent: x times 2^(n - h), where
// nothing is lost, times 2^h, where h is half the largest exponent with the sign of n.
template <class C>
ELEMENTWISE_MATH C scale(Words<C> x, bits_t<C> n) {
  constexpr bits_t<C> kTop = kSign<C> >> 1; // the bit of an exponent that 2^h has for positive h only
  constexpr bits_t<C> kPositive = (kTop | bits_t<C>{kBias<C> / 2} << kMantissa<C>);
  const bits_t<C> negative = n >> 1 & kTop;
  const C first = number<C>((n << kMantissa<C>)+(negative ^ (kPositive ^ kTop)));
  return std::fma(x.low, first, x.high * first) * number<C>(negative ^ kPositive);
}

// a + b, exactly; |a| >= |b|, or a is 0.
template <class C>
ELEMENTWISE_MATH Words<C> sum_of_ordered(C a, C b) {
  const C high = a + b;
  return {high, b - (high - a)};
}

// a + b, exactly.
template <class C>
ELEMENTWISE_MATH Words<C> sum(C a, C b) {
  const C high = a + b;
  const C of_b = high - a;
  return {high, (a - (high - of_b)) + (b - of_b)};
}

// a * b, exactly, where nothing underflows.
template <class C>
ELEMENTWISE_MATH Words<C> product(C a, C b) {
  const C high = a * b;
  return {high, std::fma(a, b, -high)};
}

} // namespace math
} // namespace elementwise::inline ELEMENTWISE_TARGET
