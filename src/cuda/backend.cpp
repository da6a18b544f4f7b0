// The CUDA backend: the tensor's device, the current stream, the launch check; and the registration of
// the CUDA kernels. It is built against any torch, with CUDA or without, and loads in both.
#include <torch/csrc/stable/accelerator.h>

#include "../operators.h"
#include "kernels.h"

// Of libtorch_cuda, which a torch without CUDA does not have: a weak symbol is null there and does not
// stop the module from loading. (Stream::nativeHandle(), its successor, came with torch 2.13.)
extern "C" __attribute__((weak)) AOTITorchError
aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace {

struct Cuda {
  static void on_fresh_output(void*, size_t) {}

  static void launch(
      const char* op, muladd_nb::Function function, double c, muladd_nb::Dtype dtype, const muladd_nb::Plan& plan,
      void* out, const void* a, const void* b, int32_t device_index) {
    const torch::stable::accelerator::DeviceGuard guard(device_index);
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_index, &stream));
    if (const char* error = muladd_nb::cuda::launch(function, c, dtype, plan, out, a, b, stream))
      muladd_nb::contract::fail(op, "the CUDA kernel could not be launched: ", error);
  }
};

} // namespace

MULADD_NB_REGISTER(CUDA, Cuda)
