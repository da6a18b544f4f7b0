// The Python module muladd_nb._C, and the only file that sees Python.h.
//
// Importing it loads this shared object, whose static initializers (the STABLE_TORCH_LIBRARY blocks)
// register the operators. nanobind's split mode keeps nanobind itself out of the binary: the stub asks
// the package `nanobind-backend` for it, and is compiled against CPython's stable ABI.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "elementwise/contract.h"
#include "elementwise/copies.h"
#include "elementwise/cpu/isa.h"
#include "elementwise/overlap.h"
#include "operators.h"

NB_MODULE(_C, m) {
  m.def("simd_level", [] { return elementwise::cpu::isa().name; });
  m.def("conflict", elementwise::conflict);
  // Every operator: its declaration, the form and the name it has in the dispatcher, and its dtypes.
  m.def("operators", [] {
    std::vector<std::tuple<std::string, unsigned, std::string, std::vector<std::string>>> all;
    elementwise::for_each_form(muladd_nb::Operators{}, [&]<class Op, unsigned form>() {
      const auto& [signature, dtypes, kernel] = elementwise::DescriptionOf<muladd_nb::Operators, Op>::value;
      std::vector<std::string> names;
      for (size_t i = 0; i < dtypes.count; i++) names.push_back(elementwise::contract::dtype_name(dtypes.ordinals[i]));
      all.emplace_back(signature.declaration, form, signature.qualified(form), names);
    });
    return all;
  });
  // For the fake kernels, so that there is one answer.
  m.def("overlaps_itself", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    return elementwise::overlaps_itself(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data());
  });
}
