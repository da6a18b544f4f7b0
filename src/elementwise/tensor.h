// Handles of torch's tensors: Tensor borrows one, and OwnTensor owns one. torch::stable::Tensor also holds a
// shared_ptr; a call on few elements is about a tenth faster without it.
#pragma once

#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/headeronly/util/shim_utils.h>

#include <utility>

#include "contract.h"

namespace elementwise {

// A faster way to count a write, or null if python/ask_torch.h found none. It returns false if it did not count.
inline bool (*fast_bump_version)(AtenTensorHandle) = nullptr;

// No gradients are recorded while this exists, so that operators may write to a leaf that requires grad.
struct WithoutGradients {
  const bool was_enabled = aoti_torch_grad_mode_is_enabled();
  WithoutGradients() {
    aoti_torch_grad_mode_set_enabled(false);
  }
  ~WithoutGradients() {
    aoti_torch_grad_mode_set_enabled(was_enabled);
  }
};

// A tensor that someone else owns.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  explicit Tensor(StableIValue value) : handle_(torch::stable::detail::to<AtenTensorHandle>(value)) {}

  AtenTensorHandle get() const {
    return handle_;
  }

  // None becomes an undefined tensor: torch's parser accepts it wherever a schema says Tensor.
  bool undefined() const {
    bool defined;
    TORCH_ERROR_CODE_CHECK(aoti_torch_is_defined(handle_, &defined));
    return !defined;
  }

  Operand operand(std::string_view name) const {
    Operand x{name};
    int64_t *sizes, *strides;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(handle_, &x.dim));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle_, &sizes));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle_, &strides));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(handle_, &x.dtype));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(handle_, &x.device_type));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(handle_, &x.device_index));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(handle_, &x.offset));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(handle_, &x.storage_bytes));
    x.element_bytes = static_cast<int64_t>(aoti_torch_dtype_element_size(x.dtype));
    x.sizes = sizes;
    x.strides = strides;
    x.data = const_cast<void*>(data());
    return x;
  }

  const void* data() const {
    const void* data;
    TORCH_ERROR_CODE_CHECK(torch_get_const_data_ptr(handle_, &data));
    return data;
  }

  // Increments the version counter, so that a backward pass raises if it saved this tensor and it was overwritten
  // since. The stable ABI has no function for that. But ATen operators that write do it, and copying a tensor onto
  // itself has no other effect. Returns false if the tensor was made in inference mode and may not be written outside
  // of it.
  bool bump_version() const {
    if (fast_bump_version && fast_bump_version(handle_)) return true;
    const WithoutGradients guard;
    return aoti_torch_copy_(handle_, handle_, 0) == TORCH_SUCCESS;
  }

  void* mutable_data() const {
    void* data;
    TORCH_ERROR_CODE_CHECK(torch_get_mutable_data_ptr(handle_, &data));
    return data;
  }

 protected:
  AtenTensorHandle handle_ = nullptr;
};

// A tensor that this object owns.
class OwnTensor : public Tensor {
 public:
  using Tensor::Tensor; // takes over the caller's reference
  OwnTensor(OwnTensor&& other) noexcept : Tensor(std::exchange(other.handle_, nullptr)) {}
  OwnTensor& operator=(OwnTensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~OwnTensor() {
    if (handle_) aoti_torch_delete_tensor_object(handle_);
  }

  // Passes the reference on, as the result of an operator.
  StableIValue release() {
    return torch::stable::detail::from(std::exchange(handle_, nullptr));
  }
};

// Returns the tensor of a `Tensor?` argument; its handle is null if it is absent.
inline Tensor optional_tensor(StableIValue value) {
  const auto* const of_value = torch::stable::detail::to<StableIValue*>(value);
  if (!of_value) return {};
  const Tensor x(*of_value);
  return x.undefined() ? Tensor() : x;
}

} // namespace elementwise
