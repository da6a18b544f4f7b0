// The arithmetic of the operators.
#pragma once

#include "elementwise/math/basic.h"

namespace my_ops::inline ELEMENTWISE_TARGET {

// A functor each, which computes one element, and of which the derivatives are made: so it calls elementwise::abs, and
// not std::abs. For exp and its like, include "elementwise/math.h". elementwise/functor.h says what a functor may use,
// how it names other dtypes than the four floating-point ones, and how the type of a parameter, or of the result, is a
// dtype of one tensor's own.

} // namespace my_ops::inline ELEMENTWISE_TARGET
