// The CUDA kernels: one for adjacent elements, and one for strided elements.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>

#include "../bound_functor.h"
#include "launch.h"
#include "start.h"

// There is no unnamed namespace here. nvcc would name it by a hash of the source's path, and two builds of a wheel
// would differ.
namespace elementwise::cuda {

__device__ float widen(float16 x) {
  return __half2float(__ushort_as_half(x.bits));
}
__device__ float widen(bfloat16 x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}
template <class C>
__device__ C widen(C x) {
  return x;
}
__device__ bool widen(const bool& x) { // see cpu/convert.h
  return reinterpret_cast<const uint8_t&>(x) != 0;
}

template <class T>
__device__ T narrow(compute_t<T> x) {
  if constexpr (std::is_same_v<T, float16>) {
    return {__half_as_ushort(__float2half_rn(x))};
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else {
    return x;
  }
}

// Writes the result of a functor, or its several results.
template <class C, class T>
__device__ void store(const C& result, T& to) {
  to = narrow<T>(static_cast<compute_t<T>>(result));
}
template <class... C, class T, class... Rest>
__device__ void store(const Results<C...>& results, T& to, Rest&... rest) {
  store(results.first, to);
  if constexpr (sizeof...(Rest) > 0) store(results.rest, rest...);
}

constexpr int kThreads = 256;

template <class T, int n>
struct alignas(n * sizeof(T)) Vector { // one load or store
  T lane[n];
};

// Holds a value for each operand, each of another type.
template <size_t place, class V>
struct Item {
  V value;
};
template <class Places, class... V>
struct Items;
template <size_t... I, class... V>
struct Items<std::index_sequence<I...>, V...> : Item<I, V>... {};

template <size_t place, class V>
__device__ V& get(Item<place, V>& item) {
  return item.value;
}

// The addresses of a call's results and inputs, and how to load, compute and store a vector or an element.
template <class R, class X, class J, class K>
struct Operands;
template <class... R, class... X, size_t... J, size_t... K>
struct Operands<List<R...>, List<X...>, std::index_sequence<J...>, std::index_sequence<K...>> {
  static constexpr int kResults = sizeof...(R), kCount = kResults + sizeof...(X);
  // Elements of a vector: 128 bits of the widest type, and fewer bits of the others.
  static constexpr int kSize = 16 / std::max({sizeof(R)..., sizeof(X)...});
  // The number of vectors of each input that a thread loads before it computes. With more, a thread needs more than 64
  // registers, and fewer threads fit on a multiprocessor. More loads would gain nothing: the 1,024 or more
  // threads of a multiprocessor already wait for 32 KiB or more, if all types are equally wide.
  static constexpr int kInFlight = sizeof...(X) <= 2 ? 2 : 1;
  using Inputs = Items<std::index_sequence<K...>, Vector<X, kSize>...>;

  Items<std::index_sequence<J...>, R*...> out;
  Items<std::index_sequence<K...>, const X*...> in;

  explicit Operands(void* const* data)
      : out{{static_cast<R*>(data[J])}...}, in{{static_cast<const X*>(data[kResults + K])}...} {}

  static bool aligned(void* const* data) {
    const auto fits = [](const void* at, size_t bytes) { return reinterpret_cast<uintptr_t>(at) % bytes == 0; };
    return (fits(data[J], sizeof(Vector<R, kSize>)) && ...) &&
           (fits(data[kResults + K], sizeof(Vector<X, kSize>)) && ...);
  }

  // The i-th vector of each input.
  __device__ void load(int64_t i, Inputs& x) {
    ((get<K>(x) = reinterpret_cast<const Vector<X, kSize>*>(get<K>(in))[i]), ...);
  }

  template <class F>
  __device__ void compute(int64_t i, const F& f, Inputs& x) {
    Items<std::index_sequence<J...>, Vector<R, kSize>...> result;
#pragma unroll
    for (int lane = 0; lane < kSize; lane++) store(f(widen(get<K>(x).lane[lane])...), get<J>(result).lane[lane]...);
    (write(reinterpret_cast<Vector<R, kSize>*>(get<J>(out)), i, get<J>(result)), ...);
  }

  // One element of each operand.
  template <class F, class Index>
  __device__ void compute_one(const Index (&offset)[kCount], const F& f) {
    Items<std::index_sequence<J...>, R...> result;
    store(f(widen(get<K>(in)[offset[kResults + K]])...), get<J>(result)...);
    (write(get<J>(out), offset[J], get<J>(result)), ...);
  }

 private:
  // One of several results may have no address, because the caller does not ask for it.
  template <class T, class Index>
  __device__ static void write(T* to, Index i, const T& result) {
    if (kResults == 1 || to) to[i] = result;
  }
};

// The n elements of each operand lie side by side, and all pointers are aligned for their vectors.
template <class F, class Operands>
__global__ void __launch_bounds__(kThreads) adjacent(Operands data, F f, int64_t n) {
  constexpr int kLoads = Operands::kInFlight, kSize = Operands::kSize;
  const int64_t vectors = n / kSize;
  const int64_t step = int64_t{gridDim.x} * kThreads * kLoads;
#pragma unroll 1 // to unroll this loop, the compiler would add a division that counts its rounds
  for (int64_t base = int64_t{blockIdx.x} * kThreads * kLoads + threadIdx.x; base < vectors; base += step) {
    typename Operands::Inputs x[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
      const int64_t i = base + k * kThreads;
      if (i < vectors) data.load(i, x[k]);
    }
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
      const int64_t i = base + k * kThreads;
      if (i < vectors) data.compute(i, f, x[k]);
    }
  }
  const int64_t i = vectors * kSize + threadIdx.x; // the tail, in the first block
  if (blockIdx.x == 0 && i < n) {
    int64_t offset[Operands::kCount];
    for (int64_t& each : offset) each = i;
    data.compute_one(offset, f);
  }
}

// Divides numbers below 2^31 by a constant of the call. A division takes twenty instructions, so it multiplies by
// floor(2^(32 + shift) / by) + 1 - 2^32, takes the upper 32 bits, adds the number, and shifts (Granlund and Montgomery,
// "Division by invariant integers using multiplication", 1994).
template <class Index>
struct Divisor {
  uint32_t by, factor, shift;

  Divisor() = default;
  explicit Divisor(int64_t by) : by(static_cast<uint32_t>(by)), factor(0), shift(0) {
    while (int64_t{1} << shift < by) shift++;
    factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - by)) / by + 1);
  }

  __device__ Index quotient(Index n) const {
    return (static_cast<uint32_t>((uint64_t{n} * factor) >> 32) + n) >> shift;
  }
};

template <>
struct Divisor<int64_t> {
  int64_t by;

  Divisor() = default;
  explicit Divisor(int64_t by) : by(by) {}

  __device__ int64_t quotient(int64_t n) const {
    return n / by;
  }
};

// The plan for the device. Index arithmetic in 32 bits is several times cheaper than in 64, so 64 bits are used only if
// an offset needs them. It has fewer dimensions than a plan can have: enough for 2^36 elements, or for many operands as
// many as fit into a kernel's parameters beside the operands and the numbers.
template <class Index, int kOperands>
struct DevicePlan {
  static constexpr int kOfDimension = sizeof(Divisor<Index>) + kOperands * sizeof(Index);
  static constexpr int kDims = std::min<int>(36, (kParameterBytes - 512) / kOfDimension);
  int dims;
  Divisor<Index> size[kDims];
  Index stride[kDims][kOperands];
};

template <class Index, class F, class Operands>
__global__ void __launch_bounds__(kThreads)
    strided(Operands data, F f, int64_t n, const __grid_constant__ DevicePlan<Index, Operands::kCount> plan) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
#pragma unroll 1 // as above
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    Index rest = static_cast<Index>(i), offset[Operands::kCount] = {};
    for (int d = 0; d < plan.dims; d++) {
      const Index quotient = d + 1 < plan.dims ? plan.size[d].quotient(rest) : 0;
      const Index index = rest - quotient * static_cast<Index>(plan.size[d].by);
      rest = quotient;
#pragma unroll
      for (int k = 0; k < Operands::kCount; k++) offset[k] += index * plan.stride[d][k];
    }
    data.compute_one(offset, f);
  }
}

template <class Index, class F, class Operands>
Error launch_strided(const Plan& plan, const Operands& data, const F& f, int64_t n, void* stream) {
  DevicePlan<Index, Operands::kCount> on_device;
  if (plan.dims > on_device.kDims)
    return {Error::kInvalid, "the tensors have too many dimensions that cannot be merged"};
  static_assert(sizeof(data) + sizeof(f) + sizeof(n) + sizeof(on_device) <= kParameterBytes);
  on_device.dims = plan.dims;
  for (int d = 0; d < plan.dims; d++) {
    on_device.size[d] = Divisor<Index>(plan.size[d]);
    for (int k = 0; k < Operands::kCount; k++) on_device.stride[d][k] = static_cast<Index>(plan.stride[d][k]);
  }
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return start(strided<Index, F, Operands>, blocks, kThreads, stream, data, f, n, on_device);
}

inline bool fits_32_bits(const Plan& plan, int64_t n) {
  bool fits = n <= std::numeric_limits<int32_t>::max();
  for (int k = 0; k < plan.operands; k++) {
    int64_t extent = 0;
    for (int d = 0; d < plan.dims; d++) extent += plan.stride[d][k] * (plan.size[d] - 1);
    fits &= extent <= std::numeric_limits<int32_t>::max();
  }
  return fits;
}

template <class Operands, class F>
Error launch_one(const Task& task, const F& f, void* stream) {
  const Plan& plan = task.plan;
  const Operands data(task.data);
  const int64_t n = plan.numel();
  if (plan.contiguous(task.data) && Operands::aligned(task.data)) {
    constexpr int64_t kPerBlock = int64_t{kThreads} * Operands::kInFlight * Operands::kSize;
    return start(adjacent<F, Operands>, (n + kPerBlock - 1) / kPerBlock, kThreads, stream, data, f, n);
  }
  if (fits_32_bits(plan, n)) return launch_strided<uint32_t>(plan, data, f, n, stream);
  return launch_strided<int64_t>(plan, data, f, n, stream);
}

template <class Kernel>
Error launch(const Task& task, void* stream) {
  Error error;
  with_dtype(typename Kernel::Dtypes{}, task.dtype, [&](auto storage) {
    using T = decltype(storage);
    using KernelOperands = Operands<
        typename Kernel::template Results<T>, typename Kernel::template Inputs<T>,
        std::make_index_sequence<Kernel::kResults>, std::make_index_sequence<Kernel::kInputs>>;
    error = launch_one<KernelOperands>(task, Bound<compute_t<T>, Kernel>(task.numbers), stream);
  });
  return error;
}

} // namespace elementwise::cuda

#include "rows.h"

namespace elementwise::cuda {

template <class Kernel>
constexpr Launcher launcher() {
  if constexpr (parameters::is_of_rows<typename Kernel::Functor>)
    return {nullptr, launch_rows<Kernel>};
  else
    return {launch<Kernel>, nullptr};
}

template <class Kernels>
struct All;
template <class... Kernel>
struct All<List<Kernel...>> {
  static constexpr Launcher launchers[] = {launcher<Kernel>()..., {}}; // an empty array is ill-formed
};

} // namespace elementwise::cuda

#define ELEMENTWISE_OPERATORS(library, Operators)                         \
  const elementwise::cuda::Launcher* const elementwise::cuda::launchers = \
      All<elementwise::KernelsOf<elementwise::WithDerivatives<Operators>>>::launchers;
