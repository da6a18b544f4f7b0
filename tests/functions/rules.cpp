// Tests the derivatives of functions of dual numbers: compares them, up to the second order, with differences of
// values, and checks the kinks in the table of docs/ship/derivatives.md.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "elementwise/math.h"

namespace {

using elementwise::Dual;
using First = Dual<double>;
using Second = Dual<First>;

constexpr double kStep = 1e-6;
constexpr double kInfinity = INFINITY;

void expect(const char* what, double x, double y, double got, double want, double tolerance) {
  const bool same = got == want || (std::isnan(got) && std::isnan(want));
  if (same || std::fabs(got - want) <= tolerance * (1 + std::fabs(want))) return;
  std::fprintf(stderr, "%s at (%g, %g) is %g, and not %g\n", what, x, y, got, want);
  std::exit(1);
}

template <class F>
void check(const char* name, const F& f, double low, double high) {
  for (int i = 0; i < 1000; i++) {
    const double x = low + (high - low) * (i + 0.5) / 1000, h = kStep * (1 + std::fabs(x));
    const double first = (f(x + h) - f(x - h)) / (2 * h);
    const double second = (f(First{x + h, 1.0}).derivative - f(First{x - h, 1.0}).derivative) / (2 * h);
    const auto dual = f(Second{{x, 1.0}, {1.0, 0.0}});
    expect(name, x, 0, dual.value.value, f(x), 0);
    expect(name, x, 0, dual.value.derivative, first, 1e-6);
    expect(name, x, 0, dual.derivative.derivative, second, 1e-6);
  }
}

// Differentiates with respect to x, to y, and to both.
template <class F>
void check(const char* name, const F& f, double low, double high, double of_y_low, double of_y_high) {
  for (int i = 0; i < 60; i++) {
    for (int j = 0; j < 60; j++) {
      const double x = low + (high - low) * (i + 0.5) / 60.3;
      const double y = of_y_low + (of_y_high - of_y_low) * (j + 0.5) / 60.7;
      const auto by_x = [&](double y) { return f(First{x, 1.0}, First{y, 0.0}).derivative; };
      const auto dual = f(Second{{x, 1.0}, {0.0, 0.0}}, Second{{y, 0.0}, {1.0, 0.0}});
      expect(name, x, y, dual.value.derivative, (f(x + kStep, y) - f(x - kStep, y)) / (2 * kStep), 1e-6);
      expect(name, x, y, dual.derivative.value, (f(x, y + kStep) - f(x, y - kStep)) / (2 * kStep), 1e-6);
      expect(name, x, y, dual.derivative.derivative, (by_x(y + kStep) - by_x(y - kStep)) / (2 * kStep), 1e-6);
    }
  }
}

template <class F>
void at(const char* name, const F& f, double x, double want) {
  expect(name, x, 0, f(First{x, 1.0}).derivative, want, 0);
}
template <class F>
void at(const char* name, const F& f, double x, double y, double by_x, double by_y) {
  expect(name, x, y, f(First{x, 1.0}, First{y, 0.0}).derivative, by_x, 0);
  expect(name, x, y, f(First{x, 0.0}, First{y, 1.0}).derivative, by_y, 0);
}

} // namespace

#define FUNCTION(name) #name, [](auto... x) { return elementwise::name(x...); }

int main() {
  check(FUNCTION(abs), -3, 3);
  check(FUNCTION(sqrt), 0.1, 5);
  check(FUNCTION(rsqrt), 0.1, 5);
  check(FUNCTION(cbrt), 0.1, 5);
  check(FUNCTION(exp), -3, 3);
  check(FUNCTION(exp2), -3, 3);
  check(FUNCTION(expm1), -3, 3);
  check(FUNCTION(log), 0.1, 5);
  check(FUNCTION(log2), 0.1, 5);
  check(FUNCTION(log10), 0.1, 5);
  check(FUNCTION(log1p), -0.9, 5);
  check(FUNCTION(sin), -5, 5);
  check(FUNCTION(cos), -5, 5);
  check(FUNCTION(tan), -1.4, 1.4);
  check(FUNCTION(asin), -0.95, 0.95);
  check(FUNCTION(acos), -0.95, 0.95);
  check(FUNCTION(atan), -5, 5);
  check(FUNCTION(sinh), -3, 3);
  check(FUNCTION(cosh), -3, 3);
  check(FUNCTION(tanh), -3, 3);
  check(FUNCTION(asinh), -5, 5);
  check(FUNCTION(acosh), 1.05, 5);
  check(FUNCTION(atanh), -0.95, 0.95);
  check(FUNCTION(erf), -3, 3);
  check(FUNCTION(erfc), -3, 3);
  check(FUNCTION(sigmoid), -5, 5);
  check(FUNCTION(pow), 0.1, 3, -2, 2);
  check(FUNCTION(hypot), -3, 3, -3, 3);
  check(FUNCTION(atan2), -3, 3, -3, 3);
  check(FUNCTION(min), -3, 3, -3, 3);
  check(FUNCTION(max), -3, 3, -3, 3);
  check(FUNCTION(copysign), -3, 3, -3, 3);
  check("fma", [](auto x, auto y) { return elementwise::fma(x, y, x * y); }, -3, 3, -3, 3);
  check("the operators", [](auto x, auto y) { return 2 - x / (1 + y * y) + (x - 3) * y * 0.5; }, -3, 3, -3, 3);

  // Functions of std:: for a dual number, and its conversion to an integer.
  check("clamped", [](auto x) { return elementwise::max(x, std::numeric_limits<decltype(x)>::lowest()); }, -3, 3);
  check("by a condition", [](auto x) { return std::isfinite(x) && std::signbit(x) ? x * x : x; }, -3, 3);
  check("by a table", [](auto x) { return x * static_cast<int64_t>(x < 0 ? -x : x); }, 1.25, 1.75);

  at(FUNCTION(abs), 0, 0);
  for (const double x : {-0.5, 0.0, 0.5, 2.0}) {
    at(FUNCTION(floor), x, 0);
    at(FUNCTION(ceil), x, 0);
    at(FUNCTION(trunc), x, 0);
    at(FUNCTION(rint), x, 0);
  }
  at(FUNCTION(min), 1, 1, 0.5, 0.5);
  at(FUNCTION(max), 1, 1, 0.5, 0.5);
  for (const auto& [x, derivative] : {std::pair{-1.0, 1}, {1.0, 1}, {std::nan(""), 0}})
    at("clamp", [](auto x) { return elementwise::clamp(x, decltype(x)(-1), decltype(x)(1)); }, x, derivative);
  at("clamp of a least NaN", [](auto x, auto y) { return elementwise::clamp(x, y, decltype(x)(1)); }, 0, NAN, 0, 0);
  at("clamp of a most NaN", [](auto x, auto y) { return elementwise::clamp(x, decltype(x)(-1), y); }, 0, NAN, 0, 0);
  at(FUNCTION(sqrt), 0, kInfinity);
  at(FUNCTION(log), 0, kInfinity);
  at(FUNCTION(rsqrt), 0, -kInfinity);
  at(FUNCTION(pow), 0, 0, 0, 0);
  at(FUNCTION(pow), 0, 2, 0, 0);
  at(FUNCTION(atan2), 0, 0, 0, 0);
  at(FUNCTION(copysign), 0, 1, 0, 0);
  for (const double x : {-kInfinity, -1e300, -800.0, 800.0, 1e300, kInfinity}) {
    at(FUNCTION(sigmoid), x, 0);
    at(FUNCTION(tanh), x, 0);
  }
  at("silu", [](auto x) { return x * elementwise::sigmoid(x); }, -800, 0);
  // A derivative of 0 stays 0 beside an infinite factor, and beside an infinite derivative of the factor.
  at("a product", [](auto x, auto y) { return x * y; }, kInfinity, 0, 0, kInfinity);
  at(
      "an estimator", [](auto x) { return elementwise::detach(elementwise::rint(x)) + (x - elementwise::detach(x)); },
      2.25, 1);
  at("a weight", [](auto x, auto y) { return elementwise::detach(x * y) * x; }, 3, 2, 6, 0);
  const auto second = [](const char* name, const auto& f, double x, double y, double want) {
    const auto dual = f(Second{{x, 1.0}, {1.0, 0.0}}, Second{{y, 0.0}, {0.0, 0.0}});
    expect(name, x, y, dual.derivative.derivative, want, 1e-12);
  };
  // Near 0 these are odd functions of x, in which 1 - x and 1 + x must not cancel.
  for (const double x : {-1e-3, -1e-20, 1e-20, 1e-9}) {
    const auto relative = [x](const char* name, const auto& f, double factor) {
      expect(name, x, 0, f(Second{{x, 1.0}, {1.0, 0.0}}).derivative.derivative / (factor * x), 1, 1e-5);
    };
    relative(FUNCTION(tanh), -2);
    relative(FUNCTION(asin), 1);
    relative(FUNCTION(acos), -1);
    relative(FUNCTION(atanh), 2);
  }
  second("a cube", [](auto x, auto y) { return elementwise::pow(x, y); }, -2, 3, -12);
  second("a detached factor", [](auto x, auto y) { return elementwise::detach(x) * x + x * x * y; }, 3, 2, 4);
  second("a quotient", [](auto x, auto y) { return x * x / y; }, 1, 1e-160, 2e160);
  second("a guarded quotient", [](auto x, auto y) { return y > 0 ? x * x / y : x; }, 1, 1e-160, 2e160);
  second("a root", [](auto x, auto y) { return x * x * elementwise::rsqrt(y); }, 1, 1e-220, 2e110);
}
