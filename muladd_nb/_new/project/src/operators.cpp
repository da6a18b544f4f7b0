// The element-wise operators, compiled for each instruction set, by nvcc, and for their registration.
#include "operators.h"

#include "elementwise/elementwise.h"

ELEMENTWISE_OPERATORS(my_ops, my_ops::Operators)
