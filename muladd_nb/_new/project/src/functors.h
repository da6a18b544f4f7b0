// The arithmetic of the operators.
#pragma once

#include <cmath>

#include "elementwise/functor.h"

namespace my_ops::inline ELEMENTWISE_TARGET {

// A functor each, which computes one element. elementwise/functor.h says what it may use, how it names other dtypes
// than the four floating-point ones, and how the type of a parameter, or of the result, is a dtype of one tensor's own.

} // namespace my_ops::inline ELEMENTWISE_TARGET
