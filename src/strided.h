// Strided iteration, shared by CPU and CUDA: which elements of out, a and b belong together, in the
// order of out's memory and in as few dimensions as possible. No input is ever copied to be read.
#pragma once

#include <cstdint>

namespace muladd_nb {

// Dimensions of size one are dropped, and every other one at least doubles the memory of `out`, so a
// tensor that exists has fewer than 64 of them.
constexpr int kMaxDims = 64;
constexpr int kOperands = 3; // out, a, b

// Dimension 0 is the innermost. Sizes and strides count elements.
struct Plan {
  int dims = 0;
  int64_t size[kMaxDims];
  int64_t stride[kOperands][kMaxDims];

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < dims; d++) n *= size[d];
    return n;
  }

  bool contiguous() const {
    return dims == 0 || (dims == 1 && stride[0][0] == 1 && stride[1][0] == 1 && stride[2][0] == 1);
  }
};

inline Plan make_plan(int64_t dim, const int64_t* sizes, const int64_t* out, const int64_t* a, const int64_t* b) {
  Plan plan;
  // Insertion sort by out's stride; tensors mostly come sorted, with the last dimension innermost.
  for (int64_t d = dim - 1; d >= 0; d--) {
    if (sizes[d] == 1) continue;
    int at = plan.dims++;
    for (; at > 0 && plan.stride[0][at - 1] > out[d]; at--) {
      plan.size[at] = plan.size[at - 1];
      for (auto& stride : plan.stride) stride[at] = stride[at - 1];
    }
    plan.size[at] = sizes[d];
    plan.stride[0][at] = out[d];
    plan.stride[1][at] = a[d];
    plan.stride[2][at] = b[d];
  }
  // Two neighbours are one dimension where the outer one continues the inner one in all operands.
  int last = 0;
  for (int d = 1; d < plan.dims; d++) {
    bool continues = true;
    for (auto& stride : plan.stride) continues &= stride[d] == stride[last] * plan.size[last];
    if (continues) {
      plan.size[last] *= plan.size[d];
    } else {
      last++;
      plan.size[last] = plan.size[d];
      for (auto& stride : plan.stride) stride[last] = stride[d];
    }
  }
  if (plan.dims > 0) plan.dims = last + 1;
  return plan;
}

} // namespace muladd_nb
