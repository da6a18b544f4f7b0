// What a kernel over rows is given to do.
#pragma once

#include <algorithm>

#include "../strided.h"

namespace elementwise::rows {

struct Task {
  size_t index; // of the kernel, among those of all operators
  int32_t dtype;
  const Number* numbers;
  int results, operands;
  uint32_t of_row = 0;   // bit k: the operand has one value for each row
  uint32_t summed = 0;   // bit k: the result is summed, for it has a stride of 0 where its tensor was broadcast
  uint32_t unwanted = 0; // bit k: the result has no memory, and is not written
  bool is_apart = true;  // no result is an input: then a row may be written while it is computed

  int64_t size = 1;           // of a row
  int64_t step[kMaxOperands]; // from one element of it to the next
  int dims = 0;               // of the others, the outermost first
  int64_t sizes[kMaxDims], stride[kMaxDims][kMaxOperands];
  int64_t count = 1; // of rows
  int64_t last = 1;  // the size of the last dimension of these, before dimensions were put together

  void* data[kMaxOperands];
  int32_t dtypes[kMaxOperands];
  int64_t bytes[kMaxOperands]; // of an element
  int64_t numel[kMaxOperands]; // of results, in memory

  // In how many parts the rows are added up, whose sums have memory of their own.
  int64_t parts() const {
    constexpr int64_t kMostMemory = 1 << 22; // elements
    int64_t summed_numel = 0;
    for (int k = 0; k < results; k++)
      if (summed >> k & 1) summed_numel += numel[k];
    return std::clamp<int64_t>(
        count / 8, 1, std::clamp<int64_t>(kMostMemory / std::max<int64_t>(1, summed_numel), 1, 32));
  }
};

} // namespace elementwise::rows
