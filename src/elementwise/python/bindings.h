// The functions of the module `_C`, which the library's Python code calls.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <span>

#include "../contract.h"
#include "../cpu/machine.h"
#include "../derivatives.h"
#include "../overlap.h"
#include "../register_once.h"
#include "../settings.h"
#include "ask_torch.h"
#include "asks_for_index.h"
#include "fast_path.h"
#include "reads.h"

namespace elementwise {

template <class Operators>
void define_module(nanobind::module_& m) {
  m.def("simd_level", [] { return cpu::isa().name; });
  m.def("conflict", conflict);
  python::define_ask_torch(m);
  python::define_aten_node(m);
  python::define_fast_path(m);
  // Reads the environment variables at import, so that a wrong value is an error then, and not at the first call.
  m.def("check_settings", [] {
    cpu::isa();
    cpu::wants_huge_pages();
    is_on("FAST_PATH");
  });
  m.def("wants_fast_path", [] { return is_on("FAST_PATH"); });
  // Parses a declaration, even one that only Python has. Returns the name of the operator, and the name and the kind of
  // each argument.
  m.def("read", [](const std::string& declaration) {
    const Signature signature(declaration);
    if (signature.fault != Fault::none)
      throw nanobind::value_error((declaration + ": " + kSentences[static_cast<int>(signature.fault)]).c_str());
    std::vector<std::pair<std::string, std::string>> arguments;
    for (const Argument& x : std::span(signature.arguments, signature.count))
      arguments.emplace_back(x.name, kKinds[static_cast<int>(x.kind)]);
    return std::tuple(signature.qualified(functional), arguments);
  });
  // Returns a list with a dictionary for each form of each operator:
  //   declaration, kind, tensor_numbers, name  which form it is; its name in the dispatcher
  //   dtypes                  the dtypes that C may have
  //   of_results, of_inputs   the dtypes of results and tensors; empty strings for C
  //   broadcasts              whether tensors are broadcast
  //   choices                 for each number, the values that have their own kernels
  //   of_row                  which results and tensors have one value for each row; None if it is not over rows
  //   asks_for_index          whether its functor calls row.index()
  // and for a derivative:
  //   of                      the declaration of the operator that it is a derivative of
  //   role                    the arguments that it is with respect to; an empty string for one whose index is passed
  //                           in the call, or once for value and tangent; over rows, which derivative it is
  //   gradients_of            if it returns gradients in the shapes of arguments, these arguments
  //   reads                   the arguments that it reads, besides the gradient; not over rows
  //   constant                its value, if it is a constant
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
      Names role, gradients_of, reads;
      std::string of;
      std::optional<double> constant;
      if constexpr (requires { typename Op::Of; }) {
        const Signature& base = Op::Of::signature;
        of = base.declaration;
        if constexpr (Op::is_over_rows) {
          role.emplace_back(rows::kRoles[static_cast<int>(Op::role)]);
        } else {
          for (const int place : Op::by) role.emplace_back(place < 0 ? "" : base.arguments[place].name);
          const Reads found = reads_of<typename Op::Of>(Op::by);
          for (int i = 0; i < base.count; i++)
            if (found.arguments >> i & 1) reads.emplace_back(base.arguments[i].name);
          if (!found.arguments && Op::Of::Kernel::kResults == 1) constant = found.constant;
        }
        for (int k = 0; described.like && k < Op::Kernel::kResults; k++)
          gradients_of.emplace_back(base.arguments[described.like[k]].name);
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
      nanobind::dict choices;
      for (int i = 0; i < Op::signature.count; i++) {
        const Argument& argument = Op::signature.arguments[i];
        nanobind::list values;
        for (size_t k = 0; k < Op::choices[i].size; k++) {
          const int64_t value = Op::choices[i].values[k];
          values.append(
              argument.kind == Kind::boolean ? nanobind::object(nanobind::bool_(value)) : nanobind::int_(value));
        }
        if (Op::choices[i].values)
          choices[nanobind::str(argument.name.data(), argument.name.size())] = nanobind::tuple(values);
      }
      record["choices"] = choices;
      record["of_row"] = nanobind::none();
      record["asks_for_index"] = false;
      if constexpr (Op::is_over_rows) {
        const auto flags = [](std::span<const bool> of_row) { return std::vector<bool>(of_row.begin(), of_row.end()); };
        record["of_row"] = std::pair(flags(Op::Kernel::OfResults::of_row), flags(Op::Kernel::OfInputs::of_row));
        if constexpr (requires { typename Op::Of; })
          record["asks_for_index"] = finds_index(typename Op::Of::Kernel{});
        else
          record["asks_for_index"] = finds_index(typename Op::Kernel{});
      }
      record["of"] = of;
      record["role"] = role;
      record["gradients_of"] = gradients_of;
      record["reads"] = reads;
      record["constant"] = constant;
      all.append(record);
    });
    return all;
  });
  // The fake kernels call this, so that they decide as the real ones do.
  m.def("overlaps_itself", [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    return overlaps_itself(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data());
  });
  m.def(
      "overlap", [](const std::vector<int64_t>& x_sizes, const std::vector<int64_t>& x_strides, int64_t x_bytes,
                    const std::vector<int64_t>& y_sizes, const std::vector<int64_t>& y_strides, int64_t y_bytes,
                    int64_t distance) {
        const auto x_dim = static_cast<int64_t>(x_sizes.size()), y_dim = static_cast<int64_t>(y_sizes.size());
        return overlaps(
            {x_dim, x_sizes.data(), x_strides.data(), x_bytes}, {y_dim, y_sizes.data(), y_strides.data(), y_bytes},
            distance);
      });
}

} // namespace elementwise
