// The operators. This file is compiled for each instruction set, by nvcc, and for their registration: see
// elementwise/elementwise.h.
#include "operators.h"

#include "elementwise/elementwise.h"

ELEMENTWISE_OPERATORS(muladd_nb, muladd_nb::Operators)
