#include "elementwise/elementwise.h"
#include "kernels.h"

ELEMENTWISE_OPERATORS(tested, tested::Operators)
