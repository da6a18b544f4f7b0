// The Python module my_ops._C. Importing it loads this shared object, whose static initializers (the
// STABLE_TORCH_LIBRARY blocks) register the operators; it has nothing else to offer.
#include <nanobind/nanobind.h>

NB_MODULE(_C, m) {}
