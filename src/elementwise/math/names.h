// The names of the functions of math.h that take one number. ELEMENTWISE_EACH_UNARY(f) calls the macro f with each.
#pragma once

// clang-format off
#define ELEMENTWISE_EACH_UNARY_OF_MATH_H(f) \
  f(cbrt) f(exp) f(exp2) f(expm1) f(log) f(log2) f(log10) f(log1p) f(sin) f(cos) f(tan) f(asin) f(acos) f(atan) \
  f(sinh) f(cosh) f(tanh) f(asinh) f(acosh) f(atanh) f(erf) f(erfc) f(sigmoid)
#define ELEMENTWISE_EACH_UNARY(f) \
  f(abs) f(rint) f(floor) f(ceil) f(trunc) f(sqrt) f(rsqrt) ELEMENTWISE_EACH_UNARY_OF_MATH_H(f)
// clang-format on
