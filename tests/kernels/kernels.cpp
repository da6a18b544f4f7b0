// Tests the kernels alone, on the CPU or, compiled with elementwise/tests/host.h, as CUDA kernels. It compares all
// memory of the results with that of a plain loop over the elements, in many layouts, as a whole and in parts.
//
//   kernels DIGESTS   also compares the bits of each kernel's results with the recorded ones
//   kernels           prints new digests, for digests.txt, after you changed kernels.h or this file
//
// MULADD_NB_SIMD names the instruction set; the default is the best one. If this machine cannot run it, the status is
// 77, "skipped".
#include "kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "digests.h"
#include "elementwise/bound_functor.h"
#include "elementwise/contract.h"
#include "elementwise/cpu/launch.h"
#include "elementwise/derivatives.h"
#ifdef ELEMENTWISE_CUDA_ON_HOST
#include "elementwise/cuda/launch.h"
#endif

namespace {

using namespace elementwise;
using digests::Digest;

int failures = 0, cases = 0;
std::mt19937_64 random_bits;

// ---- The floating-point formats, without the conversions of the kernels.

template <class T>
struct Format {
  static constexpr int bits = 8 * sizeof(T);
  static constexpr int digits = // bits of the significand, including the one that is not stored
      std::is_same_v<T, double>    ? 53
      : std::is_same_v<T, float>   ? 24
      : std::is_same_v<T, float16> ? 11
                                   : 8;
  static constexpr int bias = (1 << (bits - digits)) / 2 - 1;
  static constexpr uint64_t one = uint64_t{1} << (digits - 1); // the last bit of the exponent
  static constexpr uint64_t infinity = (2 * bias + 1) * one;

  static uint64_t magnitude(uint64_t bits) { // without the sign
    return bits % (uint64_t{1} << (Format::bits - 1));
  }
};

template <class T>
T of_bits(uint64_t bits) {
  T x;
  std::memcpy(&x, &bits, sizeof(x)); // little-endian, as every machine that torch runs on
  return x;
}

template <class T>
double decoded(T x) {
  using F = Format<T>;
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof(x));
  const uint64_t magnitude = F::magnitude(bits);
  const int exponent = static_cast<int>(magnitude / F::one);
  double value = magnitude > F::infinity ? NAN : INFINITY;
  if (magnitude < F::infinity) {
    const uint64_t significand = magnitude % F::one + (exponent ? F::one : 0);
    value = std::ldexp(static_cast<double>(significand), std::max(exponent, 1) - F::bias - (F::digits - 1));
  }
  return bits == magnitude ? value : -value;
}

// Rounds to the nearest number of T, ties to even. If x is too large for T, the result is infinity.
template <class T>
T rounded(double x) {
  using F = Format<T>;
  if (std::isnan(x)) return of_bits<T>(F::infinity + 1);
  uint64_t bits = x == 0 ? 0 : F::infinity;
  const int exponent = x == 0 || std::isinf(x) ? F::bias + 1 : std::max(std::ilogb(x), 1 - F::bias);
  if (exponent <= F::bias) // the leading bit of a normal significand adds one to the exponent
    bits = static_cast<uint64_t>(std::nearbyint(std::ldexp(std::abs(x), F::digits - 1 - exponent))) +
           (exponent + F::bias - 1) * F::one;
  return of_bits<T>(bits | uint64_t{std::signbit(x)} << (F::bits - 1));
}

// Most numbers are close to 1, so that sums cancel. The others are of every other kind.
template <class T>
T random_number() {
  if constexpr (std::is_integral_v<T>) {
    const auto number = static_cast<int64_t>(random_bits() % 201) - 100;
    return static_cast<T>(std::is_same_v<T, bool> ? number & 1 : number);
  } else {
    using F = Format<T>;
    uint64_t exponent = F::bias - 4 + random_bits() % 9, fraction = random_bits() % F::one;
    switch (random_bits() % 16) {
      case 0: // zero
        exponent = fraction = 0;
        break;
      case 1: // subnormal
        exponent = 0;
        break;
      case 2: // large
        exponent = 2 * F::bias;
        break;
      case 3: // infinity
        exponent = 2 * F::bias + 1;
        fraction = 0;
        break;
      case 4: // NaN
        exponent = 2 * F::bias + 1;
        fraction = F::one / 2;
        break;
      case 5: // any
        exponent = random_bits() % (2 * F::bias + 1);
        break;
    }
    return of_bits<T>((random_bits() & 1) << (F::bits - 1) | exponent * F::one | fraction);
  }
}

template <class T>
auto plain_load(const T& x) {
  if constexpr (kFloat16Bit<T>)
    return static_cast<float>(decoded(x));
  else
    return x;
}
template <class C, class T>
void plain_store(const C& result, T* to) {
  if constexpr (kFloat16Bit<T>)
    *to = rounded<T>(result);
  else
    *to = static_cast<T>(result);
}
template <class... C, class T, class... Rest>
void plain_store(const Results<C...>& results, T* to, Rest*... rest) {
  plain_store(results.first, to);
  if constexpr (sizeof...(Rest) > 0) plain_store(results.rest, rest...);
}

// Replaces every NaN by the same one: IEEE 754 does not specify its bits.
template <class T>
void unify_nans(std::vector<unsigned char>& memory) {
  if constexpr (!std::is_integral_v<T>)
    for (size_t i = 0; i < memory.size(); i += sizeof(T)) {
      uint64_t bits = 0;
      std::memcpy(&bits, memory.data() + i, sizeof(T));
      if (Format<T>::magnitude(bits) <= Format<T>::infinity) continue;
      bits = Format<T>::infinity + 1;
      std::memcpy(memory.data() + i, &bits, sizeof(T));
    }
}

// ---- One case

struct Layout {
  std::vector<int64_t> sizes; // the outermost first
  std::vector<int64_t> strides[kMaxOperands];
  int64_t offset[kMaxOperands]; // of the first element in the memory
};

// Each operand is contiguous, has gaps in rows or between them, or has permuted dimensions; an input may also be
// expanded.
Layout random_layout(const std::vector<int64_t>& sizes, int operands, int results) {
  Layout layout{sizes, {}, {}};
  const bool all_adjacent = random_bits() % 4 == 0;
  for (int k = 0; k < operands; k++) {
    std::vector<size_t> order(sizes.size()); // the innermost first
    std::iota(order.rbegin(), order.rend(), 0);
    const int kind = all_adjacent ? 0 : static_cast<int>(random_bits() % 4);
    if (kind == 3) std::rotate(order.begin(), order.begin() + random_bits() % (order.size() + 1), order.end());
    int64_t stride = kind == 1 ? 2 + random_bits() % 2 : 1;
    layout.strides[k].resize(sizes.size());
    for (const size_t d : order) {
      const bool is_expanded = k >= results && !all_adjacent && random_bits() % 4 == 0;
      layout.strides[k][d] = is_expanded ? 0 : stride;
      stride = stride * sizes[d] + (kind == 2 ? 3 : 0);
    }
    layout.offset[k] = random_bits() % 3 == 0 ? random_bits() % 8 : 0;
  }
  return layout;
}

// A scale of 0.7, and the indices of the arguments of a derivative: each case has the next pair of the first two.
template <class F, Kind... kKind>
std::array<Number, 4> numbers_of(Kernel<F, kKind...>) {
  std::array<Number, 4> numbers{};
  int n = 0;
  for (const Kind kind : {kKind...}) {
    if (kind == Kind::real) numbers.at(n++).real = 0.7;
    if (kind == Kind::integer) {
      numbers.at(n).integer = cases >> n & 1;
      n++;
    }
  }
  return numbers;
}

template <class Kernel, class T, class... R, class... X, size_t... J, size_t... K>
void run(
    size_t place, const Layout& layout, bool in_parts, [[maybe_unused]] bool stream, Digest& digest, List<R...>,
    List<X...>, std::index_sequence<J...>, std::index_sequence<K...>) {
  constexpr int kResults = sizeof...(R), kOperands = kResults + sizeof...(X);
  constexpr size_t bytes[] = {sizeof(R)..., sizeof(X)...};
  std::vector<unsigned char> memory[kOperands], expected[kResults];
  void *data[kOperands], *want[kResults];
  const size_t dims = layout.sizes.size();
  const int64_t* strides[kOperands];
  for (int k = 0; k < kOperands; k++) {
    strides[k] = layout.strides[k].data();
    int64_t last = layout.offset[k];
    for (size_t d = 0; d < dims; d++) last += strides[k][d] * (layout.sizes[d] - 1);
    memory[k].assign((last + 1) * bytes[k], 0x5a); // of exact size, so that a sanitizer sees overruns
    data[k] = memory[k].data() + layout.offset[k] * bytes[k];
  }
  const auto fill = [&]<class V>(V, size_t k) {
    for (size_t i = 0; i < memory[k].size(); i += sizeof(V)) {
      const V number = random_number<V>();
      std::memcpy(memory[k].data() + i, &number, sizeof(V));
    }
  };
  (fill(X{}, kResults + K), ...);
  for (int k = 0; k < kResults; k++) {
    expected[k] = memory[k];
    want[k] = expected[k].data() + layout.offset[k] * bytes[k];
  }
  const std::array<Number, 4> numbers = numbers_of(Kernel{});
  const Bound<compute_t<T>, Kernel> f(numbers.data());
  int64_t numel = 1;
  for (const int64_t size : layout.sizes) numel *= size;
  std::vector<int64_t> index(dims);
  for (int64_t i = 0; i < numel; i++) {
    const auto at = [&](size_t k) { return std::inner_product(index.begin(), index.end(), strides[k], int64_t{0}); };
    plain_store(
        f(plain_load(static_cast<const X*>(data[kResults + K])[at(kResults + K)])...),
        static_cast<R*>(want[J]) + at(J)...);
    for (size_t d = dims; d-- > 0 && ++index[d] == layout.sizes[d];) index[d] = 0;
  }

  // Some calls do not write one of several results.
  if (const int k = random_bits() % (2 * kResults); kResults > 1 && k < kResults) {
    expected[k] = memory[k];
    data[k] = nullptr;
    strides[k] = nullptr;
  }
  const Plan plan = make_plan(kOperands, dims, layout.sizes.data(), strides, data[0] ? 0 : 1);
  const Task task{place, kOrdinal<T>, numbers.data(), plan, data};
#ifdef ELEMENTWISE_CUDA_ON_HOST
  cuda::most_blocks = in_parts ? 2 : 1 << 20;
  cuda::launchers[place].elements(task, nullptr);
#else
  const cpu::Computer computer = cpu::isa().computer(place)(kOrdinal<T>);
  const cpu::Tiles tiles(plan, computer, data);
  const int64_t step = in_parts ? 1 : tiles.total;
  for (int64_t tile = 0; tile < tiles.total; tile += step)
    cpu::Run(task, computer, tiles, stream && tiles.can_stream(computer, data, plan.operands))(tile, tile + step);
#endif
  cases++;
  const auto compare = [&]<class V>(V, size_t k) {
    unify_nans<V>(memory[k]);
    unify_nans<V>(expected[k]);
    for (const unsigned char byte : memory[k]) digest.add(byte, 1);
    if (memory[k] == expected[k] || failures++) return; // reports only the first failure
    std::fprintf(
        stderr, "kernel %zu, dtype %d, result %zu: other bytes in %s\n", place, kOrdinal<T>, k,
        contract::list(layout.sizes.data(), dims).c_str());
  };
  (compare(R{}, J), ...);
}

template <class Kernel, class T>
void run_all(size_t place, const digests::Record& record) {
  constexpr int kOperands = Kernel::kResults + Kernel::kInputs;
  std::vector<std::vector<int64_t>> sizes;
  for (int i = 0; i < 12; i++)
    for (const std::vector<int64_t>& each : std::vector<std::vector<int64_t>>{
             {},
             {37},
             {5003},
             {9000},
             {30, 100},
             {200, 5},
             {90, 70},
             {90, 130},
             {60, 27},
             {70, 1},
             {3, 5, 7, 11},
             {2, 20, 6, 6}})
      sizes.push_back(each);
  for (int64_t n = 1; n <= 70; n++) sizes.push_back({n});
  Digest digest;
  for (const std::vector<int64_t>& each : sizes) {
    const Layout layout = random_layout(each, kOperands, Kernel::kResults);
    const uint64_t how = random_bits();
    run<Kernel, T>(
        place, layout, how & 1, how & 2, digest, typename Kernel::template Results<T>{},
        typename Kernel::template Inputs<T>{}, std::make_index_sequence<Kernel::kResults>{},
        std::make_index_sequence<Kernel::kInputs>{});
  }
  failures += record.differs(std::to_string(place) + " " + contract::dtype_name(kOrdinal<T>), digest);
}

template <class... Kernel>
void run_kernels(const digests::Record& record, List<Kernel...>) {
  size_t place = 0;
  const auto of_one = [&]<class One>(One) {
    [&]<class... T>(List<T...>) { (run_all<One, T>(place, record), ...); }(typename One::Dtypes{});
    place++;
  };
  (of_one(Kernel{}), ...);
}

} // namespace

int main(int count, char** values) {
  try {
    std::fprintf(stderr, "%s\n", cpu::isa().name);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 77;
  }
  run_kernels(digests::Record(count > 1 ? values[1] : nullptr), KernelsOf<WithDerivatives<tested::Operators>>{});
  std::fprintf(stderr, "%d cases, %d failed\n", cases, failures);
  return failures > 0;
}
