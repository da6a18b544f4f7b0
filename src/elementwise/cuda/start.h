// Launches a kernel: the only `<<<...>>>`. When a test compiles the kernels with the host compiler, its host.h has a
// loop instead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "error.h"

namespace elementwise::cuda {

// Every driver accepts a kernel whose parameters have at most this many bytes.
constexpr size_t kParameterBytes = 4096;

struct Limits {
  int64_t shared; // bytes of shared memory that a block may use
  int processors;
};

// A block has threads x teams threads, and `shared` bytes of shared memory.
struct Grid {
  int64_t blocks;
  int threads, teams;
  int64_t shared;
};

} // namespace elementwise::cuda

#ifdef __CUDACC__

namespace elementwise::cuda {

static_assert(
    int{Error::kNone} == cudaSuccess && int{Error::kInvalid} == cudaErrorInvalidValue &&
    int{Error::kOldDriver} == cudaErrorInsufficientDriver && int{Error::kNoCode} == cudaErrorNoKernelImageForDevice &&
    int{Error::kNewPtx} == cudaErrorUnsupportedPtxVersion);

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

// The shared memory that a block of threads may use on the current device, and the number of processors.
inline Limits limits_of_device() {
  Limits limits{48 * 1024, 1};
  int device = 0, shared = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&limits.processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess)
    limits.shared = std::max<int64_t>(limits.shared, shared) - 4096; // the kernel's own variables need the rest
  cudaGetLastError();
  return limits;
}

// The memory that a grid asks for.
__device__ inline std::byte* shared_memory() {
  extern __shared__ __align__(32) double elementwise_shared[]; // a Vector has up to 32 bytes
  return reinterpret_cast<std::byte*>(elementwise_shared);
}

// Starts a kernel on a stream of the current device, and does not wait for it. `blocks` is at least 1. If a grid cannot
// hold all blocks, the kernel's grid-stride loop does the rest.
template <class... Parameters>
Error start(
    void (*kernel)(Parameters...), const Grid& grid, void* stream,
    const std::type_identity_t<Parameters>&... arguments) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(grid.blocks, std::numeric_limits<int>::max()));
  // A block gets 48 KiB of shared memory, with the kernel's own variables, unless the launch asks for more. Every
  // launch asks for the most there is, because two threads may start the same kernel at once.
  if (grid.shared > 40 * 1024)
    cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(limits_of_device().shared));
  const dim3 threads(grid.threads, grid.teams);
  kernel<<<blocks, threads, grid.shared, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return last_error();
}
template <class... Parameters>
Error start(
    void (*kernel)(Parameters...), int64_t blocks, int threads, void* stream,
    const std::type_identity_t<Parameters>&... arguments) {
  return start(kernel, Grid{blocks, threads, 1, 0}, stream, arguments...);
}

} // namespace elementwise::cuda

#endif
