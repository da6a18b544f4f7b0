// The CUDA backend: the tensor's device, the current stream, and the launch check. It is built against any torch,
// with CUDA or without, and loads in both.
#pragma once

#include <torch/csrc/stable/accelerator.h>

#include <vector>

#include "../contract.h"
#include "../tensor.h"
#include "launch.h"

// A function of libtorch_cuda, which a torch without CUDA does not have: a weak symbol is null there and does not
// stop the module from loading. (Stream::nativeHandle(), its successor, came with torch 2.13.)
extern "C" __attribute__((weak)) AOTITorchError
aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace elementwise::cuda {

// Calls run(stream) on a device. If that returns an error, raises it.
void on_device(const contract::Caller& op, int32_t device_index, const auto& run) {
  const torch::stable::accelerator::DeviceGuard guard(device_index);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_index, &stream));
  if (const Error error = run(stream)) contract::fail(op, explain(error, driver_version()));
}

struct Backend {
  static constexpr int32_t kDeviceType = 1;

  static void on_fresh_output(void*, size_t) {}

  static void launch(const contract::Caller& op, const Task& task, int32_t device_index) {
    on_device(op, device_index, [&](void* stream) { return launchers[task.index].elements(task, stream); });
  }

  static void launch_sums(const contract::Caller& op, const Task&, uint32_t, const auto&) {
    contract::fail(
        op, "gradients of broadcast tensors are summed only on the CPU: expand the tensors, and sum their gradients");
  }

  static void launch_rows(const contract::Caller& op, const rows::Task& task, int32_t device_index) {
    if (task.dims > kRowDims)
      contract::fail(op, "on CUDA, rows have at most ", kRowDims, " dimensions that cannot be merged, got ", task.dims);
    std::vector<OwnTensor> memory; // torch's allocator does not reuse it on another stream too early
    const auto allocate = [&](int64_t bytes) {
      constexpr int64_t kStride = 1;
      AtenTensorHandle made;
      TORCH_ERROR_CODE_CHECK(
          aoti_torch_empty_strided(1, &bytes, &kStride, kOrdinal<uint8_t>, kDeviceType, device_index, &made));
      memory.emplace_back(made);
      return memory.back().mutable_data();
    };
    on_device(op, device_index, [&](void* stream) { return launchers[task.index].rows(task, stream, allocate); });
  }
};

} // namespace elementwise::cuda
