// @name@: the parameters of its kernel, and how it computes an element, on the CPU and on CUDA.
#pragma once

#include <cmath>

#include "elementwise/own_kernel/element.h"

namespace my_ops::inline ELEMENTWISE_TARGET {

template <class T>
struct @functor@ {
@members@

  // Computes the i-th element.
  ELEMENTWISE_FUNCTION void operator()(int64_t i) const {
    using C = elementwise::compute_t<T>; // float for the 16-bit types
@elements@
  }
};

} // namespace my_ops::inline ELEMENTWISE_TARGET
