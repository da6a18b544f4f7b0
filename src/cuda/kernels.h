// What nvcc compiles, seen from the host compiler: no torch header goes through nvcc.
#pragma once

#include <cstdint>

#include "../elementwise.h"
#include "../strided.h"

namespace muladd_nb::cuda {

// Launches out = function(a, b) on `stream` of the current device and does not wait for it. Returns the
// CUDA error, or nullptr.
const char* launch(
    Function function, double c, Dtype dtype, const Plan& plan, void* out, const void* a, const void* b, void* stream);

} // namespace muladd_nb::cuda
