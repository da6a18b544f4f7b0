// What the Python module offers to the Python side of the library.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <span>

#include "../contract.h"
#include "../cpu/fresh.h"
#include "../cpu/isa.h"
#include "../derivatives.h"
#include "../overlap.h"
#include "../register_once.h"
#include "../settings.h"
#include "ask_torch.h"
#include "fast_path.h"
#include "reads.h"

namespace elementwise {

template <class Operators>
void define_module(nanobind::module_& m) {
  m.def("simd_level", [] { return cpu::isa().name; });
  m.def("conflict", conflict);
  python::define_questions(m);
  python::define_fast_path(m);
  // Reads the environment, so that what it has that no one can use is said at the import, and not at the first call.
  m.def("check_settings", [] {
    cpu::isa();
    cpu::wants_huge_pages();
    is_on("FAST_PATH");
  });
  m.def("wants_fast_path", [] { return is_on("FAST_PATH"); });
  // Python may import its files again, and the dispatcher keeps what the first ones registered.
  m.def("registered_from_python", [] {
    static std::atomic<bool> registered = false;
    return registered.exchange(true);
  });
  // What a declaration says, also one that stands in Python alone: the name of the operator, and of each argument its
  // name, what it is, and whether it is written to.
  m.def("read", [](const std::string& declaration) {
    try {
      const Signature signature(declaration);
      std::vector<std::tuple<std::string, std::string, bool>> arguments;
      for (const Argument& x : std::span(signature.arguments, signature.count))
        arguments.emplace_back(x.name, kKinds[static_cast<int>(x.kind)], x.is_written);
      return std::tuple(signature.qualified(functional), arguments);
    } catch (const char* error) {
      throw nanobind::value_error((declaration + ": " + error).c_str());
    }
  });
  // Every form of every operator: its declaration, which form it is, its name in the dispatcher, the dtypes of C, and
  // those that its results and its tensors have of their own, an empty name where they are of C; whether it broadcasts;
  // and of a derivative the declaration of what it is of, by which arguments, an empty name where a call says it, the
  // arguments that it reads beside the gradient, and what it is if that is a constant. Of an operator over rows, which
  // results and tensors have one value for each row; `by` names which derivative of it this is, and `reads` the tensors
  // that have one.
  m.def("operators", [] {
    using Names = std::vector<std::string>;
    using All = WithDerivatives<Operators>;
    nanobind::list all;
    for_each_form(All{}, [&]<class Op, unsigned form>() {
      const Description& described = DescriptionOf<All, Op>::values[0];
      const auto names = [](std::span<const int32_t> dtypes) {
        Names names;
        for (const int32_t dtype : dtypes) names.push_back(dtype == kOfC ? "" : contract::dtype_name(dtype));
        return names;
      };
      Names by, read;
      std::string of;
      std::optional<double> constant;
      if constexpr (requires { typename Op::Of; }) {
        const Signature& base = Op::Of::signature;
        of = base.declaration;
        if constexpr (Op::is_over_rows) {
          by.emplace_back(rows::kRoles[static_cast<int>(Op::role)]);
          for (size_t t = 0; t + 1 < Op::places.size(); t++) read.emplace_back(base.arguments[Op::places[t]].name);
        } else {
          for (const int place : Op::by) by.emplace_back(place < 0 ? "" : base.arguments[place].name);
          const Reads reads = reads_of<typename Op::Of>(Op::by);
          for (int i = 0; i < base.count; i++)
            if (reads.arguments >> i & 1) read.emplace_back(base.arguments[i].name);
          if (!reads.arguments && Op::Of::Kernel::kResults == 1) constant = reads.constant;
        }
      }
      nanobind::dict record;
      record["declaration"] = std::string(Op::signature.declaration);
      record["kind"] = form & functional ? "functional" : form & writing ? "writing" : form & out ? "out" : "updating";
      record["tensor_numbers"] = (form & tensor_numbers) != 0;
      record["name"] = Op::signature.qualified(form);
      record["dtypes"] = names(described.dtypes);
      record["of_results"] = names(Op::Kernel::OfResults::own);
      record["of_inputs"] = names(Op::Kernel::OfInputs::own);
      record["broadcasts"] = described.broadcasts;
      record["of_row"] = nanobind::none();
      if constexpr (Op::is_over_rows) {
        const auto flags = [](std::span<const bool> of_row) { return std::vector<bool>(of_row.begin(), of_row.end()); };
        record["of_row"] = std::pair(flags(Op::Kernel::OfResults::of_row), flags(Op::Kernel::OfInputs::of_row));
      }
      record["of"] = of;
      record["by"] = by;
      record["reads"] = read;
      record["constant"] = constant;
      all.append(record);
    });
    return all;
  });
  // For the fake kernels, so that there is one answer.
  m.def("overlaps_itself", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    return overlaps_itself(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data());
  });
}

} // namespace elementwise
