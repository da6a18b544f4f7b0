// A tensor argument of an operator: its name in the schema, and its metadata, read once from torch's or ExecuTorch's
// tensor. Sizes and strides count elements; the tensor owns them.
#pragma once

#include <cstdint>
#include <string_view>

namespace elementwise {

struct Operand {
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d = 0; d < dim; d++) n *= sizes[d];
    return n;
  }

  // The distance from the first element to just past the last one, in elements.
  int64_t extent() const {
    int64_t last = 0;
    for (int64_t d = 0; d < dim; d++) {
      if (sizes[d] == 0) return 0;
      last += strides[d] * (sizes[d] - 1);
    }
    return last + 1;
  }

  // As torch.Tensor.is_contiguous: the strides of dimensions of size one do not matter.
  bool contiguous() const {
    int64_t expected = 1;
    for (int64_t d = dim - 1; d >= 0; d--) {
      if (sizes[d] == 1) continue;
      if (strides[d] != expected) return numel() == 0;
      expected *= sizes[d];
    }
    return true;
  }

  std::string_view name;
  int64_t dim = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int32_t dtype = 0; // torch's ordinal, as for device_type
  int64_t element_bytes = 0;
  int32_t device_type = 0;
  int32_t device_index = 0;
  int64_t offset = 0;        // where the first element is in the storage, in elements
  int64_t storage_bytes = 0; // the size of the storage
  void* data = nullptr;      // the address of the first element
};

} // namespace elementwise
