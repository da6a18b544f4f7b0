// The CUDA kernels, as nvcc compiles them: one for adjacent elements, one for strided ones.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>

#include "../bound.h"
#include "launch.h"
#include "start.h"

// Nothing here is in an unnamed namespace: nvcc names one by a hash of the source's path, and no two builds of a wheel
// would be the same.
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

constexpr int kThreads = 256;

template <class T>
struct alignas(16) Vector { // one 128-bit load or store
  static constexpr int kSize = 16 / sizeof(T);
  T lane[kSize];
};

template <class T, int kInputs>
struct Pointers {
  T* out;
  const T* in[kInputs];
};

// Vectors of each input that a thread loads before it computes. More of them take more than 64 registers, and fewer
// threads fit on a multiprocessor, for nothing: with these its 1,024 and more threads have 48 KiB and more on their
// way.
template <int kInputs>
constexpr int kInFlight = kInputs <= 2 ? 2 : 1;

// The n elements of each operand lie side by side and all pointers are multiples of 16 bytes.
template <class T, class F, size_t... K>
__global__ void __launch_bounds__(kThreads)
    adjacent(Pointers<T, sizeof...(K)> data, F f, int64_t n, std::index_sequence<K...>) {
  using V = Vector<T>;
  constexpr int kLoads = kInFlight<sizeof...(K)>;
  const int64_t vectors = n / V::kSize;
  const int64_t step = int64_t{gridDim.x} * kThreads * kLoads;
#pragma unroll 1 // to unroll it, the compiler divides, to know how often each thread comes here
  for (int64_t base = int64_t{blockIdx.x} * kThreads * kLoads + threadIdx.x; base < vectors; base += step) {
    V x[kLoads][sizeof...(K)];
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
      const int64_t i = base + k * kThreads;
      if (i < vectors) ((x[k][K] = reinterpret_cast<const V*>(data.in[K])[i]), ...);
    }
#pragma unroll
    for (int k = 0; k < kLoads; k++) {
      const int64_t i = base + k * kThreads;
      if (i < vectors) {
        V result;
#pragma unroll
        for (int lane = 0; lane < V::kSize; lane++) result.lane[lane] = narrow<T>(f(widen(x[k][K].lane[lane])...));
        reinterpret_cast<V*>(data.out)[i] = result;
      }
    }
  }
  const int64_t i = vectors * V::kSize + threadIdx.x; // the tail, in the first block
  if (blockIdx.x == 0 && i < n) data.out[i] = narrow<T>(f(widen(data.in[K][i])...));
}

// Divides numbers below 2^31 by one known before, without a division, which takes twenty instructions: multiplied by
// 2^(32+shift)/by, rounded up, less 2^32, which is added as the number itself (Granlund and Montgomery, "Division by
// invariant integers using multiplication", 1994).
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

// The plan as the device reads it. Index arithmetic in 32 bits is several times cheaper than in 64, so the 64-bit form
// is used only where an offset needs it. With fewer dimensions than a plan can have, but enough for 1 TiB of output,
// the parameters of a kernel stay below the 4 KiB that every driver takes.
template <class Index, int kOperands>
struct DevicePlan {
  static constexpr int kDims = 40;
  int dims;
  Divisor<Index> size[kDims];
  Index stride[kDims][kOperands];
};

template <class T, class F, class Index, size_t... K>
__global__ void __launch_bounds__(kThreads) strided(
    Pointers<T, sizeof...(K)> data, F f, int64_t n, const __grid_constant__ DevicePlan<Index, 1 + sizeof...(K)> plan,
    std::index_sequence<K...>) {
  constexpr int kOperands = 1 + sizeof...(K);
  const int64_t step = int64_t{gridDim.x} * kThreads;
#pragma unroll 1 // as above
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    Index rest = static_cast<Index>(i), offset[kOperands] = {};
    for (int d = 0; d < plan.dims; d++) {
      const Index quotient = d + 1 < plan.dims ? plan.size[d].quotient(rest) : 0;
      const Index index = rest - quotient * static_cast<Index>(plan.size[d].by);
      rest = quotient;
#pragma unroll
      for (int k = 0; k < kOperands; k++) offset[k] += index * plan.stride[d][k];
    }
    data.out[offset[0]] = narrow<T>(f(widen(data.in[K][offset[1 + K]])...));
  }
}

template <class Index, class T, class F, size_t... K>
Error launch_strided(
    const Plan& plan, const Pointers<T, sizeof...(K)>& data, const F& f, int64_t n, void* stream,
    std::index_sequence<K...> inputs) {
  constexpr int kOperands = 1 + sizeof...(K);
  DevicePlan<Index, kOperands> on_device;
  on_device.dims = plan.dims;
  for (int d = 0; d < plan.dims; d++) {
    on_device.size[d] = Divisor<Index>(plan.size[d]);
    for (int k = 0; k < kOperands; k++) on_device.stride[d][k] = static_cast<Index>(plan.stride[d][k]);
  }
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return start(strided<T, F, Index, K...>, blocks, kThreads, stream, data, f, n, on_device, inputs);
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

template <class T, class F, size_t... K>
Error launch_one(const Plan& plan, void* const* operands, const F& f, void* stream, std::index_sequence<K...> inputs) {
  const Pointers<T, sizeof...(K)> data{static_cast<T*>(operands[0]), {static_cast<const T*>(operands[1 + K])...}};
  const int64_t n = plan.numel();
  const uintptr_t bits =
      (reinterpret_cast<uintptr_t>(operands[0]) | ... | reinterpret_cast<uintptr_t>(operands[1 + K]));
  if (plan.contiguous() && bits % 16 == 0) {
    const int64_t per_block = int64_t{kThreads} * kInFlight<sizeof...(K)> * Vector<T>::kSize;
    return start(adjacent<T, F, K...>, (n + per_block - 1) / per_block, kThreads, stream, data, f, n, inputs);
  }
  if (fits_32_bits(plan, n)) return launch_strided<uint32_t>(plan, data, f, n, stream, inputs);
  return launch_strided<int64_t>(plan, data, f, n, stream, inputs);
}

template <class Kernel>
Error launch(const Task& task, void* stream) {
  Error error;
  with_dtype(typename Kernel::Dtypes{}, task.dtype, [&](auto storage) {
    using T = decltype(storage);
    const Bound<compute_t<T>, Kernel> f(task.numbers);
    error = launch_one<T>(task.plan, task.data, f, stream, std::make_index_sequence<Kernel::kInputs>{});
  });
  return error;
}

template <class List>
struct All;
template <class... Op>
struct All<List<Op...>> {
  static constexpr Launch kernels[sizeof...(Op) + 1] = {
      launch<typename Op::Kernel>...}; // one more, because there may be none
};

} // namespace elementwise::cuda

#define ELEMENTWISE_OPERATORS(library, Operators) \
  const elementwise::cuda::Launch* const elementwise::cuda::kernels = All<Operators>::kernels;
