// The list of functions of elementwise/math.h for the tests: number of arguments, allowed error in units in the last
// place (float, double), and the range in which results are neither constant nor trivial.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

// clang-format off
#define EACH_FUNCTION(FUNCTION) \
  /* exponential.h */ \
  FUNCTION(exp,      1, 1,   1.5, -750, 712) \
  FUNCTION(exp2,     1, 1,   1.5, -1080, 1026) \
  FUNCTION(expm1,    1, 1,   1.5, -50, 712) \
  FUNCTION(sigmoid,  1, 1,   1.5, -750, 50) \
  FUNCTION(sinh,     1, 1,   2,   -712, 712) \
  FUNCTION(cosh,     1, 1,   2,   -712, 712) \
  FUNCTION(tanh,     1, 1,   2,   -22, 22) \
  /* logarithm.h */ \
  FUNCTION(log,      1, 1,   1.5, 0, 16) \
  FUNCTION(log2,     1, 1,   1.5, 0, 16) \
  FUNCTION(log10,    1, 1,   1.5, 0, 16) \
  FUNCTION(log1p,    1, 1,   1.5, -1, 16) \
  /* inverse_hyperbolic.h */ \
  FUNCTION(asinh,    1, 1,   2,   -16, 16) \
  FUNCTION(acosh,    1, 1,   2,   1, 16) \
  FUNCTION(atanh,    1, 1,   2,   -1, 1) \
  /* power.h */ \
  FUNCTION(pow,      2, 1,   2,   0, 16) \
  /* trigonometric.h */ \
  FUNCTION(sin,      1, 1,   1.5, -100, 100) \
  FUNCTION(cos,      1, 1,   1.5, -100, 100) \
  FUNCTION(tan,      1, 1,   2,   -100, 100) \
  /* inverse_trigonometric.h */ \
  FUNCTION(asin,     1, 1,   1.5, -1, 1) \
  FUNCTION(acos,     1, 1,   1.5, -1, 1) \
  FUNCTION(atan,     1, 1,   1.5, -16, 16) \
  FUNCTION(atan2,    2, 1,   1.5, -16, 16) \
  /* error.h */ \
  FUNCTION(erf,      1, 1,   1.5, -6, 6) \
  FUNCTION(erfc,     1, 1,   1.5, -6, 28) \
  /* basic.h */ \
  FUNCTION(sqrt,     1, 0.5, 0.5, 0, 16) \
  FUNCTION(rsqrt,    1, 1,   1.5, 0, 16) \
  /* roots.h */ \
  FUNCTION(cbrt,     1, 1,   1.5, -16, 16) \
  FUNCTION(hypot,    2, 1,   1.5, -16, 16) \
  /* basic.h */ \
  FUNCTION(abs,      1, 0,   0,   -16, 16) \
  FUNCTION(min,      2, 0,   0,   -16, 16) \
  FUNCTION(max,      2, 0,   0,   -16, 16) \
  FUNCTION(clamp,    3, 0,   0,   -16, 16) \
  FUNCTION(copysign, 2, 0,   0,   -16, 16) \
  FUNCTION(floor,    1, 0,   0,   -16, 16) \
  FUNCTION(ceil,     1, 0,   0,   -16, 16) \
  FUNCTION(trunc,    1, 0,   0,   -16, 16) \
  FUNCTION(rint,     1, 0,   0,   -16, 16) \
  FUNCTION(fma,      3, 0.5, 0.5, -16, 16)
// clang-format on

namespace functions {

// A function in a loop over n elements of each argument.
template <class T>
using Loop = void (*)(int64_t n, const T* const* x, T* result);

// The loops that compiled.cpp defines, once for each instruction set, in the order of the list.
struct Loops {
  Loop<float> of_float;
  Loop<double> of_double;
  template <class T>
  Loop<T> of() const {
    if constexpr (std::is_same_v<T, float>)
      return of_float;
    else
      return of_double;
  }
};

template <class T>
using bits_t = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <class T>
bits_t<T> bits(T x) {
  bits_t<T> to;
  std::memcpy(&to, &x, sizeof(to));
  return to;
}

template <class T>
T number(bits_t<T> x) {
  T to;
  std::memcpy(&to, &x, sizeof(to));
  return to;
}

} // namespace functions
