// @name@: an element of the result, on the CPU and on CUDA.
#pragma once

#include <cmath>

#include "elementwise/plain/element.h"

namespace my_ops {

inline namespace ELEMENTWISE_TARGET {

template <class T>
ELEMENTWISE_FUNCTION void @name@_at(int64_t i, @parameters_of_elements@) {
  using C = elementwise::computed_t<T>; // float for the 16-bit types
@elements@
}

} // namespace ELEMENTWISE_TARGET

// Launches the kernel, and returns what is wrong, if anything is.
elementwise::cuda::Error @name@_on_cuda(int32_t dtype, @parameters_of_pointers@, int64_t n, void* stream);

} // namespace my_ops
