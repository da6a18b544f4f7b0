// The operators for the runtime of ExecuTorch: the contract, the plan and the kernels are those for torch. Memory and
// threads are the runtime's. It does not know exceptions: a kernel reports its failure to the context, and the
// sentence to the log.
#pragma once

#include <executorch/runtime/core/event_tracer_hooks.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/kernel/thread_parallel_interface.h>

#include <vector>

#include "../contract.h"
#include "../cpu/launch.h"
#include "../environment.h"

namespace elementwise::executorch {

namespace runtime = ::executorch::runtime;
using ::executorch::aten::Tensor;

// Sizes and strides as everything here counts them, in 64 bits. A tensor of ExecuTorch need not have strides:
// its memory is dense, in the order of its dim order. A program with more dimensions than the limit does not load.
class TensorArgument {
 public:
  TensorArgument(std::string_view name, const Tensor& tensor) : operand_{name} {
    operand_.dim = tensor.dim();
    operand_.sizes = sizes_;
    operand_.strides = strides_;
    operand_.dtype = static_cast<int32_t>(tensor.scalar_type());
    operand_.device_type = static_cast<int32_t>(tensor.device_type());
    operand_.device_index = tensor.device_index();
    operand_.storage_bytes = tensor.nbytes();
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), sizes_);
    int64_t stride = 1;
    for (int64_t i = operand_.dim - 1; i >= 0; i--) {
      const int64_t d = tensor.dim_order().data() ? tensor.dim_order()[i] : i;
      strides_[d] = stride;
      stride *= sizes_[d];
    }
  }
  TensorArgument(const TensorArgument&) = delete;

  const Operand& operator*() const {
    return operand_;
  }

 private:
  int64_t sizes_[runtime::kTensorDimensionLimit];
  int64_t strides_[runtime::kTensorDimensionLimit];
  Operand operand_;
};

// The arguments on `stack` are those of the schema, then `out`.
template <size_t... K>
void check_and_launch(const Description& op, runtime::EValue** stack, std::index_sequence<K...>) {
  const Signature& signature = op.signature;
  const contract::Caller caller{signature, Form::out};
  Number numbers[kMaxArguments];
  std::pair<std::string_view, const Tensor*> inputs[sizeof...(K)];
  for (int i = 0, input = 0; i < signature.count; i++) {
    const Kind kind = signature.arguments[i].kind;
    if (kind == Kind::tensor) {
      inputs[input++] = {signature.arguments[i].name, &stack[i]->toTensor()};
    } else if (kind == Kind::integer) {
      numbers[i - input].integer = stack[i]->toInt();
    } else if (kind == Kind::boolean) {
      numbers[i - input].integer = stack[i]->toBool();
    } else {
      numbers[i - input].real = stack[i]->toDouble();
    }
  }
  Tensor& out = stack[signature.count]->toTensor();
  const TensorArgument arguments[] = {{inputs[K].first, *inputs[K].second}...};
  Operand operands[] = {*arguments[K]...};
  const contract::Inputs checked(caller, op, operands, std::size(operands));
  const Operand& first = operands[op.first];
  const int64_t bytes = checked.bytes();
  // The memory plan has room for the largest shape; this call's may be a smaller one. An out that cannot
  // take it keeps its own, and the check says so.
  (void)runtime::resize_tensor(out, ::executorch::aten::ArrayRef<int64_t>(first.sizes, first.dim));
  const TensorArgument out_argument("out", out);
  checked.check_out(caller, first, *out_argument, op.results[0]);
  void* const data[] = {out.mutable_data_ptr(), const_cast<void*>(inputs[K].second->const_data_ptr())...};
  (contract::check_apart_or_same(
       caller, *out_argument, data[0], op.results[0].bytes_or(bytes), operands[K], data[1 + K],
       op.inputs[K].bytes_or(bytes)),
   ...);
  if ((*out_argument).numel() == 0) return;
  const int64_t* const strides[] = {(*out_argument).strides, operands[K].strides...};
  const Plan plan = make_plan(std::size(strides), (*out_argument).dim, (*out_argument).sizes, strides);
  const auto parallel_for = [&caller](int64_t end, int64_t grain, const auto& body) {
    if (!::executorch::extension::parallel_for(0, end, grain, body)) contract::fail(caller, "the thread pool failed");
  };
  cpu::launch({op.kernel, first.dtype, numbers, plan, data}, parallel_for);
}

template <class Operators, class Op>
void kernel(runtime::KernelRuntimeContext& context, runtime::Span<runtime::EValue*> stack) {
  const Description& op = DescriptionOf<Operators, Op>::value;
  runtime::EventTracer* const tracer = context.internal_event_tracer();
  runtime::internal::EventTracerProfileOpScope scope(tracer, "native_call");
  try {
    check_and_launch(op, stack.data(), std::make_index_sequence<Op::Kernel::kInputs>{});
  } catch (const std::exception& error) {
    ET_LOG(Error, "%s", error.what());
    context.fail(runtime::Error::InvalidArgument);
  }
  runtime::internal::event_tracer_log_evalue(tracer, *stack[op.signature.count]);
}

// Registers the out variants that the build has selected. The runtime ends the process if one is registered already.
template <class Operators>
runtime::Error register_operators() {
  static const std::string selected = std::string(",") + ELEMENTWISE_EXECUTORCH + ",";
  std::vector<runtime::Kernel> kernels;
  for_each_form(Operators{}, [&]<class Op, unsigned form>() {
    if constexpr (form == Form::out) {
      static const std::string name =
          std::string(kLibrary) + "::" + Op::signature.qualified(form); // the runtime's, too
      if (selected.find("," + name + ",") != selected.npos) kernels.emplace_back(name.c_str(), kernel<Operators, Op>);
    }
  });
  return runtime::register_kernels({kernels.data(), kernels.size()});
}

} // namespace elementwise::executorch

#define ELEMENTWISE_OPERATORS(library, Operators) \
  [[maybe_unused]] static const auto registered = elementwise::executorch::register_operators<Operators>();
