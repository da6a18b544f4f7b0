#include "elementwise/elementwise.h"
#include "mixed.h"

ELEMENTWISE_OPERATORS(mixed, mixed::Operators)
