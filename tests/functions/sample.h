// The arguments of the tests: random ones from a seed, the same on every machine and for any number of threads, and
// special ones.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "functions.h"
#include "reference.h"

namespace functions {

struct Random { // splitmix64
  uint64_t state;
  uint64_t bits() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double uniform(double from, double to) {
    return from + (to - from) * (static_cast<double>(bits() >> 11) * 0x1p-53);
  }
};

// A random number with any significand and sign, and an exponent between `from` and `to`.
template <class T>
T random_of_exponents(Random& random, int from, int to) {
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1, kBits = 8 * sizeof(T);
  const uint64_t z = random.bits();
  const bits_t<T> exponent =
      from + static_cast<int>((random.bits() >> 32) % (to - from + 1)) + (std::numeric_limits<T>::max_exponent - 1);
  return number<T>(
      static_cast<bits_t<T>>(z >> 63) << (kBits - 1) | exponent << kMantissa |
      (static_cast<bits_t<T>>(z) & ((bits_t<T>{1} << kMantissa) - 1)));
}

// A random number of one of four kinds in turn: any bits; in the function's range; close to zero or large; close to a
// point where functions have a zero, a pole or an end: 1, -1 and the multiples of pi / 2.
template <class T>
T random_argument(Random& random, const Function<T>& function, int kind) {
  switch (kind) {
    case 0:
      return number<T>(static_cast<bits_t<T>>(random.bits() >> 7));
    case 1:
      return static_cast<T>(random.uniform(function.from, function.to));
    case 2:
      return random_of_exponents<T>(random, -40, 12);
    default: {
      const uint64_t z = random.bits();
      if (z & 1) return (z & 2 ? T(1) : T(-1)) + random_of_exponents<T>(random, 1 - std::numeric_limits<T>::digits, -1);
      const double turns = std::floor(random.uniform(0, static_cast<double>(uint64_t{1} << (z >> 8) % 50)));
      const T near = static_cast<T>(turns * 1.5707963267948966); // close enough for the largest cancellation
      return number<T>(bits(near) + static_cast<bits_t<T>>((z >> 32) % 9) - (near > 4 ? 4 : 0));
    }
  }
}

// The arguments of call number `i` of a sample. With two arguments, a third of the calls has independent ones, a third
// has similar exponents, and for pow a third has results that are neither zero nor infinite.
template <class T>
void random_arguments(uint64_t seed, uint64_t i, const Function<T>& function, T* x) {
  Random random{seed * 0x9e3779b97f4a7c15 + i * 0xd1342543de82ef95};
  random.bits();
  const int kind = static_cast<int>(i % 4);
  x[0] = random_argument(random, function, kind);
  x[1] = x[2] = 0;
  if (function.arguments == 1) return;
  x[1] = random_argument(random, function, i / 4 % 4);
  x[2] = random_argument(random, function, i / 16 % 4);
  if (i / 4 % 3 == 1 && std::isfinite(x[0])) {
    x[1] = static_cast<T>(std::ldexp(random_of_exponents<T>(random, -20, 20), std::ilogb(x[0])));
    if (function.arguments == 3) x[2] = static_cast<T>(x[0] * x[1] * random_of_exponents<T>(random, -2, 2));
  } else if (i / 4 % 3 == 2 && function.name[0] == 'p') {
    const T base = std::fabs(x[0]);
    const double most = 1.01 * std::numeric_limits<T>::max_exponent;
    const double power = random.uniform(-1.06 * most, most) / std::log2(static_cast<double>(base));
    if (std::isfinite(power)) x[0] = base, x[1] = static_cast<T>(power);
  }
}

// Zeros, infinities, NaN, subnormals, the largest number; integers and halves; 257 and 4097, whose cube and square are
// the middle between two floats; and numbers beside those at which functions begin, end or overflow.
template <class T>
std::vector<T> special_arguments() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> some = {0, Limits::infinity(), Limits::quiet_NaN()};
  const auto add = [&](T x) { // adds its neighbours, too
    some.insert(some.end(), {std::nextafter(x, T(0)), x, std::nextafter(x, Limits::infinity())});
  };
  for (const T x : {Limits::denorm_min(), Limits::min(), Limits::max(), Limits::epsilon(), T(1), T(2), T(0.5)}) add(x);
  for (const T x :
       {T(1.5), T(2.5), T(3), T(4), T(5), T(8), T(10), T(16), T(27), T(64), T(100), T(125), T(257), T(1000), T(4097)})
    some.push_back(x);
  for (const int digits : {Limits::digits - 2, Limits::digits - 1, Limits::digits, Limits::digits + 1}) {
    add(std::ldexp(T(1), digits)); // from here on there are no fractions, and then no odd integers
    add(std::ldexp(T(1), -digits / 2));
  }
  const T ln2 = T(0.6931471805599453), pi = T(3.141592653589793);
  for (const T bound :
       {Limits::max_exponent * ln2,
        (Limits::max_exponent + 1) * ln2,
        (1 - Limits::min_exponent) * ln2, // exp, sinh, cosh
        (Limits::digits - Limits::min_exponent) * ln2,
        (Limits::digits + 1 - Limits::min_exponent) * ln2,
        T(Limits::max_exponent),
        T(1 - Limits::min_exponent),
        T(Limits::digits - Limits::min_exponent), // exp2
        T(Limits::digits + 1 - Limits::min_exponent),
        Limits::digits * ln2,
        Limits::digits * ln2 / 2, // expm1, tanh
        std::is_same_v<T, float> ? T(3.92) : T(5.92),
        std::is_same_v<T, float> ? T(10.05) : T(26.54), // erf, erfc
        pi / 4,
        pi / 2,
        pi,
        3 * pi / 2,
        2 * pi,
        100 * pi,
        1 / pi,
        ln2,
        T(2.718281828459045),
        T(1e30),
        T(1e37)})
    add(bound);
  std::vector<T> all;
  for (const T x : some)
    for (const T each : {x, -x}) all.push_back(each);
  return all;
}

} // namespace functions
