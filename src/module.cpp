// The Python module muladd_nb._C, and the only file that sees Python.h.
//
// Importing it loads this shared object, whose static initializers (the STABLE_TORCH_LIBRARY blocks)
// register the operators. nanobind's split mode keeps nanobind itself out of the binary: the stub asks
// the package `nanobind-backend` for it, and is compiled against CPython's stable ABI.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "copies.h"
#include "cpu/simd.h"
#include "overlap.h"

NB_MODULE(_C, m) {
  m.def("simd_level", [] { return muladd_nb::cpu::isa().name; });
  m.def("conflict", muladd_nb::conflict);
  // For the fake kernels, so that there is one answer.
  m.def("overlaps_itself", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    return muladd_nb::overlaps_itself(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data());
  });
}
