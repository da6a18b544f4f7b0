// Operators over rows, as the build compiles those of a project.
#include "elementwise/elementwise.h"
#include "rows/operators.h"

ELEMENTWISE_OPERATORS(row_ops, row_ops::Operators)
