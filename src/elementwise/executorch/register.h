// Registers the operators with the runtime of ExecuTorch. Checks, plan and kernels are the same as for torch; memory
// and threads are the runtime's. The runtime does not catch exceptions, so a kernel that fails sets an error in the
// context, and writes the message to the log.
#pragma once

#include <executorch/runtime/core/event_tracer_hooks.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/kernel/thread_parallel_interface.h>

#include <optional>
#include <vector>

#include "../contract.h"
#include "../cpu/launch.h"
#include "../settings.h"

namespace elementwise::executorch {

namespace runtime = ::executorch::runtime;
using ::executorch::aten::Tensor;

// An ExecuTorch tensor as an Operand, with 64-bit sizes and strides. The strides are computed, because the tensor may
// have none: its memory is dense, in the order of its dim order. ExecuTorch does not load programs with more dimensions
// than its limit.
struct TensorArgument {
  TensorArgument(std::string_view name, const Tensor& tensor) : operand{name} {
    operand.dim = tensor.dim();
    operand.sizes = sizes;
    operand.strides = strides;
    operand.dtype = static_cast<int32_t>(tensor.scalar_type());
    operand.element_bytes = tensor.element_size();
    operand.device_type = static_cast<int32_t>(tensor.device_type());
    operand.device_index = tensor.device_index();
    operand.storage_bytes = tensor.nbytes();
    operand.data = const_cast<void*>(tensor.const_data_ptr());
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), sizes);
    int64_t stride = 1;
    for (int64_t i = operand.dim - 1; i >= 0; i--) {
      const int64_t d = tensor.dim_order().data() ? tensor.dim_order()[i] : i;
      strides[d] = stride;
      stride *= sizes[d];
    }
  }
  TensorArgument(const TensorArgument&) = delete;

  int64_t sizes[runtime::kTensorDimensionLimit];
  int64_t strides[runtime::kTensorDimensionLimit];
  Operand operand;
};

// Runs one call. `stack` has the arguments of the schema, and then `out`.
inline void check_and_launch(const Description* of_kernels, runtime::EValue** stack) {
  const Signature& signature = of_kernels->signature;
  const contract::Caller caller{signature, Form::out};
  Number numbers[kMaxArguments];
  std::optional<TensorArgument> arguments[kMaxInputs];
  Operand operands[kMaxInputs];
  int inputs = 0;
  const Description& op =
      *contract::read_arguments(caller, of_kernels, numbers, [&](int i, const Argument& argument, Number& number) {
        if (argument.kind == Kind::optional && stack[i]->isNone()) return false;
        if (argument.is_tensor()) {
          operands[inputs] = arguments[inputs].emplace(argument.name, stack[i]->toTensor()).operand;
          inputs++;
        } else if (argument.kind == Kind::integer) {
          number.integer = stack[i]->toInt();
        } else if (argument.kind == Kind::boolean) {
          number.integer = stack[i]->toBool();
        } else {
          number.real = stack[i]->toDouble();
        }
        return true;
      });
  Tensor& out = stack[signature.count]->toTensor();
  const contract::Inputs checked(caller, op, {operands, op.count});
  const Operand& first = operands[op.first];
  // ExecuTorch plans memory for the largest shape of `out`; in this call it may be smaller. If `out` cannot be resized,
  // it keeps its shape, and check_out raises the error.
  (void)runtime::resize_tensor(out, ::executorch::aten::ArrayRef<int64_t>(first.sizes, first.dim));
  const TensorArgument out_argument("out", out);
  const Operand& result = out_argument.operand;
  checked.check_out(caller, first, result, op.results[0]);
  void* data[1 + kMaxInputs] = {result.data};
  const int64_t* strides[1 + kMaxInputs] = {result.strides};
  for (int k = 0; k < inputs; k++) {
    contract::check_apart_or_same(caller, result, operands[k]);
    data[1 + k] = operands[k].data;
    strides[1 + k] = operands[k].strides;
  }
  if (result.numel() == 0) return;
  const Plan plan = make_plan(1 + inputs, result.dim, result.sizes, strides);
  const auto parallel_for = [&caller](int64_t end, int64_t grain, const auto& body) {
    if (!::executorch::extension::parallel_for(0, end, grain, body)) contract::fail(caller, "the thread pool failed");
  };
  cpu::launch({op.index, first.dtype, numbers, plan, data}, parallel_for);
}

template <class Operators, class Op>
void kernel(runtime::KernelRuntimeContext& context, runtime::Span<runtime::EValue*> stack) {
  const Description* const of_kernels = DescriptionOf<Operators, Op>::values.data();
  runtime::EventTracer* const tracer = context.internal_event_tracer();
  runtime::internal::EventTracerProfileOpScope scope(tracer, "native_call");
  try {
    check_and_launch(of_kernels, stack.data());
  } catch (const std::exception& error) {
    ET_LOG(Error, "%s", error.what());
    context.fail(runtime::Error::InvalidArgument);
  }
  runtime::internal::event_tracer_log_evalue(tracer, *stack[of_kernels->signature.count]);
}

// Registers the out variants that the build has selected. The runtime ends the process if one is registered already.
template <class Operators>
runtime::Error register_operators() {
  static const std::string selected = std::string(",") + ELEMENTWISE_EXECUTORCH + ",";
  std::vector<runtime::Kernel> kernels;
  for_each_form(Operators{}, [&]<class Op, unsigned form>() {
    if constexpr (form == Form::out && !Op::is_over_rows) {
      static const std::string name =
          std::string(kLibrary) + "::" + Op::signature.qualified(form); // static, because the runtime refers to it
      if (selected.find("," + name + ",") != selected.npos) kernels.emplace_back(name.c_str(), kernel<Operators, Op>);
    }
  });
  return runtime::register_kernels({kernels.data(), kernels.size()});
}

} // namespace elementwise::executorch

#define ELEMENTWISE_OPERATORS(library, Operators) \
  [[maybe_unused]] static const auto registered = elementwise::executorch::register_operators<Operators>();
