// The arithmetic of the operators.
#pragma once

#include "elementwise/math.h"

namespace my_ops::inline ELEMENTWISE_TARGET {

// A functor computes one element, or one row (elementwise/rows/row.h). Call elementwise::exp, not std::exp, because
// derivatives are made from the functor. elementwise/functor.h says what else a functor may use, how it names other
// dtypes than the four floating-point ones, and how one tensor or result gets a dtype of its own. If your functors call
// only functions of elementwise/math/basic.h, include that in place of math.h: short rows are then faster.

} // namespace my_ops::inline ELEMENTWISE_TARGET
