// Compiles the operators: for each instruction set, for CUDA (operators.cu), and once for their registration.
#include "operators.h"

#include "elementwise/elementwise.h"

ELEMENTWISE_OPERATORS(my_ops, my_ops::Operators)
