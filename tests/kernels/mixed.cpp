// Tests kernels with operands of several dtypes and with several results, on the CPU or as CUDA kernels. It compares
// all memory of the results with that of a plain loop over the elements, in many layouts, as a whole and in parts.
#include "mixed.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "elementwise/bound_functor.h"
#include "elementwise/cpu/convert.h"
#include "elementwise/cpu/launch.h"
#include "elementwise/derivatives.h"
#ifdef ELEMENTWISE_CUDA_ON_HOST
#include "elementwise/cuda/launch.h"
#endif

namespace {

using namespace elementwise;
using namespace elementwise::cpu::ELEMENTWISE_ISA; // for its conversions

int failures = 0, cases = 0;
std::mt19937 random_bits;

struct Layout {
  int64_t size[2]; // the innermost first
  int64_t stride[kMaxOperands][2];
  int64_t offset[kMaxOperands];
};

// Each operand is contiguous, has gaps in rows or between them, or is transposed; an input may also be expanded.
Layout random_layout(const int64_t size[2], int operands, int results) {
  Layout layout{{size[0], size[1]}, {}, {}};
  const bool all_adjacent = random_bits() % 4 == 0;
  for (int k = 0; k < operands; k++) {
    const int64_t kinds[][2] = {{1, size[0]}, {1, size[0] + 3}, {2, 2 * size[0]}, {3, 3 * size[0] + 1},
                                {size[1], 1}, {0, 1},           {1, 0},           {0, 0}};
    const int kind = all_adjacent ? 0 : random_bits() % (k < results ? 5 : 8);
    for (int d = 0; d < 2; d++) layout.stride[k][d] = kinds[kind][d];
    layout.offset[k] = random_bits() % 3 == 0 ? random_bits() % 8 : 0;
  }
  return layout;
}

template <class T>
T random_number() {
  const int number = static_cast<int>(random_bits() % 201) - 100;
  if constexpr (std::is_same_v<T, bool>) {
    return number & 1;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(number);
  } else {
    return narrow(static_cast<compute_t<T>>(number) / 7, To<T>{});
  }
}

template <class C, class V>
void plain_store(const C& result, V* to) {
  *to = narrow(static_cast<compute_t<V>>(result), To<V>{});
}
template <class... C, class V, class... Rest>
void plain_store(const Results<C...>& results, V* to, Rest*... rest) {
  plain_store(results.first, to);
  if constexpr (sizeof...(Rest) > 0) plain_store(results.rest, rest...);
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
    size_t place, const Layout& layout, bool in_parts, [[maybe_unused]] bool stream, List<R...>, List<X...>,
    std::index_sequence<J...>, std::index_sequence<K...>) {
  constexpr int kResults = sizeof...(R), kOperands = kResults + sizeof...(X);
  constexpr size_t bytes[] = {sizeof(R)..., sizeof(X)...};
  std::vector<unsigned char> memory[kOperands], expected[kResults];
  void *data[kOperands], *want[kResults];
  const int64_t sizes[] = {layout.size[1], layout.size[0]};
  int64_t strides[kOperands][2];
  const int64_t* stride_of[kOperands];
  for (int k = 0; k < kOperands; k++) {
    int64_t n = layout.offset[k] + 1;
    for (int d = 0; d < 2; d++) {
      n += layout.stride[k][d] * (layout.size[d] - 1);
      strides[k][1 - d] = layout.stride[k][d];
    }
    stride_of[k] = strides[k];
    memory[k].assign(n * bytes[k], 0x5a);
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
  for (int64_t j = 0; j < layout.size[1]; j++)
    for (int64_t i = 0; i < layout.size[0]; i++) {
      const auto at = [&](size_t k) { return i * layout.stride[k][0] + j * layout.stride[k][1]; };
      plain_store(
          f(widen(static_cast<const X*>(data[kResults + K])[at(kResults + K)])...),
          static_cast<R*>(want[J]) + at(J)...);
    }

  // Some calls do not write one of several results.
  if (const int k = random_bits() % (2 * kResults); kResults > 1 && k < kResults) {
    expected[k] = memory[k];
    data[k] = nullptr;
    stride_of[k] = nullptr;
  }
  const Plan plan = make_plan(kOperands, 2, sizes, stride_of, data[0] ? 0 : 1);
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
  for (int k = 0; k < kResults; k++) {
    if (memory[k] == expected[k] || failures++) continue; // reports only the first failure
    std::fprintf(
        stderr, "operator %zu, dtype %d, result %d: other bytes, %d x %d\n", place, kOrdinal<T>, k,
        static_cast<int>(layout.size[0]), static_cast<int>(layout.size[1]));
  }
}

template <class Kernel, class T>
void run_all(size_t place) {
  constexpr int kOperands = Kernel::kResults + Kernel::kInputs;
  const int64_t sizes[][2] = {{1, 1},   {37, 1},  {5003, 1}, {9000, 1}, {100, 30},
                              {5, 200}, {70, 90}, {130, 90}, {27, 60},  {1, 70}};
  for (const auto& size : sizes)
    for (int i = 0; i < 24; i++)
      run<Kernel, T>(
          place, random_layout(size, kOperands, Kernel::kResults), i & 1, i & 2, typename Kernel::template Results<T>{},
          typename Kernel::template Inputs<T>{}, std::make_index_sequence<Kernel::kResults>{},
          std::make_index_sequence<Kernel::kInputs>{});
}

template <class... Kernel>
void run_kernels(List<Kernel...>) {
  size_t place = 0;
  const auto of_one = [&]<class One>(One) {
    [&]<class... T>(List<T...>) { (run_all<One, T>(place), ...); }(typename One::Dtypes{});
    place++;
  };
  (of_one(Kernel{}), ...);
}

} // namespace

int main() {
  try {
    std::fprintf(stderr, "%s\n", cpu::isa().name);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 77;
  }
  run_kernels(KernelsOf<WithDerivatives<mixed::Operators>>{});
  std::fprintf(stderr, "%d cases, %d failed\n", cases, failures);
  return failures > 0;
}
