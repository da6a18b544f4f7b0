// The CUDA kernels: one for adjacent elements, one for strided ones.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>

#include "kernels.h"

namespace muladd_nb::cuda {
inline namespace device { // not unnamed: see elementwise.h

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

constexpr int kInFlight = 4; // vectors of each input that a thread loads before it computes

// The n elements of each operand lie side by side and all three pointers are multiples of 16 bytes.
template <class T, class F>
__global__ void __launch_bounds__(kThreads) adjacent(T* out, const T* a, const T* b, F f, int64_t n) {
  using V = Vector<T>;
  const int64_t vectors = n / V::kSize;
  const int64_t step = int64_t{gridDim.x} * kThreads * kInFlight;
  for (int64_t base = int64_t{blockIdx.x} * kThreads * kInFlight + threadIdx.x; base < vectors; base += step) {
    V x[kInFlight], y[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) {
      const int64_t i = base + k * kThreads;
      if (i < vectors) {
        x[k] = reinterpret_cast<const V*>(a)[i];
        y[k] = reinterpret_cast<const V*>(b)[i];
      }
    }
#pragma unroll
    for (int k = 0; k < kInFlight; k++) {
      const int64_t i = base + k * kThreads;
      if (i < vectors) {
        V result;
#pragma unroll
        for (int lane = 0; lane < V::kSize; lane++)
          result.lane[lane] = narrow<T>(f(widen(x[k].lane[lane]), widen(y[k].lane[lane])));
        reinterpret_cast<V*>(out)[i] = result;
      }
    }
  }
  const int64_t i = vectors * V::kSize + threadIdx.x; // the tail, in the first block
  if (blockIdx.x == 0 && i < n) out[i] = narrow<T>(f(widen(a[i]), widen(b[i])));
}

// The plan as the device reads it. Index arithmetic in 32 bits is several times cheaper than in 64, so
// the 64-bit form is used only where an offset needs it.
template <class Index>
struct DevicePlan {
  int dims;
  Index size[kMaxDims];
  Index stride[kOperands][kMaxDims];
};

template <class T, class F, class Index>
__global__ void __launch_bounds__(kThreads)
    strided(T* out, const T* a, const T* b, F f, int64_t n, const __grid_constant__ DevicePlan<Index> plan) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    Index rest = static_cast<Index>(i), offset[kOperands] = {};
    for (int d = 0; d < plan.dims; d++) {
      const Index quotient = d + 1 < plan.dims ? rest / plan.size[d] : 0;
      const Index index = rest - quotient * plan.size[d];
      rest = quotient;
#pragma unroll
      for (int operand = 0; operand < kOperands; operand++) offset[operand] += index * plan.stride[operand][d];
    }
    out[offset[0]] = narrow<T>(f(widen(a[offset[1]]), widen(b[offset[2]])));
  }
}

// Blocks past what the grid can hold are covered by the grid-stride loops.
unsigned blocks(int64_t n, int64_t per_block) {
  return static_cast<unsigned>(std::min<int64_t>((n + per_block - 1) / per_block, std::numeric_limits<int>::max()));
}

template <class T, class F, class Index>
void launch_strided(const Plan& plan, T* out, const T* a, const T* b, const F& f, int64_t n, cudaStream_t stream) {
  DevicePlan<Index> on_device;
  on_device.dims = plan.dims;
  for (int d = 0; d < plan.dims; d++) {
    on_device.size[d] = static_cast<Index>(plan.size[d]);
    for (int operand = 0; operand < kOperands; operand++)
      on_device.stride[operand][d] = static_cast<Index>(plan.stride[operand][d]);
  }
  strided<T, F, Index><<<blocks(n, kThreads), kThreads, 0, stream>>>(out, a, b, f, n, on_device);
}

bool fits_32_bits(const Plan& plan, int64_t n) {
  bool fits = n <= std::numeric_limits<int32_t>::max();
  for (const auto& stride : plan.stride) {
    int64_t extent = 0;
    for (int d = 0; d < plan.dims; d++) extent += stride[d] * (plan.size[d] - 1);
    fits &= extent <= std::numeric_limits<int32_t>::max();
  }
  return fits;
}

template <class T, class F>
void launch_one(const Plan& plan, T* out, const T* a, const T* b, const F& f, cudaStream_t stream) {
  const int64_t n = plan.numel();
  const bool aligned =
      (reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % 16 == 0;
  if (plan.contiguous() && aligned) {
    adjacent<<<blocks(n, int64_t{kThreads} * kInFlight * Vector<T>::kSize), kThreads, 0, stream>>>(out, a, b, f, n);
  } else if (fits_32_bits(plan, n)) {
    launch_strided<T, F, uint32_t>(plan, out, a, b, f, n, stream);
  } else {
    launch_strided<T, F, int64_t>(plan, out, a, b, f, n, stream);
  }
}

} // namespace device

const char* launch(
    Function function, double c, Dtype dtype, const Plan& plan, void* out, const void* a, const void* b, void* stream) {
  with_dtype(dtype, [&](auto storage) {
    using T = decltype(storage);
    with_functor<compute_t<T>>(function, c, [&](const auto& f) {
      launch_one(
          plan, static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), f,
          static_cast<cudaStream_t>(stream));
    });
  });
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

} // namespace muladd_nb::cuda
