// Lets the host compiler compile CUDA kernels, for their test. A launch is a loop over the blocks and their threads,
// one after the other, so a kernel must not wait for other threads.
#pragma once

#define ELEMENTWISE_CUDA_ON_HOST
#define __launch_bounds__(...)
#define __grid_constant__

// CUDA's headers can be compiled for the host, where __global__ and similar words are empty. Without these headers, the
// declarations below are enough for a kernel of one's own.
#if __has_include(<cuda_fp16.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#define __global__
#define __device__
#define __host__
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
#endif

#include <cstdlib>

#include "elementwise/cuda/start.h"

inline uint3 blockIdx, threadIdx;
inline dim3 gridDim, blockDim;

namespace elementwise::cuda {

// A test changes these: how many blocks a grid can hold, and whether only the first and the last two blocks run.
inline int64_t most_blocks = std::numeric_limits<int>::max();
inline bool ends_alone = false;

template <class... Parameters>
Error start(
    void (*kernel)(Parameters...), int64_t blocks, int threads, void*,
    const std::type_identity_t<Parameters>&... arguments) {
  const char* const most = std::getenv("ELEMENTWISE_MOST_BLOCKS"); // a test in Python sets it
  gridDim.x = static_cast<unsigned>(std::min(blocks, most ? std::atol(most) : most_blocks));
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
    if (ends_alone && blockIdx.x > 0) blockIdx.x = std::max(blockIdx.x, gridDim.x - 2);
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) kernel(arguments...);
  }
  return {};
}

// For kernels that are not element-wise: treats every tensor as one of this device.
template <class Tensor>
bool runs(const Tensor&) {
  return true;
}
template <class Caller, class Run>
void on_device(const Caller&, int32_t, const Run& run) {
  run(nullptr);
}

} // namespace elementwise::cuda
