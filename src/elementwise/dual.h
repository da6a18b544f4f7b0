// Dual numbers, {value, derivative}. A functor that is called with dual numbers returns its value and its derivative.
//
// A dual number is value + derivative * e, where e * e = 0. So a product follows the product rule:
//
//   (a + a' e) (b + b' e) = a b + (a' b + b' a) e
//
// Example: f(x) = x * x + x at 3. Its argument is {3, 1}, because the derivative of x by x is 1.
//
//   x * x      = {3 * 3, 1 * 3 + 1 * 3} = {9, 6}
//   x * x + x  = {9 + 3, 6 + 1}         = {12, 7}     f(3) = 12, f'(3) = 7
//
// The value may be a dual number itself: with Dual<Dual<float>>, result.derivative.derivative is the second derivative.
// Arguments that are not differentiated get the derivative 0.
#pragma once

#include "math/names.h"
#include "math/words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
template <class C>
struct Dual;

namespace math {

template <class C>
ELEMENTWISE_INLINE Dual<C> choose(bool condition, const Dual<C>& yes, const Dual<C>& no) {
  return {choose(condition, yes.value, no.value), choose(condition, yes.derivative, no.derivative)};
}

} // namespace math

// derivative * factor, but 0 if the derivative is 0, even if the factor is infinite: a number that does not depend on x
// has the derivative 0. If the compiler knows that it is 0, it computes nothing.
template <class C>
ELEMENTWISE_INLINE C scaled(C derivative, C factor) {
  return math::choose(derivative == 0, C(0), derivative * factor);
}
// a * b, but 0 if one of them is 0, even if the other is infinite or NaN.
template <class C>
ELEMENTWISE_INLINE C product_or_zero(C a, C b) {
  return math::choose(a == 0 || b == 0, C(0), a * b);
}
template <class C>
ELEMENTWISE_INLINE Dual<C> product_or_zero(const Dual<C>& a, const Dual<C>& b) {
  return {
      product_or_zero(a.value, b.value),
      product_or_zero(a.derivative, b.value) + product_or_zero(a.value, b.derivative)};
}
template <class C>
ELEMENTWISE_INLINE Dual<C> scaled(const Dual<C>& derivative, const Dual<C>& factor) {
  return {
      scaled(derivative.value, factor.value),
      scaled(derivative.derivative, factor.value) + product_or_zero(derivative.value, factor.derivative)};
}

template <class C>
struct Dual {
  C value, derivative;

  Dual() = default;
  ELEMENTWISE_INLINE constexpr Dual(C value, C derivative) : value(value), derivative(derivative) {}
  template <class N, std::enable_if_t<std::is_arithmetic_v<N>, int> = 0>
  ELEMENTWISE_INLINE constexpr Dual(N constant) : value(static_cast<C>(constant)), derivative(0) {}
  template <auto... values>
  ELEMENTWISE_INLINE constexpr Dual(OneOf<values...> constant) : Dual(constant.value) {}

  // The conversion to an integer drops the derivative.
  template <class N, std::enable_if_t<std::is_integral_v<N>, int> = 0>
  ELEMENTWISE_INLINE explicit operator N() const {
    return static_cast<N>(value);
  }

  ELEMENTWISE_INLINE friend Dual operator+(const Dual& a) {
    return a;
  }
  ELEMENTWISE_INLINE friend Dual operator-(const Dual& a) {
    return {-a.value, -a.derivative};
  }
  ELEMENTWISE_INLINE friend Dual operator+(const Dual& a, const Dual& b) {
    return {a.value + b.value, a.derivative + b.derivative};
  }
  ELEMENTWISE_INLINE friend Dual operator-(const Dual& a, const Dual& b) {
    return {a.value - b.value, a.derivative - b.derivative};
  }
  ELEMENTWISE_INLINE friend Dual operator*(const Dual& a, const Dual& b) {
    return {a.value * b.value, scaled(a.derivative, b.value) + scaled(b.derivative, a.value)};
  }
  ELEMENTWISE_INLINE friend Dual operator/(const Dual& a, const Dual& b) {
    const C quotient = a.value / b.value;
    return {quotient, scaled(a.derivative, 1 / b.value) - scaled(b.derivative, quotient / b.value)};
  }

#define ELEMENTWISE_ASSIGNS(sign)                              \
  ELEMENTWISE_INLINE Dual& operator sign## = (const Dual& b) { \
    return *this = *this sign b;                               \
  }
  ELEMENTWISE_ASSIGNS(+)
  ELEMENTWISE_ASSIGNS(-)
  ELEMENTWISE_ASSIGNS(*)
  ELEMENTWISE_ASSIGNS(/)
#undef ELEMENTWISE_ASSIGNS

#define ELEMENTWISE_COMPARES(sign)                                             \
  ELEMENTWISE_INLINE friend bool operator sign(const Dual& a, const Dual& b) { \
    return a.value sign b.value;                                               \
  }
  ELEMENTWISE_COMPARES(==)
  ELEMENTWISE_COMPARES(<)
  ELEMENTWISE_COMPARES(<=)
  ELEMENTWISE_COMPARES(>)
  ELEMENTWISE_COMPARES(>=)
#undef ELEMENTWISE_COMPARES
};

// A row of dual numbers. Its values and its derivatives are rows of their own.
template <class C>
struct DualRow {
  C *values, *derivatives;
  ELEMENTWISE_INLINE DualRow operator+(int64_t j) const {
    return {values + j, derivatives + j};
  }
};
template <class T>
ELEMENTWISE_INLINE void set(T* to, const T& x) {
  *to = x;
}
template <class C>
ELEMENTWISE_INLINE void set(const DualRow<C>& to, const Dual<C>& x) {
  *to.values = x.value;
  *to.derivatives = x.derivative;
}

namespace math {

// The innermost value of nested dual numbers, a float or double, and its type.
template <class C>
struct PrimalOf {
  using type = C;
};
template <class C>
struct PrimalOf<Dual<C>> : PrimalOf<C> {};
template <class C>
using primal_t = typename PrimalOf<C>::type;

template <class C>
ELEMENTWISE_INLINE C primal(C x) {
  return x;
}
template <class C>
ELEMENTWISE_INLINE auto primal(const Dual<C>& x) {
  return primal(x.value);
}

} // namespace math

// x without its derivative, in every order, as torch's x.detach().
template <class C>
ELEMENTWISE_INLINE C detach(C x) {
  return x;
}
template <class C>
ELEMENTWISE_INLINE Dual<C> detach(const Dual<C>& x) {
  return {detach(x.value), C(0)};
}
} // namespace elementwise::inline ELEMENTWISE_TARGET

// A function that the compiler finds where an author should have called another one, and its error message.
#define ELEMENTWISE_REFUSED(function, X, condition, sentence) \
  template <class C, class... Rest>                           \
    requires(condition)                                       \
  X function(const X& x, const Rest&...) {                    \
    static_assert(sizeof(C) == 0, sentence);                  \
    return x;                                                 \
  }

// std::numeric_limits and functions such as std::isnan look at the value of a dual number. std::exp and similar
// functions do not compile: the error says what to call instead.
namespace std {
#define ELEMENTWISE_LIMIT(name)                                    \
  static constexpr elementwise::Dual<C> name() {                   \
    return numeric_limits<elementwise::math::primal_t<C>>::name(); \
  }
template <class C>
struct numeric_limits<elementwise::Dual<C>> : numeric_limits<elementwise::math::primal_t<C>> {
  ELEMENTWISE_LIMIT(min)
  ELEMENTWISE_LIMIT(max)
  ELEMENTWISE_LIMIT(lowest)
  ELEMENTWISE_LIMIT(epsilon)
  ELEMENTWISE_LIMIT(infinity)
  ELEMENTWISE_LIMIT(quiet_NaN)
  ELEMENTWISE_LIMIT(denorm_min)
};
#undef ELEMENTWISE_LIMIT

#define ELEMENTWISE_OF_VALUE(function)                              \
  template <class C>                                                \
  ELEMENTWISE_INLINE bool function(const elementwise::Dual<C>& x) { \
    return function(elementwise::math::primal(x));                  \
  }
ELEMENTWISE_OF_VALUE(isnan)
ELEMENTWISE_OF_VALUE(isinf)
ELEMENTWISE_OF_VALUE(isfinite)
ELEMENTWISE_OF_VALUE(signbit)
#undef ELEMENTWISE_OF_VALUE

#define ELEMENTWISE_NO_DERIVATIVE(function, instead)                       \
  ELEMENTWISE_REFUSED(                                                     \
      function, elementwise::Dual<C>, true,                                \
      "std::" #function " has no derivative: write elementwise::" #instead \
      ", of elementwise/math.h, or leave `differentiable` out of the entry")
#define ELEMENTWISE_NO_DERIVATIVE_UNDER_ITS_NAME(function) ELEMENTWISE_NO_DERIVATIVE(function, function)
ELEMENTWISE_EACH_UNARY(ELEMENTWISE_NO_DERIVATIVE_UNDER_ITS_NAME)
#undef ELEMENTWISE_NO_DERIVATIVE_UNDER_ITS_NAME
ELEMENTWISE_NO_DERIVATIVE(copysign, copysign)
ELEMENTWISE_NO_DERIVATIVE(fma, fma)
ELEMENTWISE_NO_DERIVATIVE(hypot, hypot)
ELEMENTWISE_NO_DERIVATIVE(atan2, atan2)
ELEMENTWISE_NO_DERIVATIVE(pow, pow)
ELEMENTWISE_NO_DERIVATIVE(fabs, abs)
ELEMENTWISE_NO_DERIVATIVE(fmin, min)
ELEMENTWISE_NO_DERIVATIVE(fmax, max)
#undef ELEMENTWISE_NO_DERIVATIVE
} // namespace std

// C declares these functions outside of every namespace: for double, and abs for int. A functor that forgets
// elementwise:: would call them for a float, and abs would round it towards zero, and cut an integer to 32 bits.
#define ELEMENTWISE_OUTSIDE(function) ELEMENTWISE_OUTSIDE_FOR(function, std::is_floating_point_v<C>)
#define ELEMENTWISE_OUTSIDE_FOR(function, condition) \
  ELEMENTWISE_REFUSED(function, C, condition, "write elementwise::" #function ", of elementwise/math.h, here")
ELEMENTWISE_EACH_UNARY(ELEMENTWISE_OUTSIDE)
ELEMENTWISE_OUTSIDE(hypot)
ELEMENTWISE_OUTSIDE(atan2)
ELEMENTWISE_OUTSIDE(pow)
ELEMENTWISE_OUTSIDE_FOR(abs, (std::is_same_v<C, int64_t> || std::is_same_v<C, uint64_t>))
#undef ELEMENTWISE_OUTSIDE
#undef ELEMENTWISE_OUTSIDE_FOR
#undef ELEMENTWISE_REFUSED
