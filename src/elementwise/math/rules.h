// The functions of math.h for dual numbers: their derivatives. Each line of ELEMENTWISE_RULE has the derivative as an
// expression in the argument x and the value y. basic.h has the rules of its own functions.
#pragma once

#include "basic.h"
#include "error.h"
#include "exponential.h"
#include "inverse_hyperbolic.h"
#include "inverse_trigonometric.h"
#include "logarithm.h"
#include "power.h"
#include "roots.h"
#include "trigonometric.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// 1 - x^2. The derivative of the product would be the difference of 1 - x and 1 + x, which loses a small x.
template <class C>
ELEMENTWISE_INLINE C one_minus_square(const C& x) {
  return (1 - x) * (1 + x);
}
template <class C>
ELEMENTWISE_INLINE Dual<C> one_minus_square(const Dual<C>& x) {
  return {one_minus_square(x.value), scaled(x.derivative, -2 * x.value)};
}

} // namespace math

ELEMENTWISE_RULE(cbrt, 1 / (3 * (y * y)))
ELEMENTWISE_RULE(exp, y)
ELEMENTWISE_RULE(exp2, y* C(0.693147180559945309417))
ELEMENTWISE_RULE(expm1, exp(x))
ELEMENTWISE_RULE(log, 1 / x)
ELEMENTWISE_RULE(log2, C(1.44269504088896340736) / x)
ELEMENTWISE_RULE(log10, C(0.434294481903251827651) / x)
ELEMENTWISE_RULE(log1p, 1 / (1 + x))
ELEMENTWISE_RULE(sin, cos(x))
ELEMENTWISE_RULE(cos, -sin(x))
ELEMENTWISE_RULE(tan, 1 + y * y)
ELEMENTWISE_RULE(asin, rsqrt(math::one_minus_square(x)))
ELEMENTWISE_RULE(acos, -rsqrt(math::one_minus_square(x)))
ELEMENTWISE_RULE(atan, 1 / (1 + x * x))
ELEMENTWISE_RULE(sinh, cosh(x))
ELEMENTWISE_RULE(cosh, sinh(x))
ELEMENTWISE_RULE(tanh, math::one_minus_square(y))
ELEMENTWISE_RULE(asinh, 1 / hypot(C(1), x))
ELEMENTWISE_RULE(acosh, rsqrt((x - 1) * (x + 1)))
ELEMENTWISE_RULE(atanh, 1 / math::one_minus_square(x))
ELEMENTWISE_RULE(erf, C(1.12837916709551257390) * exp(-(x * x)))
ELEMENTWISE_RULE(erfc, C(-1.12837916709551257390) * exp(-(x * x)))
ELEMENTWISE_RULE(sigmoid, y * (1 - y))
#undef ELEMENTWISE_RULE

template <class C>
ELEMENTWISE_INLINE Dual<C> hypot(const Dual<C>& x, const Dual<C>& y) {
  const C h = hypot(x.value, y.value);
  return {h, scaled(x.derivative, x.value / h) + scaled(y.derivative, y.value / h)};
}

// At (0, 0) both derivatives are 0, as torch's.
template <class C>
ELEMENTWISE_INLINE Dual<C> atan2(const Dual<C>& y, const Dual<C>& x) {
  const C square = x.value * x.value + y.value * y.value;
  const C factor = math::choose(square == 0, C(0), 1 / square);
  return {atan2(y.value, x.value), scaled(y.derivative, x.value * factor) - scaled(x.derivative, y.value * factor)};
}

// The derivative of x^0 by x is 0, and so is that of 0^y by y for y >= 0, as torch's.
template <class C>
ELEMENTWISE_INLINE Dual<C> pow(const Dual<C>& x, const Dual<C>& y) {
  const C power = pow(x.value, y.value);
  const C by_x = math::choose(y.value == 0, C(0), y.value * pow(x.value, y.value - 1));
  const C by_y = math::choose(x.value == 0 && y.value >= 0, C(0), power * log(x.value));
  return {power, scaled(x.derivative, by_x) + scaled(y.derivative, by_y)};
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
