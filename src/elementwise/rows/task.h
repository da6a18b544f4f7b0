// Describes a call to a kernel over rows.
#pragma once

#include <algorithm>

#include "../strided.h"

namespace elementwise::rows {

constexpr int kMostParts = 32;  // the rows of a call are divided into at most this many parts, for sums
constexpr int64_t kAtOnce = 64; // how many numbers are added in the type that the kernel computes in, before double

struct Task {
  size_t index; // of the kernel in the list of all operators' kernels
  int32_t dtype;
  const Number* numbers;
  int results, operands;
  uint32_t of_row = 0;   // bit k: the operand has one value for each row
  uint32_t summed = 0;   // bit k: the result is the sum over rows, because its tensor was broadcast to them
  uint32_t unwanted = 0; // bit k: nobody asks for the result, and it has no memory
  bool is_apart = true;  // no result shares memory with an input, so a row may be written while it is read

  int64_t size = 1;           // elements in a row
  int64_t step[kMaxOperands]; // from one element of a row to the next
  int dims = 0;               // how many other dimensions there are; the outermost comes first
  int64_t sizes[kMaxDims], stride[kMaxDims][kMaxOperands];
  int64_t count = 1;     // the number of rows
  int64_t last_size = 1; // of the last other dimension, before dimensions were merged

  void* data[kMaxOperands];
  int32_t dtypes[kMaxOperands];
  int64_t bytes[kMaxOperands]; // the size of an element
  int64_t numel[kMaxOperands]; // elements in memory

  bool is_of_row(int k) const {
    return of_row >> k & 1;
  }
  bool is_summed(int k) const {
    return summed >> k & 1;
  }
  bool is_unwanted(int k) const {
    return unwanted >> k & 1;
  }
  int64_t elements(int k) const { // of a row
    return is_of_row(k) ? 1 : size;
  }

  // The number of parts that the rows are divided into for sums over rows. Each part has memory for its own sums.
  int64_t parts() const {
    constexpr int64_t kMostMemory = 1 << 22; // elements
    int64_t summed_numel = 0;
    for (int k = 0; k < results; k++)
      if (is_summed(k)) summed_numel += numel[k];
    return std::clamp<int64_t>(
        count / 16, 1, std::clamp<int64_t>(kMostMemory / std::max<int64_t>(1, summed_numel), 1, kMostParts));
  }

  // After this many rows of a part, each element of the sums for result k consists of kAtOnce numbers, and is added to
  // another sum, which is double.
  int64_t rows_at_once(int k) const {
    return kAtOnce * std::max<int64_t>(1, numel[k] / std::max<int64_t>(1, elements(k)));
  }
};

} // namespace elementwise::rows
