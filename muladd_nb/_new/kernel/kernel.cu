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

elementwise::cuda::Error @name@_on_cuda(int32_t dtype, @parameters_of_pointers@, int64_t n, void* stream) {
  constexpr int kThreads = 256;
  elementwise::cuda::Error error;
  elementwise::with_element(dtype, [&](auto element) {
    using T = decltype(element);
    error = elementwise::cuda::start(kernel<T>, (n + kThreads - 1) / kThreads, kThreads, stream, @cast_names@, n);
  });
  return error;
}

} // namespace my_ops
