// The functions that nvcc compiles, declared for the host compiler. nvcc compiles none of torch's headers.
#pragma once

#include "../task.h"
#include "error.h"

namespace elementwise::cuda {

// Launches a kernel on `stream` of the current device and does not wait for it.
using Launch = Error (*)(const Task& task, void* stream);

// In the order of the list of operators.
extern const Launch* const kernels;

} // namespace elementwise::cuda
