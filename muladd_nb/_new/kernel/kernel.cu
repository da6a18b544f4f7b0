// @name@: its kernel on CUDA.
#include "@name@.h"

namespace my_ops {
namespace {

template <class T>
__global__ void kernel(@parameters_of_elements@, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) @name@_at(i, @names@);
}

} // namespace

const char* @name@_on_cuda(int32_t dtype, @parameters_of_pointers@, int64_t n, void* stream) {
  constexpr int64_t kThreads = 256, kBlocks = 1 << 20; // more elements are covered by the grid-stride loop
  const int64_t needed = (n + kThreads - 1) / kThreads, blocks = needed < kBlocks ? needed : kBlocks;
  elementwise::with_element(dtype, [&](auto element) {
    using T = decltype(element);
    kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(@cast_names@, n);
  });
  const cudaError_t error = cudaGetLastError(); // a launch that fails says so here, or much later and elsewhere
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

} // namespace my_ops
