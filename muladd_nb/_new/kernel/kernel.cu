// @name@: the CUDA kernel.
#include "@stem@.h"

namespace my_ops {
namespace {

template <class T>
__global__ void kernel(@functor@<T> element, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) element(i);
}

} // namespace

// Launches the kernel for n elements, and returns an error, if there is one.
elementwise::cuda::Error @stem@_on_cuda(int32_t dtype, const void* given, int64_t n, void* stream) {
  constexpr int kThreads = 256;
  elementwise::cuda::Error error;
  elementwise::with_kernel<@functor@>(dtype, given, [&]<class T>(const @functor@<T>& element) {
    error = elementwise::cuda::start(kernel<T>, (n + kThreads - 1) / kThreads, kThreads, stream, element, n);
  });
  return error;
}

} // namespace my_ops
