// The plan of a call, shared by CPU and CUDA: a nest of loops, with the stride of each operand in each loop. The loops
// go in the order of one operand's memory, usually the first result's, and there are as few as possible. No input is
// copied as a whole; the CPU kernels pack at most a few thousand elements at a time. A kernel gets the plan in a Task.
//
// Example: out and x are contiguous 2 x 3 x 4 tensors, and y is broadcast from 4 elements. In out and x the dimensions
// of sizes 2 and 3 continue each other, and in y both have the stride 0, so the plan has two dimensions:
//
//   d = 0: size 4, strides {1, 1, 1};  d = 1: size 6, strides {4, 4, 0}
#pragma once

#include <cstdint>

#include "operator.h"

namespace elementwise {

// Dimensions of size 1 are dropped, and each other dimension at least doubles the number of elements, so a tensor that
// fits into memory has fewer than 64.
constexpr int kMaxDims = 64;

// Dimension 0 is the innermost. The operands are the results, and then the inputs. Sizes and strides count elements.
struct Plan {
  int operands;
  int dims = 0;
  int64_t size[kMaxDims];
  int64_t stride[kMaxDims][kMaxOperands];

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < dims; d++) n *= size[d];
    return n;
  }

  // Whether the elements of every operand with an address are adjacent, in the same order.
  bool contiguous(void* const* data) const {
    bool adjacent = dims < 2;
    for (int k = 0; k < operands && dims == 1; k++) adjacent &= stride[0][k] == 1 || !data[k];
    return adjacent;
  }
};

// `by` is the operand whose memory decides the order of the loops: an output, or an input if outputs are summed.
// Strides that are null are 0.
inline Plan make_plan(int operands, int64_t dim, const int64_t* sizes, const int64_t* const* strides, int by = 0) {
  Plan plan;
  plan.operands = operands;
  const auto set = [&plan, operands](int at, int64_t size, const auto& stride_of) {
    plan.size[at] = size;
    for (int k = 0; k < operands; k++) plan.stride[at][k] = stride_of(k);
  };
  // Insertion sort by the stride of that operand; tensors mostly come sorted, with the last dimension innermost.
  for (int64_t d = dim - 1; d >= 0; d--) {
    if (sizes[d] == 1) continue;
    int at = plan.dims++;
    for (; at > 0 && plan.stride[at - 1][by] > strides[by][d]; at--)
      set(at, plan.size[at - 1], [&](int k) { return plan.stride[at - 1][k]; });
    set(at, sizes[d], [&](int k) { return strides[k] ? strides[k][d] : 0; });
  }
  // Two neighbouring dimensions are merged if the outer one continues the inner one in all operands.
  int last = 0;
  for (int d = 1; d < plan.dims; d++) {
    bool continues = true;
    for (int k = 0; k < operands; k++) continues &= plan.stride[d][k] == plan.stride[last][k] * plan.size[last];
    if (continues) {
      plan.size[last] *= plan.size[d];
    } else {
      set(++last, plan.size[d], [&](int k) { return plan.stride[d][k]; });
    }
  }
  if (plan.dims > 0) plan.dims = last + 1;
  return plan;
}

// One call, as a kernel of either backend gets it.
struct Task {
  size_t index; // which kernel, in the list of all operators
  int32_t dtype;
  const Number* numbers; // the arguments that are not tensors
  const Plan& plan;
  // The addresses of the results, then of the inputs. A result whose address is null is not written. Its strides are 0,
  // unless results are summed.
  void* const* data;
};

} // namespace elementwise
