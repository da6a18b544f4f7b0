// The arithmetic of the operators.
#pragma once

#include "elementwise/math.h"

namespace my_ops::inline ELEMENTWISE_TARGET {

// Each functor computes one element, and its derivatives are made from it: so it calls elementwise::exp, not std::exp.
// elementwise/functor.h says what a functor may use, how it names other dtypes than the four floating-point ones, and
// how the type of a parameter, or of the result, gives one tensor a dtype of its own. If your functors call only what
// elementwise/math/basic.h has, include that in place of math.h: short rows of sums and products are faster then.

} // namespace my_ops::inline ELEMENTWISE_TARGET
