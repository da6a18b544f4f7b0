// Describes one call for a kernel of either backend.
#pragma once

#include "strided.h"

namespace elementwise {

struct Task {
  size_t index; // which kernel, in the list of all operators
  int32_t dtype;
  const Number* numbers; // the arguments that are not tensors
  const Plan& plan;
  void* const* data; // the addresses of the results, then of the inputs
};

} // namespace elementwise
