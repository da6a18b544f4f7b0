// What the Python module offers to the Python side of the library.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>

#include "../contract.h"
#include "../copies.h"
#include "../cpu/fresh.h"
#include "../cpu/isa.h"
#include "../derivatives.h"
#include "../overlap.h"
#include "reads.h"
#include "short_way.h"

namespace elementwise {

template <class Operators>
void define_module(nanobind::module_& m) {
  m.def("simd_level", [] { return cpu::isa().name; });
  m.def("conflict", conflict);
  python::define_short_way(m);
  // Reads the environment, so that what it has that no one can use is said at the import, and not at the first call.
  m.def("check_settings", [] {
    cpu::isa();
    cpu::wants_huge_pages();
  });
  // Python may import its files again, and the dispatcher keeps what the first ones registered.
  m.def("registered_from_python", [] {
    static std::atomic<bool> registered = false;
    return registered.exchange(true);
  });
  // Every operator: its declaration, the form and the name it has in the dispatcher, the dtypes of C, and those that
  // its results and its tensors have of their own, an empty name where they are of C; whether it broadcasts; and of a
  // derivative the declaration of what it is of, by which arguments, an empty name where a call says it, the arguments
  // that it reads beside the gradient, and what it is if that is a constant.
  m.def("operators", [] {
    using Names = std::vector<std::string>;
    using All = WithDerivatives<Operators>;
    std::vector<std::tuple<
        std::string, unsigned, std::string, Names, Names, Names, bool, std::string, Names, Names,
        std::optional<double>>>
        all;
    for_each_form(All{}, [&]<class Op, unsigned form>() {
      const Description& of = *DescriptionOf<All, Op>::values;
      Names names, results, inputs, by, read;
      std::string derivative_of;
      std::optional<double> constant;
      for (size_t i = 0; i < of.dtypes.count; i++) names.push_back(contract::dtype_name(of.dtypes.ordinals[i]));
      const auto name = [](const Own& own) { return own.ordinal < 0 ? "" : contract::dtype_name(own.ordinal); };
      for (int k = 0; k < Op::Kernel::kResults; k++) results.push_back(name(of.results[k]));
      for (int k = 0; k < Op::Kernel::kInputs; k++) inputs.push_back(name(of.inputs[k]));
      if constexpr (requires { typename Op::Of; }) {
        const Signature& base = Op::Of::signature;
        derivative_of = base.declaration;
        for (const int place : Op::by) by.emplace_back(place < 0 ? "" : base.arguments[place].name);
        const Reads reads = reads_of<typename Op::Of>(Op::by);
        for (int i = 0; i < base.count; i++)
          if (reads.arguments >> i & 1) read.emplace_back(base.arguments[i].name);
        if (!reads.arguments) constant = reads.constant;
      }
      all.emplace_back(
          of.signature.declaration, form, of.signature.qualified(form), names, results, inputs, of.broadcasts,
          derivative_of, by, read, constant);
    });
    return all;
  });
  // For the fake kernels, so that there is one answer.
  m.def("overlaps_itself", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    return overlaps_itself(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data());
  });
}

} // namespace elementwise
