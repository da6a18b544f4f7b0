// What the Python module offers to the Python side of the library. The operators themselves are called through the
// dispatcher: no tensor passes through here.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "../contract.h"
#include "../copies.h"
#include "../cpu/fresh.h"
#include "../cpu/isa.h"
#include "../overlap.h"

namespace elementwise {

template <class Operators>
void define_module(nanobind::module_& m) {
  m.def("simd_level", [] { return cpu::isa().name; });
  m.def("conflict", conflict);
  // Reads the environment, so that what it has that no one can use is said at the import, and not at the first call.
  m.def("check_settings", [] {
    cpu::isa();
    cpu::wants_huge_pages();
  });
  // Python may import its files again, and the dispatcher keeps what the first ones registered.
  m.def("registered_from_python", [] {
    static bool registered = false;
    return std::exchange(registered, true);
  });
  // Every operator: its declaration, the form and the name it has in the dispatcher, and its dtypes.
  m.def("operators", [] {
    std::vector<std::tuple<std::string, unsigned, std::string, std::vector<std::string>>> all;
    for_each_form(Operators{}, [&]<class Op, unsigned form>() {
      const auto& [signature, dtypes, kernel] = DescriptionOf<Operators, Op>::value;
      std::vector<std::string> names;
      for (size_t i = 0; i < dtypes.count; i++) names.push_back(contract::dtype_name(dtypes.ordinals[i]));
      all.emplace_back(signature.declaration, form, signature.qualified(form), names);
    });
    return all;
  });
  // For the fake kernels, so that there is one answer.
  m.def("overlaps_itself", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    return overlaps_itself(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data());
  });
}

} // namespace elementwise
