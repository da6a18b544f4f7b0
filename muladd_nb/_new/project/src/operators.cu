// The operators, as nvcc compiles them.
#include "operators.cpp"
