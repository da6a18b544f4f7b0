// Where a kernel starts: the one `<<<...>>>`. Where the host compiler compiles kernels, for their test, host.h beside
// that has a loop in its place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "error.h"

#ifdef __CUDACC__

namespace elementwise::cuda {

static_assert(
    int{Error::kNone} == cudaSuccess && int{Error::kOldDriver} == cudaErrorInsufficientDriver &&
    int{Error::kNoCode} == cudaErrorNoKernelImageForDevice && int{Error::kNewPtx} == cudaErrorUnsupportedPtxVersion);

inline Error last_error() {
  Error error{cudaGetLastError(), "", CUDART_VERSION}; // a launch that fails says so here, or much later and elsewhere
  if (!error) return {};
  error.text = cudaGetErrorString(static_cast<cudaError_t>(error.code));
  int device = 0, major = 0, minor = 0;
  cudaDriverGetVersion(&error.driver_runs);
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess)
    error.capability = 10 * major + minor;
  cudaGetLastError(); // of the questions above
  return error;
}

// Starts a kernel on a stream of the current device and does not wait for it. There must be a block; those past what a
// grid can hold are left to the kernel's grid-stride loop.
template <class... Parameters>
Error start(
    void (*kernel)(Parameters...), int64_t blocks, int threads, void* stream,
    const std::type_identity_t<Parameters>&... arguments) {
  const auto grid = static_cast<unsigned>(std::min<int64_t>(blocks, std::numeric_limits<int>::max()));
  kernel<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return last_error();
}

} // namespace elementwise::cuda

#endif
