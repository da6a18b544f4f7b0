// The operators, element-wise and over rows: each one's declaration, the functor that computes it on every backend, and
// the forms in which it is offered. elementwise/operator.h says which schemas these are.
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
