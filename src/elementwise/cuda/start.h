// Launches a kernel: the only `<<<...>>>`. When a test compiles the kernels with the host compiler, its host.h has a
// loop instead.
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
  Error error{cudaGetLastError(), "", CUDART_VERSION}; // without this, a later call would report the error
  if (!error) return {};
  error.text = cudaGetErrorString(static_cast<cudaError_t>(error.code));
  int device = 0, major = 0, minor = 0;
  cudaDriverGetVersion(&error.driver_runs);
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess)
    error.capability = 10 * major + minor;
  cudaGetLastError(); // clears errors of the calls above
  return error;
}

// Starts a kernel on a stream of the current device, and does not wait for it. `blocks` is at least 1. If a grid cannot
// hold all blocks, the kernel's grid-stride loop does the rest.
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
