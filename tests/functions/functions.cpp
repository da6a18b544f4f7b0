// Tests the functions of elementwise/math.h with a sample and with special arguments.
//
//   functions bits DIGESTS   compares the bits with the recorded ones; MULADD_NB_SIMD names the instruction set
//   functions cuda DIGESTS   the same for the functions of CUDA kernels, compiled for the host
//   functions record         prints new digests, for digests.txt, after you changed a function and `values` passes
//   functions values         checks errors against their bounds, and special arguments against annex F of C23
//
// A name at the end, as in `functions values tanh`, tests only that function. With Meson:
//
//   meson test -C BUILD --test-args=tanh 'functions*'
//
// If the instruction set cannot run here, the status is 77, "skipped".
#include <cstdio>
#include <iterator>
#include <stdexcept>
#include <string>

#include "digests.h"
#include "elementwise/cpu/machine.h"
#include "reference.h"
#include "sample.h"

namespace functions {
#ifdef FUNCTIONS_AVX512
namespace avx512 {
extern const Loops loops[];
}
#endif
#ifdef FUNCTIONS_AVX2
namespace avx2 {
extern const Loops loops[];
}
#endif
namespace baseline {
extern const Loops loops[];
}
#ifdef FUNCTIONS_CUDA
namespace cuda_target {
extern const Loops loops[];
}
#endif
} // namespace functions

namespace {

using namespace functions;

constexpr int kRandom = 16'384;

std::string only; // the function that is tested, or empty: all of them

template <class Each>
int sum_over_functions(const Each& each) {
  int sum = 0;
  for (int k = 0; k < kCount; k++)
    if (only.empty() || only == kFunctions<float>[k].name) sum += each(k);
  return sum;
}

// The arguments of a function: special ones in all combinations, and random ones.
template <class T>
struct Arguments {
  std::vector<T> x[3];
  size_t special;

  explicit Arguments(const Function<T>& function) {
    const std::vector<T> all = special_arguments<T>();
    const size_t n = all.size(), one = 1;
    const size_t step = function.arguments == 3 ? 11 : 1; // with three arguments, not all combinations
    for (size_t i = 0; i < n; i += step)
      for (size_t j = 0; j < (function.arguments > 1 ? n : one); j += step)
        for (size_t k = 0; k < (function.arguments > 2 ? n : one); k += step) add(all[i], all[j], all[k]);
    special = x[0].size();
    for (int i = 0; i < kRandom; i++) {
      T random[3];
      random_arguments(1, i, function, random);
      add(random[0], random[1], random[2]);
    }
  }

  void add(T first, T second, T third) {
    x[0].push_back(first), x[1].push_back(second), x[2].push_back(third);
  }

  std::vector<T> results(Loop<T> loop) const {
    const T* const all[] = {x[0].data(), x[1].data(), x[2].data()};
    std::vector<T> results(x[0].size());
    loop(results.size(), all, results.data());
    return results;
  }
};

template <class T>
constexpr const char* kType = std::is_same_v<T, float> ? "float" : "double";

// All NaNs count as the same.
template <class T>
digests::Digest digest(const std::vector<T>& results) {
  digests::Digest digest;
  for (const T x : results) digest.add(bits(x == x ? x : std::numeric_limits<T>::quiet_NaN()), sizeof(T));
  return digest;
}

template <class T>
int wrong_bits(const Loops* loops, const digests::Record& record) {
  return sum_over_functions([&](int k) {
    const std::vector<T> results = Arguments<T>(kFunctions<T>[k]).results(loops[k].of<T>());
    return record.differs(std::string(kFunctions<T>[k].name) + " " + kType<T>, digest(results));
  });
}

// Whether a result is right. If the exact value is infinite, zero, NaN or a number of T, the result must equal it; if
// it is the middle between two floats, the result must be the even one. (The reference has a hundred bits, so that it
// cannot look like one of these by chance.) Otherwise the sign must be right, and the error within bounds.
template <class T>
bool right(const Function<T>& function, const T* x, T result, bool special, double* error) {
  if (special) {
    const Quad exact = function.quad(x);
    *error = error_in_ulps(result, exact);
    const bool middle = std::is_same_v<T, float> && error_in_ulps(T(exact), exact) == 0.5;
    if (Quad(T(exact)) == exact || exact != exact || middle) return same(result, T(exact));
    return *error <= function.bound && std::signbit(result) == (exact < 0);
  }
  const T* const arguments[] = {x, x + 1, x + 2};
  wider_t<T> exact;
  function.wider(1, arguments, &exact);
  *error = error_in_ulps(result, exact);
  if (*error > function.bound)
    *error = error_in_ulps(result, function.quad(x)); // with more bits, because some bounds are exactly 0.5
  return *error <= function.bound;
}

template <class T>
int wrong_values(const Loops* loops) {
  return sum_over_functions([&](int k) {
    const Function<T>& function = kFunctions<T>[k];
    const Arguments<T> arguments(function);
    const std::vector<T> results = arguments.results(loops[k].of<T>());
    int of_this = 0;
    for (size_t i = 0; i < results.size(); i++) {
      const T x[] = {arguments.x[0][i], arguments.x[1][i], arguments.x[2][i]};
      double error;
      if (right(function, x, results[i], i < arguments.special, &error)) continue;
      if (of_this++ >= 5) continue;
      std::printf("%s %s of", kType<T>, function.name);
      for (int j = 0; j < function.arguments; j++) std::printf(" %a", static_cast<double>(x[j]));
      std::printf(
          ": %a, expected %a, off by %g\n", static_cast<double>(results[i]), static_cast<double>(function.quad(x)),
          error);
    }
    if (of_this > 5) std::printf("%s %s: %d in all\n", kType<T>, function.name, of_this);
    return of_this;
  });
}

const Loops* loops_of([[maybe_unused]] const std::string& name) {
#ifdef FUNCTIONS_CUDA
  if (name == "cuda") return functions::cuda_target::loops;
#endif
#ifdef FUNCTIONS_AVX512
  if (name == "avx512") return functions::avx512::loops;
#endif
#ifdef FUNCTIONS_AVX2
  if (name == "avx2") return functions::avx2::loops;
#endif
  return functions::baseline::loops;
}

} // namespace

int main(int count, char** values) {
  const std::string what = count > 1 ? values[1] : "";
  const int options = what == "bits" || what == "cuda" ? 3 : 2; // with the program's own name
  if (count > options) only = values[options];
  if (sum_over_functions([](int) { return 1; }) == 0)
    return std::fprintf(stderr, "there is no function %s\n", only.c_str()), 2;
  const Loops* loops;
  try {
    loops = loops_of(what == "cuda" ? what : elementwise::cpu::isa().name);
  } catch (const std::runtime_error& error) {
    std::printf("%s\n", error.what());
    return 77;
  }
  if (what == "values") return wrong_values<float>(loops) + wrong_values<double>(loops) > 0;
  if (what != "record" && count < 3)
    return std::fprintf(stderr, "usage: %s bits|cuda DIGESTS or values or record\n", values[0]), 2;
  const digests::Record record(what == "record" ? nullptr : values[2]);
  return wrong_bits<float>(loops, record) + wrong_bits<double>(loops, record) > 0;
}
