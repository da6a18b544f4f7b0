// Checks an index that a kernel has read from one tensor, before it reads another tensor there.
#pragma once

#include <cstdint>

#include "functor.h"

#if defined(__CUDACC__) // as CUDA's assert.h declares it
extern "C" __host__ __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
#endif

#if defined(__CUDA_ARCH__) || defined(ELEMENTWISE_CUDA_ON_HOST)
#define ELEMENTWISE_ON_DEVICE(...) __VA_ARGS__
#else // nvcc compiles functors for the host, too, where no one calls them
#define ELEMENTWISE_ON_DEVICE(...)
#endif

namespace elementwise::inline ELEMENTWISE_TARGET {

// On CUDA a wrong place stops the kernel, and the next call that waits for the device fails, as with torch's own
// kernels. To check before anything is written, each call would have to wait for the device. On the CPU, the caller has
// checked all places before the kernel runs: Checked in rows/row.h, or check_index in own_kernel/torch.h.
ELEMENTWISE_INLINE void check_place([[maybe_unused]] int64_t place, [[maybe_unused]] int64_t size) {
  ELEMENTWISE_ON_DEVICE(
      if (place < 0 || place >= size)
          __assertfail("a place that is read lies in its tensor", "elementwise", 0, "check_place", 1);)
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
