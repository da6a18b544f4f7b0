// Times the functions of elementwise/math.h, of the C library, and of SLEEF's vectors, which torch contains:
// nanoseconds for one of 4,096 elements in the cache, in float and double, on one thread of a processor with AVX-512.
// Run each command, as one line, in the repository's root:
//
//   torch=$(python -c "import torch; print(torch.__path__[0])")
//   g++ -std=c++20 -O3 -march=x86-64-v4 -mprefer-vector-width=512 -ffp-contract=off -fno-math-errno -fno-trapping-math
//     -Isrc benchmarks/libraries.cpp -L$torch/lib -Wl,-rpath,$torch/lib,--no-as-needed,--allow-shlib-undefined
//     -ltorch_cpu -lc10 -o libraries && ./libraries
//   g++ -std=c++20 -O3 -march=x86-64-v4 -mprefer-vector-width=512 -ffast-math benchmarks/libraries.cpp -o libraries &&
//     ./libraries
//
// The second prints the C library's functions only: with -ffast-math they are its vectors, libmvec.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#ifndef __FAST_MATH__
#define ELEMENTWISE_ISA avx512
#include "elementwise/math.h"

extern "C" {
#define SLEEF(name)                     \
  __m512 Sleef_##name##f16_u10(__m512); \
  __m512d Sleef_##name##d8_u10(__m512d)
SLEEF(exp);
SLEEF(log);
SLEEF(sin);
SLEEF(tanh);
SLEEF(erf);
__m512 Sleef_powf16_u10(__m512, __m512);
__m512d Sleef_powd8_u10(__m512d, __m512d);
}
#endif

namespace {

constexpr int kElements = 4096;

// The fastest of many turns over arguments between two numbers.
template <class C, class Loop>
double nanoseconds(double from, double to, const Loop& loop) {
  std::vector<C> x(kElements + 1), result(kElements);
  for (int i = 0; i <= kElements; i++) x[i] = from + (to - from) * (i * 4001 % kElements) / kElements;
  double least = INFINITY;
  for (int k = 0; k < 2000; k++) {
    const auto start = std::chrono::steady_clock::now();
    loop(x.data(), x.data() + 1, result.data());
    asm volatile("" ::"r"(result.data()) : "memory");
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    least = std::min(least, time.count());
  }
  return least / kElements;
}

// For float and double: a loop over x, and over y if there is one.
#define LOOP(C, step, ...)                                                                   \
  nanoseconds<C>(from, to, [](const C* xs, const C* ys, C* results) {                        \
    _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int i = 0; i < kElements; i += step) { \
      __VA_ARGS__                                                                            \
    }                                                                                        \
  })
#define SCALAR(...)                                                                                         \
  LOOP(float, 1, const float x = xs[i]; [[maybe_unused]] const float y = ys[i]; results[i] = __VA_ARGS__;), \
      LOOP(double, 1, const double x = xs[i]; [[maybe_unused]] const double y = ys[i]; results[i] = __VA_ARGS__;)
#define VECTORS(name, ...)                                                                                            \
  LOOP(                                                                                                               \
      float, 16, const auto x = _mm512_loadu_ps(xs + i); [[maybe_unused]] const auto y = _mm512_loadu_ps(ys + i);     \
      _mm512_storeu_ps(results + i, Sleef_##name##f16_u10(__VA_ARGS__));),                                            \
      LOOP(                                                                                                           \
          double, 8, const auto x = _mm512_loadu_pd(xs + i); [[maybe_unused]] const auto y = _mm512_loadu_pd(ys + i); \
          _mm512_storeu_pd(results + i, Sleef_##name##d8_u10(__VA_ARGS__));)

} // namespace

int main() {
#ifdef __FAST_MATH__
#define ROW(name, from_, to_, ...)                                             \
  {                                                                            \
    const double from = from_, to = to_;                                       \
    std::printf("%-5s %6.2f; %5.2f\n", #name, SCALAR(std::name(__VA_ARGS__))); \
  }
#else
  std::printf("      elementwise::  std::           SLEEF's vectors\n");
#define ROW(name, from_, to_, ...)                                                                          \
  {                                                                                                         \
    const double from = from_, to = to_;                                                                    \
    std::printf(                                                                                            \
        "%-5s %5.2f; %5.2f   %5.2f; %5.2f   %5.2f; %5.2f\n", #name, SCALAR(elementwise::name(__VA_ARGS__)), \
        SCALAR(std::name(__VA_ARGS__)), VECTORS(name, __VA_ARGS__));                                        \
  }
#endif
  ROW(exp, -10, 10, x)
  ROW(log, 0, 16, x)
  ROW(sin, -10, 10, x)
  ROW(tanh, -10, 10, x)
  ROW(erf, -6, 6, x)
  ROW(pow, 0, 10, x, y)
}
