// What a kernel is given to do, on whichever backend.
#pragma once

#include "strided.h"

namespace elementwise {

struct Task {
  size_t kernel; // its place in the list of operators
  int32_t dtype;
  const Number* numbers; // the arguments that are no tensors
  const Plan& plan;
  void* const* data; // of the results, then of the inputs
};

} // namespace elementwise
