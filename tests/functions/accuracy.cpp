// Measures the errors of the functions of elementwise/math.h: functions of one float for all 2^32 floats, the others
// for a sample. `nox -s functions` runs it for all functions and writes docs/functions.csv. By hand, in the
// repository's root:
//
//   g++ -std=c++20 -O3 -ffp-contract=off -fno-math-errno -march=native -DELEMENTWISE_ISA=native -Isrc -pthread
//     tests/functions/accuracy.cpp tests/functions/compiled.cpp -o accuracy      (in one line)
//   ./accuracy exp float              all floats; --threads 2
//   ./accuracy exp double             a sample: --samples 10000000 --seed 1
//   ./accuracy exp double 0x1p-3 -1   the result and its error for these arguments, in order
//
// It prints the function, the type, the number of inputs, the largest error in units in the last place, its arguments,
// and the share of correctly rounded results. For float functions it also counts, for float16 and for bfloat16, the
// results that are not correctly rounded after they are rounded to that type: of all its numbers, of all pairs, or with
// three arguments of a sample.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "reference.h"
#include "sample.h"

namespace functions::ELEMENTWISE_ISA {
extern const Loops loops[];
}

namespace {

using namespace functions;

constexpr int64_t kBlock = 4096;

struct Options {
  uint64_t samples = 10'000'000, seed = 1;
  int threads = 1;
  std::vector<std::string> arguments;
};

template <class T>
struct Found {
  uint64_t inputs = 0, correct = 0, undecided = 0;
  double largest = 0;
  T at[3] = {}, result = 0;

  void add(const Found& other) {
    inputs += other.inputs, correct += other.correct, undecided += other.undecided;
    if (other.largest > largest) {
      largest = other.largest, result = other.result;
      std::copy_n(other.at, 3, at);
    }
  }
};

template <class T>
struct Block {
  T x[3][kBlock], result[kBlock];
  wider_t<T> exact[kBlock];
  double error[kBlock];
  int correct[kBlock], undecided[kBlock];
};

// A block of arguments that are given.
template <class T>
void measure(const Function<T>& function, Loop<T> loop, int64_t n, Block<T>& block, Found<T>& found) {
  const T* const x[] = {block.x[0], block.x[1], block.x[2]};
  loop(n, x, block.result);
  function.wider(n, x, block.exact);
  for (int64_t i = 0; i < n; i++) block.error[i] = error_in_ulps(block.result[i], block.exact[i]);
  for (int64_t i = 0; i < n; i++) block.correct[i] = same(block.result[i], T(block.exact[i]));
  for (int64_t i = 0; i < n; i++) block.undecided[i] = is_undecided<T>(block.exact[i], kUncertain(T()));
  double largest = 0;
  for (int64_t i = 0; i < n; i++) {
    found.correct += block.correct[i] & ~block.undecided[i];
    largest = block.error[i] > largest ? block.error[i] : largest;
  }
  found.inputs += n;
  for (int64_t i = 0; i < n; i++) {
    if (block.undecided[i]) {
      const T arguments[] = {x[0][i], x[1][i], x[2][i]};
      const Quad exact = function.quad(arguments);
      found.correct += same(block.result[i], T(exact));
      found.undecided += is_undecided<T>(exact, kUncertainQuad) && error_in_ulps(T(exact), exact) != 0.5;
    }
    if (largest > found.largest && block.error[i] == largest) {
      found.largest = largest, found.result = block.result[i];
      for (int k = 0; k < 3; k++) found.at[k] = x[k][i];
    }
  }
}

// Calls `look` for all blocks of `total` arguments, and returns what it found. `look` takes a block, the number of its
// first argument, their count, and what was found so far.
template <class T, class Look>
Found<T> look_at_all(uint64_t total, int threads, const Look& look) {
  std::vector<Found<T>> found(threads);
  std::vector<std::thread> running;
  for (int t = 0; t < threads; t++) {
    running.emplace_back([&, t] {
      const auto block = std::make_unique<Block<T>>();
      Found<T> mine;
      for (uint64_t first = t * kBlock; first < total; first += threads * kBlock)
        look(*block, first, static_cast<int64_t>(std::min<uint64_t>(kBlock, total - first)), mine);
      found[t] = mine;
    });
  }
  for (std::thread& thread : running) thread.join();
  for (int t = 1; t < threads; t++) found[0].add(found[t]);
  return found[0];
}

template <class T>
Found<T> measure_all(const Function<T>& function, Loop<T> loop, const Options& options) {
  const bool every = std::is_same_v<T, float> && function.arguments == 1;
  const uint64_t total = every ? uint64_t{1} << 32 : options.samples;
  return look_at_all<T>(total, options.threads, [&](Block<T>& block, uint64_t first, int64_t n, Found<T>& found) {
    for (int64_t i = 0; i < n; i++) {
      T x[3] = {number<T>(static_cast<bits_t<T>>(first + i))};
      if (!every) random_arguments(options.seed, first + i, function, x);
      for (int k = 0; k < 3; k++) block.x[k][i] = x[k];
    }
    measure(function, loop, n, block, found);
  });
}

// The limits of the 16-bit types, as std::numeric_limits has them for others.
struct Float16 {
  static constexpr int digits = 11, min_exponent = -13, max_exponent = 16;
};
struct Bfloat16 {
  static constexpr int digits = 8, min_exponent = -125, max_exponent = 128;
};

// The nearest number of a 16-bit type.
template <class Limits, class W>
W rounded(W x) {
  const W scale = one_over_unit<Limits>(x), near = reference::rint(x * scale) / scale;
  const W beyond = power_of_two(Limits::max_exponent, x);
  return near >= beyond ? W(INFINITY) : near <= -beyond ? W(-INFINITY) : near;
}

// Counts the results that are not correctly rounded after they are rounded to a 16-bit type: of all its numbers, of all
// pairs, or with three arguments of a sample.
template <class Limits>
uint64_t differences(const Function<float>& function, Loop<float> loop, const Options& options) {
  constexpr int kFraction = Limits::digits - 1, kExponents = (1 << (15 - kFraction)) - 1;
  std::vector<float> numbers;
  for (int i = 0; i < 1 << 16; i++) {
    const int exponent = i >> kFraction & kExponents, fraction = i & ((1 << kFraction) - 1);
    const float magnitude = exponent == kExponents
                                ? (fraction ? NAN : INFINITY)
                                : std::ldexp(
                                      (exponent ? 1 << kFraction : 0) + fraction,
                                      std::max(exponent, 1) + Limits::min_exponent - 1 - Limits::digits);
    numbers.push_back(i >> 15 ? -magnitude : magnitude);
  }
  const bool every = function.arguments < 3;
  const uint64_t total = every ? uint64_t{1} << 16 * function.arguments : options.samples;
  const auto look = [&](Block<float>& block, uint64_t first, int64_t n, Found<float>& found) {
    for (int64_t i = 0; i < n; i++) {
      const uint64_t j = every ? first + i : Random{first + i}.bits();
      for (int k = 0; k < 3; k++) block.x[k][i] = numbers[j >> 16 * k & 0xffff];
    }
    const float* const x[] = {block.x[0], block.x[1], block.x[2]};
    loop(n, x, block.result);
    function.wider(n, x, block.exact);
    found.inputs += n;
    for (int64_t i = 0; i < n; i++) {
      const double got = rounded<Limits>(double{block.result[i]});
      const double exact = block.exact[i], off = exact * kUncertain(0.0f);
      const double right = rounded<Limits>(exact), up = rounded<Limits>(exact + off);
      block.correct[i] = (got == right) | ((got != got) & (right != right));
      block.undecided[i] = (up != rounded<Limits>(exact - off)) & (exact - exact == 0);
    }
    for (int64_t i = 0; i < n; i++) {
      if (block.undecided[i]) {
        const float arguments[] = {x[0][i], x[1][i], x[2][i]};
        block.correct[i] = rounded<Limits>(Quad(block.result[i])) == rounded<Limits>(function.quad(arguments));
      }
      found.correct += block.correct[i];
    }
  };
  const Found<float> found = look_at_all<float>(total, options.threads, look);
  return found.inputs - found.correct;
}

template <class T>
std::string hexadecimal(const T* x, int n) {
  std::string text;
  for (int k = 0; k < n; k++) {
    char one[64];
    std::snprintf(one, sizeof(one), k ? " %a" : "%a", static_cast<double>(x[k]));
    text += one;
  }
  return text;
}

template <class T>
int run(const char* name, const char* type, const Options& options) {
  for (int k = 0; k < kCount; k++) {
    const Function<T>& function = kFunctions<T>[k];
    if (std::strcmp(function.name, name) != 0) continue;
    const Loop<T> loop = functions::ELEMENTWISE_ISA::loops[k].of<T>();
    if (!options.arguments.empty()) {
      const int arguments = function.arguments;
      for (size_t i = 0; i + arguments <= options.arguments.size(); i += arguments) {
        T x[3] = {}, result;
        for (int j = 0; j < arguments; j++)
          x[j] = static_cast<T>(std::strtod(options.arguments[i + j].c_str(), nullptr));
        const T* const each[] = {x, x + 1, x + 2};
        loop(1, each, &result);
        std::printf(
            "%s,%s,%s,%a,%.17g,%.6f\n", name, type, hexadecimal(x, arguments).c_str(), double(result), double(result),
            error_in_ulps(result, function.quad(x)));
      }
      return 0;
    }
    const Found<T> found = measure_all(function, loop, options);
    std::printf(
        "%s,%s,%" PRIu64 ",%.6f,%s,%.9f,%" PRIu64, name, type, found.inputs, found.largest,
        hexadecimal(found.at, function.arguments).c_str(), double(found.correct) / double(found.inputs),
        found.undecided);
    if constexpr (std::is_same_v<T, float>) {
      for (const uint64_t count :
           {differences<Float16>(function, loop, options), differences<Bfloat16>(function, loop, options)})
        std::printf(",%" PRIu64, count);
    } else {
      std::printf(",,");
    }
    std::printf("\n");
    return found.largest > function.bound;
  }
  std::fprintf(stderr, "there is no function %s\n", name);
  return 2;
}

} // namespace

int main(int count, char** values) {
  if (count < 3) return std::fprintf(stderr, "usage: %s FUNCTION float|double [options] [arguments]\n", values[0]), 2;
  Options options;
  for (int i = 3; i < count; i++) {
    const std::string option = values[i];
    if (option.starts_with("--") && i + 1 < count) {
      const uint64_t value = std::strtoull(values[++i], nullptr, 10);
      if (option == "--samples") options.samples = value;
      if (option == "--seed") options.seed = value;
      if (option == "--threads") options.threads = static_cast<int>(value);
    } else {
      options.arguments.push_back(option);
    }
  }
  return std::strcmp(values[2], "float") == 0 ? run<float>(values[1], values[2], options)
                                              : run<double>(values[1], values[2], options);
}
