// Compiles the operators for CUDA.
#include "operators.cpp"
