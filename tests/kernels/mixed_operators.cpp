#include "mixed.h"
// The kernels come after the operators, whose numbers they bind.
#include "elementwise/elementwise.h"

ELEMENTWISE_OPERATORS(mixed, mixed::Operators)
