// The operators of tests/over_rows, as the build compiles those of a project.
#include "elementwise/elementwise.h"
#include "over_rows/operators.h"

ELEMENTWISE_OPERATORS(row_ops, row_ops::Operators)
