// The CUDA backend: the tensor's device, the current stream, and the launch check. It is built against any torch,
// with CUDA or without, and loads in both.
#pragma once

#include <torch/csrc/stable/accelerator.h>

#include "../contract.h"
#include "launch.h"

// Of libtorch_cuda, which a torch without CUDA does not have: a weak symbol is null there and does not
// stop the module from loading. (Stream::nativeHandle(), its successor, came with torch 2.13.)
extern "C" __attribute__((weak)) AOTITorchError
aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace elementwise::cuda {

struct Backend {
  static void on_fresh_output(void*, size_t) {}

  static void launch(const contract::Caller& op, const Task& task, int32_t device_index) {
    const torch::stable::accelerator::DeviceGuard guard(device_index);
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_index, &stream));
    if (const char* error = kernels[task.kernel](task, stream))
      contract::fail(op, "the CUDA kernel could not be launched: ", error);
  }
};

} // namespace elementwise::cuda
