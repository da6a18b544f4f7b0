// The Python module muladd_nb._C, compiled against CPython's stable ABI.
//
// Importing it loads this shared object, whose static initializers (the STABLE_TORCH_LIBRARY blocks) register the
// operators. nanobind's split mode keeps nanobind's own code out of the binary: the module takes it from the package
// `nanobind-backend`.
#include "elementwise/python/bindings.h"
#include "operators.h"

NB_MODULE(_C, m) {
  elementwise::define_module<muladd_nb::Operators>(m);
}
