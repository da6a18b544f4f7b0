// How accurate the functions of elementwise/math.h are: float functions of one argument over all 2^32, the others over
// a sample. `nox -s functions` runs it for all of them and writes docs/functions.csv. By hand, in the repository's
// root:
//
//   g++ -std=c++20 -O3 -ffp-contract=off -fno-math-errno -march=native -DELEMENTWISE_ISA=native -Isrc -pthread
//     tests/functions/accuracy.cpp tests/functions/compiled.cpp -o accuracy      (in one line)
//   ./accuracy exp float              all floats; --threads 2
//   ./accuracy exp double             a sample: --samples 10000000 --seed 1
//   ./accuracy exp double 0x1p-3 -1   the result and its error for these arguments, in order
//
// It prints: function, type, inputs, the largest error in units in the last place, the arguments it is at, the share of
// results that is correctly rounded; for float functions of one argument the number of float16 and of bfloat16 whose
// result, rounded once more, is not the correctly rounded one; and nanoseconds for an element, as compiled.
#include <algorithm>
#include <chrono>
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

// One block of arguments, that are there already.
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

template <class T>
Found<T> measure_all(const Function<T>& function, Loop<T> loop, const Options& options) {
  const bool every = std::is_same_v<T, float> && function.arguments == 1;
  const uint64_t total = every ? uint64_t{1} << 32 : options.samples;
  std::vector<Found<T>> found(options.threads);
  std::vector<std::thread> threads;
  for (int t = 0; t < options.threads; t++) {
    threads.emplace_back([&, t] {
      const auto block = std::make_unique<Block<T>>();
      Found<T> mine;
      for (uint64_t first = t * kBlock; first < total; first += options.threads * kBlock) {
        const int64_t n = std::min<uint64_t>(kBlock, total - first);
        for (int64_t i = 0; i < n; i++) {
          T x[3] = {number<T>(static_cast<bits_t<T>>(first + i))};
          if (!every) random_arguments(options.seed, first + i, function, x);
          for (int k = 0; k < 3; k++) block->x[k][i] = x[k];
        }
        measure(function, loop, n, *block, mine);
      }
      found[t] = mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 1; t < options.threads; t++) found[0].add(found[t]);
  return found[0];
}

// The exact value rounded to `digits` digits, with exponents from `least` on.
Quad rounded(Quad x, int digits, int least, int most) {
  if (x != x || x == 0 || x - x != 0) return x;
  int e = -1080;
  const Quad magnitude = x < 0 ? -x : x;
  while (power_of_two(e + 1, x) <= magnitude && e < 1080) e++;
  const Quad unit = power_of_two(std::max(e, least) - (digits - 1), x);
  const Quad near = reference::rint(x / unit) * unit;
  return near >= power_of_two(most, x) ? Quad(INFINITY) : near <= -power_of_two(most, x) ? Quad(-INFINITY) : near;
}

// The results for all numbers of a 16-bit type that are not, rounded to it once more, the correctly rounded ones.
int differences(const Function<float>& function, Loop<float> loop, int digits, int least, int most) {
  int count = 0;
  for (uint32_t i = 0; i < 1 << 16; i++) {
    float x[3] = {};
    if (digits == 8) {
      x[0] = number<float>(i << 16);
    } else {
      const int exponent = i >> 10 & 31, fraction = i & 1023;
      const float magnitude = exponent == 31
                                  ? (fraction ? NAN : INFINITY)
                                  : std::ldexp(exponent ? 1024 + fraction : fraction, std::max(exponent, 1) - 25);
      x[0] = i >> 15 ? -magnitude : magnitude;
    }
    const float* const arguments[] = {x, x + 1, x + 2};
    float result;
    loop(1, arguments, &result);
    const Quad got = rounded(result, digits, least, most), right = rounded(function.quad(x), digits, least, most);
    count += got != right && (got == got || right == right);
  }
  return count;
}

template <class T>
double nanoseconds(const Function<T>& function, Loop<T> loop) {
  std::vector<T> x[3], result(kBlock);
  for (int k = 0; k < 3; k++)
    for (int64_t i = 0; i < kBlock; i++)
      x[k].push_back(
          static_cast<T>(
              std::max(-10.0, function.from) +
              (std::min(10.0, function.to) - std::max(-10.0, function.from)) * ((i * 4001 + k) % kBlock) / kBlock));
  const T* const arguments[] = {x[0].data(), x[1].data(), x[2].data()};
  double least = INFINITY;
  for (int k = 0; k < 200; k++) {
    const auto start = std::chrono::steady_clock::now();
    loop(kBlock, arguments, result.data());
    least = std::min(least, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  return least / kBlock;
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
      if (function.arguments == 1) {
        std::printf(",%d,%d", differences(function, loop, 11, -14, 16), differences(function, loop, 8, -126, 128));
      } else {
        std::printf(",,");
      }
    } else {
      std::printf(",,");
    }
    std::printf(",%.3f\n", nanoseconds(function, loop));
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
