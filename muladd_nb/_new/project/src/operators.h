// The list of operators, element-wise and over rows. An entry has a declaration, the functor that computes the operator
// on every backend, and its forms. elementwise/operator.h says which schemas follow from these.
#pragma once

#include "elementwise/operator.h"
#include "functors.h"

namespace my_ops {

using elementwise::differentiable, elementwise::Operator;
using elementwise::functional, elementwise::writing, elementwise::out, elementwise::updating;

// clang-format off
using Operators = elementwise::List<
>;
// clang-format on

} // namespace my_ops
