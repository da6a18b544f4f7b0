// The functions that nvcc compiles, declared for the host compiler. nvcc compiles none of torch's headers.
#pragma once

#include <functional>

#include "../rows/task.h"
#include "../strided.h"
#include "error.h"

namespace elementwise::cuda {

// Launches a kernel on `stream` of the current device and does not wait for it.
using Launch = Error (*)(const Task& task, void* stream);

// The same for rows. allocate(bytes) returns memory that lives until the end of the call.
using Allocate = std::function<void*(int64_t bytes)>;
constexpr int kRowDims = 20; // the most dimensions of a rows::Task on CUDA: Backend refuses more
using LaunchRows = Error (*)(const rows::Task& task, void* stream, const Allocate& allocate);

// How an operator is launched: by `elements` if it is element-wise, by `rows` if it is over rows. The other is null.
struct Launcher {
  Launch elements;
  LaunchRows rows;
};
extern const Launcher* const launchers; // in the order of the list of operators

} // namespace elementwise::cuda
