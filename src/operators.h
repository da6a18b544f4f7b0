// The list of the operators: the declaration of each, its functor, and the forms in which it is registered.
// elementwise/operator.h says which schemas these forms have.
#pragma once

#include "elementwise/operator.h"
#include "functors.h"

namespace muladd_nb {

using elementwise::differentiable, elementwise::same_shape, elementwise::Operator;
using elementwise::functional, elementwise::writing, elementwise::out;

// clang-format off
using Operators = elementwise::List<
    Operator<"mymuladd(Tensor a, Tensor b, float c)", MulAdd,
             functional | writing | out | same_shape | differentiable>,
    Operator<"mymuladd.Tensor(Tensor a, Tensor b, Tensor c)", MulAdd, functional | writing | out | differentiable>,
    Operator<"mymul(Tensor a, Tensor b)", Mul, functional | writing | out | same_shape | differentiable>,
    Operator<"myadd(Tensor a, Tensor b)", Add, writing | same_shape>
>;
// clang-format on

} // namespace muladd_nb
