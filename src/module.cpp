// The Python module muladd_nb._C, and the only file that sees Python.h.
//
// Importing it loads this shared object, whose static initializers (the STABLE_TORCH_LIBRARY blocks)
// register the operators. nanobind's split mode keeps nanobind itself out of the binary: the stub asks
// the package `nanobind-backend` for it, and is compiled against CPython's stable ABI.
#include "elementwise/python/bindings.h"
#include "operators.h"

NB_MODULE(_C, m) {
  elementwise::define_module<muladd_nb::Operators>(m);
}
