// What a kernel is given to do, on whichever backend.
#pragma once

#include "strided.h"

namespace elementwise {

struct Task {
  size_t index; // of the kernel, among those of all operators
  int32_t dtype;
  const Number* numbers; // the arguments that are no tensors
  const Plan& plan;
  void* const* data; // of the results, then of the inputs
};

} // namespace elementwise
