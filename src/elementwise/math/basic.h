// The functions that need few operations: abs, min, max, clamp, copysign, rounding to an integer, fma, sqrt and rsqrt,
// with their derivatives. Functors that need no others include this file instead of elementwise/math.h, because a
// library that includes math.h is compiled for long functors.
#pragma once

#include "../dual.h"
#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
// |x|, exactly; integers too. abs of the least integer is that integer.
template <class C>
ELEMENTWISE_INLINE C abs(C x) {
  if constexpr (std::is_floating_point_v<C>)
    return math::magnitude(x);
  else if constexpr (std::is_signed_v<C>)
    return x < 0 ? static_cast<C>(-static_cast<std::make_unsigned_t<C>>(x)) : x;
  else
    return x;
}

// `magnitude` with the sign of `sign`, exactly; NaN included.
template <class C>
ELEMENTWISE_INLINE C copysign(C magnitude, C sign) {
  return math::with_sign(magnitude, sign);
}

// The smaller of a and b, exactly; integers too. -0 is smaller than +0, and the result is NaN if one of them is (IEEE
// 754-2019, minimum).
template <class C>
ELEMENTWISE_INLINE C min(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    // If neither compares less, both masks are set. ORing the bits then merges the signs of zeros and keeps a NaN.
    const math::bits_t<C> first = -math::bits_t<C>{!(a > b)}, second = -math::bits_t<C>{!(a < b)};
    return math::number<C>((math::bits(a) & first) | (math::bits(b) & second));
  } else {
    return b < a ? b : a;
  }
}

// The greater of a and b, exactly; integers too. +0 is greater than -0, and the result is NaN if one of them is (IEEE
// 754-2019, maximum).
template <class C>
ELEMENTWISE_INLINE C max(C a, C b) {
  if constexpr (std::is_floating_point_v<C>)
    return -min(-a, -b);
  else
    return a < b ? b : a;
}

// x, but at least low and at most high, exactly; integers too. It is high if low > high, and NaN if one of the three
// is.
template <class C>
ELEMENTWISE_INLINE C clamp(C x, C low, C high) {
  return min(max(x, low), high);
}

// The integer nearest to x, ties to even, exactly. Without SSE4.1 x86 has no instruction for it.
template <class C>
ELEMENTWISE_INLINE C rint(C x) {
#if defined(__CUDACC__) || defined(__SSE4_1__) || defined(__aarch64__)
  return std::rint(math::real(x));
#else
  using math::kInteger;
  const C of = math::magnitude(x), rounded = of + kInteger<C>; // to an integer
  return math::with_sign(math::choose(of < kInteger<C>, rounded - kInteger<C>, of), x);
#endif
}

// The greatest integer <= x, exactly.
template <class C>
ELEMENTWISE_INLINE C floor(C x) {
  const C to = rint(x);
  return math::with_sign(to - math::choose(to > x, C(1), C(0)), x);
}

// The least integer >= x, exactly.
template <class C>
ELEMENTWISE_INLINE C ceil(C x) {
  const C to = rint(x);
  return math::with_sign(to + math::choose(to < x, C(1), C(0)), x);
}

// x without its fraction, exactly.
template <class C>
ELEMENTWISE_INLINE C trunc(C x) {
  return math::with_sign(floor(math::magnitude(x)), x);
}

// x * y + z. Error: 0.5 (float), 0.5 (double): it is rounded once.
template <class C>
ELEMENTWISE_INLINE C fma(C x, C y, C z) {
  return std::fma(math::real(x), y, z);
}

// The square root; NaN for x < 0. Error: 0.5 (float), 0.5 (double).
template <class C>
ELEMENTWISE_INLINE C sqrt(C x) {
  return std::sqrt(math::real(x));
}

// 1 / sqrt(x); infinite at 0, NaN for x < 0. Error: 0.5 (float), 0.51 (double). It would be rounded twice; a step of
// Newton's method, with a residual in two words, corrects that.
template <class C>
ELEMENTWISE_INLINE C rsqrt(C x) {
  const C y = 1 / std::sqrt(x);
  const math::Words<C> xy = math::product(x, y);
  const C error = std::fma(-xy.low, y, std::fma(-xy.high, y, C(1))); // 1 - x y^2; NaN if x is 0 or infinite
  return math::choose(error == error, std::fma(y / 2, error, y), y);
}

// ---- The same functions of dual numbers, which compute their derivatives. At kinks we take torch's: 0 for abs at 0,
// one half for each of two equal arguments of min and max, 1 for clamp at a bound (as torch did before 2.15), 0 for
// clamp of NaN, and 0 for functions that round to an integer.

namespace math {

// 1 or -1; x itself if it is a zero or a NaN.
template <class C>
ELEMENTWISE_INLINE C sign(C x) {
  const auto of = primal(x);
  using P = decltype(of + 0);
  return C(choose(of > 0, P(1), choose(of < 0, P(-1), of)));
}

} // namespace math

// Defines a function of one dual number. `factor` is its derivative, as an expression in x and the value y =
// function(x).
#define ELEMENTWISE_RULE(function, factor)                   \
  template <class C>                                         \
  ELEMENTWISE_INLINE Dual<C> function(const Dual<C>& dual) { \
    const C x = dual.value, y = function(x);                 \
    (void)x;                                                 \
    return {y, scaled(dual.derivative, factor)};             \
  }
ELEMENTWISE_RULE(abs, math::sign(x))
ELEMENTWISE_RULE(rint, C(0))
ELEMENTWISE_RULE(floor, C(0))
ELEMENTWISE_RULE(ceil, C(0))
ELEMENTWISE_RULE(trunc, C(0))
ELEMENTWISE_RULE(sqrt, 1 / (2 * y))
ELEMENTWISE_RULE(rsqrt, C(-0.5) * (y * y * y))

template <class C>
ELEMENTWISE_INLINE Dual<C> copysign(const Dual<C>& magnitude, const Dual<C>& sign) {
  const C y = copysign(magnitude.value, sign.value);
  return {y, scaled(magnitude.derivative, math::sign(magnitude.value) * copysign(C(1), sign.value))};
}

template <class C>
ELEMENTWISE_INLINE Dual<C> min(const Dual<C>& a, const Dual<C>& b) {
  const C of_equal = math::choose(a == b, C(0.5), C(1));
  const C of_a = math::choose(b < a, C(0), of_equal), of_b = math::choose(a < b, C(0), of_equal);
  return {min(a.value, b.value), scaled(a.derivative, of_a) + scaled(b.derivative, of_b)};
}
template <class C>
ELEMENTWISE_INLINE Dual<C> max(const Dual<C>& a, const Dual<C>& b) {
  return -min(-a, -b);
}
template <class C>
ELEMENTWISE_INLINE Dual<C> clamp(const Dual<C>& x, const Dual<C>& low, const Dual<C>& high) {
  const C y = clamp(x.value, low.value, high.value);
  const bool is_high = x > high || high < low, is_low = x < low && !is_high;
  const C inside = math::choose(y == y, x.derivative, C(0)); // y is NaN if x or a bound is
  return {y, math::choose(is_high, high.derivative, math::choose(is_low, low.derivative, inside))};
}

template <class C>
ELEMENTWISE_INLINE Dual<C> fma(const Dual<C>& x, const Dual<C>& y, const Dual<C>& z) {
  return {fma(x.value, y.value, z.value), scaled(x.derivative, y.value) + scaled(y.derivative, x.value) + z.derivative};
}

// ---- The other functions of elementwise/math.h. The overloads of math.h fit better. If it is not included, or the
// arguments have two types, overload resolution chooses one of these, and the compiler says what to do.

#define ELEMENTWISE_IN_MATH_H(function)                                             \
  template <class First, class... Rest>                                             \
  ELEMENTWISE_INLINE First function(const First& first, const Rest&...) {           \
    static_assert(                                                                  \
        sizeof(First) == 0, "for elementwise::" #function                           \
                            ", #include \"elementwise/math.h\", and pass float or " \
                            "double, all arguments of one type");                   \
    return first;                                                                   \
  }
ELEMENTWISE_EACH_UNARY_OF_MATH_H(ELEMENTWISE_IN_MATH_H)
ELEMENTWISE_IN_MATH_H(hypot)
ELEMENTWISE_IN_MATH_H(atan2)
ELEMENTWISE_IN_MATH_H(pow)
#undef ELEMENTWISE_IN_MATH_H

} // namespace elementwise::inline ELEMENTWISE_TARGET
