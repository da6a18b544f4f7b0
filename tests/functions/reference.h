// Reference values: the C library's functions in a wider type, whose error is far below the measured one; and the error
// of a result in units in the last place. A few references are too close to the middle between two numbers to tell
// which is nearer: these are computed again with 113 bits.
#pragma once

#include <math.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

#include "functions.h"

namespace functions {

#if LDBL_MANT_DIG == 113
using Quad = long double;
#define REFERENCE_QUAD(...) // long double has an overload already
#else
__extension__ typedef __float128 Quad;
#define REFERENCE_QUAD(W, alias, function, parameters, arguments)                     \
  extern "C" W function parameters(W) noexcept; /* glibc declares it for GCC alone */ \
  inline W alias parameters(W) {                                                      \
    return function arguments;                                                        \
  }
#endif

template <class T>
using wider_t = std::conditional_t<std::is_same_v<T, float>, double, long double>;

namespace reference {

#define REFERENCE_OVERLOAD(W, alias, function, parameters, arguments) \
  inline W alias parameters(W) {                                      \
    return ::function arguments;                                      \
  }
#define REFERENCE_ALIAS(alias, name, parameters, arguments)              \
  REFERENCE_OVERLOAD(double, alias, name, parameters, arguments)         \
  REFERENCE_OVERLOAD(long double, alias, name##l, parameters, arguments) \
  REFERENCE_QUAD(Quad, alias, name##f128, parameters, arguments)
#define REFERENCE_ONE(W) (W x)
#define REFERENCE_TWO(W) (W x, W y)
#define REFERENCE_THREE(W) (W x, W y, W z)
#define REFERENCE_1(alias, name) REFERENCE_ALIAS(alias, name, REFERENCE_ONE, (x))
#define REFERENCE_2(alias, name) REFERENCE_ALIAS(alias, name, REFERENCE_TWO, (x, y))
#define REFERENCE_3(alias, name) REFERENCE_ALIAS(alias, name, REFERENCE_THREE, (x, y, z))

REFERENCE_1(exp, exp)
REFERENCE_1(exp2, exp2)
REFERENCE_1(expm1, expm1)
REFERENCE_1(sinh, sinh)
REFERENCE_1(cosh, cosh)
REFERENCE_1(tanh, tanh)
REFERENCE_1(log, log)
REFERENCE_1(log2, log2)
REFERENCE_1(log10, log10)
REFERENCE_1(log1p, log1p)
REFERENCE_1(asinh, asinh)
REFERENCE_1(acosh, acosh)
REFERENCE_1(atanh, atanh)
REFERENCE_2(pow, pow)
REFERENCE_1(sin, sin)
REFERENCE_1(cos, cos)
REFERENCE_1(tan, tan)
REFERENCE_1(asin, asin)
REFERENCE_1(acos, acos)
REFERENCE_1(atan, atan)
REFERENCE_2(atan2, atan2)
REFERENCE_1(erf, erf)
REFERENCE_1(erfc, erfc)
REFERENCE_1(sqrt, sqrt)
REFERENCE_1(cbrt, cbrt)
REFERENCE_2(hypot, hypot)
REFERENCE_1(abs, fabs)
REFERENCE_2(copysign, copysign)
REFERENCE_1(floor, floor)
REFERENCE_1(ceil, ceil)
REFERENCE_1(trunc, trunc)
REFERENCE_1(rint, rint)
REFERENCE_3(fma, fma)

template <class W>
W sigmoid(W x) {
  return 1 / (1 + exp(-x));
}
template <class W>
W rsqrt(W x) {
  return 1 / sqrt(x);
}
// IEEE 754-2019, minimum and maximum: NaN if an argument is, and -0 is less than +0.
template <class W>
W min(W x, W y) {
  if (x != x || y != y) return x + y;
  return x < y || (x == y && copysign(W(1), x) < 0) ? x : y;
}
template <class W>
W max(W x, W y) {
  return -min(-x, -y);
}
template <class W>
W clamp(W x, W least, W most) {
  return min(max(x, least), most);
}

} // namespace reference

// One function for the type T: the bound of its error, the range of its arguments, and the wider functions that we
// compare it with.
template <class T>
struct Function {
  const char* name;
  int arguments;
  double bound; // the largest error allowed
  double from, to;
  void (*wider)(int64_t n, const T* const* x, wider_t<T>* exact);
  Quad (*quad)(const T* x);
};

template <class T>
inline const Function<T> kFunctions[] = {
#define REFERENCE_CALL_1(name, W) reference::name(W(x0))
#define REFERENCE_CALL_2(name, W) reference::name(W(x0), W(x1))
#define REFERENCE_CALL_3(name, W) reference::name(W(x0), W(x1), W(x2))
#define FUNCTION(name, arguments, of_float, of_double, from, to)          \
  {#name,                                                                 \
   arguments,                                                             \
   std::is_same_v<T, float> ? of_float : of_double,                       \
   from,                                                                  \
   to,                                                                    \
   [](int64_t n, const T* const* x, wider_t<T>* exact) {                  \
     for (int64_t i = 0; i < n; i++) {                                    \
       [[maybe_unused]] const T x0 = x[0][i], x1 = x[1][i], x2 = x[2][i]; \
       exact[i] = REFERENCE_CALL_##arguments(name, wider_t<T>);           \
     }                                                                    \
   },                                                                     \
   [](const T* x) {                                                       \
     [[maybe_unused]] const T x0 = x[0], x1 = x[1], x2 = x[2];            \
     return Quad(REFERENCE_CALL_##arguments(name, Quad));                 \
   }},
    EACH_FUNCTION(FUNCTION)
#undef FUNCTION
};

constexpr int kCount = 0
#define FUNCTION(...) +1
    EACH_FUNCTION(FUNCTION)
#undef FUNCTION
    ;

// Whether two numbers have the same bits, or both are NaN.
template <class T>
bool same(T a, T b) {
  return (bits(a) == bits(b)) | ((a != a) & (b != b)); // without a branch
}

// Whether the nearest number of T cannot be told, because the reference has a relative error of about `uncertain`.
constexpr double kUncertain(float) {
  return 0x1p-50;
}
constexpr double kUncertain(double) {
  return 0x1p-60;
}
constexpr double kUncertainQuad = 0x1p-109;

template <class T, class W>
bool is_undecided(W exact, double uncertain) {
  return T(exact + exact * W(uncertain)) != T(exact - exact * W(uncertain)) && exact - exact == 0;
}

// 2^n, for any type: ldexp of the widest is slow.
inline double power_of_two(int n, double) {
  return number<double>(static_cast<uint64_t>(n + 1023) << 52);
}
template <class W>
W power_of_two(int n, W) {
  const int half = n / 2;
  return W(power_of_two(half, 0.0)) * power_of_two(n - half, 0.0);
}

// The inverse of the unit in the last place near x, for numbers with these limits: 2^(p - 1 - e) where
// 2^e <= |x| < 2^(e + 1), limited to the exponents of normal numbers.
template <class Limits>
double one_over_unit(double x) { // no branch and no call, because it runs for all floats
  const double least = power_of_two(Limits::min_exponent - 1, x), most = power_of_two(Limits::max_exponent - 1, x);
  double power = number<double>(bits(x) & uint64_t{0x7ff} << 52);
  power = power < least ? least : power;
  power = power > most ? most : power;
  return number<double>((uint64_t{2046} << 52) - bits(power)) * power_of_two(Limits::digits - 1, x);
}
template <class Limits, class W>
W one_over_unit(W x) {
  const W magnitude = x < 0 ? -x : x;
  const double near = static_cast<double>(magnitude); // it may be the power of two above
  int e = static_cast<int>(bits(near) >> 52) - 1023;
  e = e < Limits::min_exponent - 1 ? Limits::min_exponent - 1
      : e >= Limits::max_exponent  ? Limits::max_exponent - 1
                                   : e;
  if (e >= Limits::min_exponent && magnitude < power_of_two(e, x)) e--;
  return power_of_two(Limits::digits - 1 - e, x);
}

// The error of a result in units in the last place of the exact value; for a subnormal value the unit is the least
// number. Infinity counts as the power of two after the largest number, on both sides. If NaN is right, NaN has no
// error.
template <class T, class W>
double error_in_ulps(T result, W exact) {
  using Limits = std::numeric_limits<T>;
  const W most = power_of_two(Limits::max_exponent, exact);
  W got = result;
  got = got > most ? most : got;
  got = got < -most ? -most : got;
  exact = exact > most ? most : exact;
  exact = exact < -most ? -most : exact;
  W error = got - exact;
  error = error < 0 ? -error : error;
  const double ulps = static_cast<double>(error * one_over_unit<Limits>(exact));
  return ulps == ulps ? ulps : (result == result) == (exact == exact) ? 0 : INFINITY;
}

} // namespace functions
