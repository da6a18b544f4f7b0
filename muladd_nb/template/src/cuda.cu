// The CUDA kernel. It is built against any torch, with CUDA or without, and the module loads in both.
#include <torch/csrc/stable/accelerator.h>

#include "inputs.h"

// Of libtorch_cuda, which a torch without CUDA does not have: a weak symbol is null there, a strong one would
// stop the module from loading.
extern "C" __attribute__((weak)) AOTITorchError
aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace {

template <class T>
__global__ void multiply(const T* a, const T* b, T* out, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) out[i] = a[i] * b[i];
}

template <class T>
void launch(const Tensor& a, const Tensor& b, Tensor& out) {
  // The tensor's device and the current stream: torch orders the memory of `a` and `out` by that stream alone.
  const int32_t device = out.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  constexpr int64_t kThreads = 256, kBlocks = 1 << 20; // more elements are covered by the grid-stride loop
  const int64_t blocks = std::min((out.numel() + kThreads - 1) / kThreads, kBlocks);
  multiply<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      a.const_data_ptr<T>(), b.const_data_ptr<T>(), out.mutable_data_ptr<T>(), out.numel());
  const cudaError_t error = cudaGetLastError(); // a launch that fails says so here, or much later and elsewhere
  if (error != cudaSuccess) fail(std::string("the CUDA kernel could not be launched: ") + cudaGetErrorString(error));
}

Tensor run(Tensor a, Tensor b) {
  check(a, b);
  a = torch::stable::contiguous(a);
  b = torch::stable::contiguous(b);
  Tensor out = torch::stable::new_empty(a, a.sizes());
  if (out.numel() == 0) return out; // a grid of no blocks is an error
  if (a.scalar_type() == ScalarType::Float)
    launch<float>(a, b, out);
  else
    launch<double>(a, b, out);
  return out;
}

} // namespace

STABLE_TORCH_LIBRARY_IMPL(my_ops, CUDA, m) {
  m.impl("mymul", TORCH_BOX(&run));
}
