// Registers the operators with the runtime of ExecuTorch. They have the same checks, plans and kernels as in torch, and
// use the runtime's memory and threads. The runtime does not catch exceptions, so a kernel that fails sets an error in
// the context, and writes the message to the log.
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
#include "../cpu/rows.h"
#include "../rows/layout.h"
#include "../settings.h"

namespace elementwise::executorch {

namespace runtime = ::executorch::runtime;
using ::executorch::aten::Tensor;

// An ExecuTorch tensor as an Operand, with 64-bit sizes and strides. We compute the strides from the dim order, because
// the tensor may have none; its memory is dense. ExecuTorch does not load programs with more dimensions than its limit.
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

// Runs loops on the threads of the runtime.
struct ParallelFor {
  const contract::Caller& caller;
  void operator()(int64_t end, int64_t grain, const auto& body) const {
    cpu::in_pool(body, [&](const auto& caught) {
      if (!::executorch::extension::parallel_for(0, end, grain, caught))
        contract::fail(caller, "the thread pool failed");
    });
  }
};

// One call. `stack` has the arguments of the schema, and then `out`.
class Call {
 public:
  Call(const Description* of_kernels, runtime::EValue** stack)
      : caller_{of_kernels->signature, Form::out}, out_(stack[of_kernels->signature.count]->toTensor()) {
    int input = 0;
    op_ = contract::read_arguments(caller_, of_kernels, numbers_, [&](int i, const Argument& argument, Number& number) {
      if (argument.kind == Kind::optional && stack[i]->isNone()) return false;
      if (argument.is_tensor()) {
        tensors_[1 + input].emplace(argument.name, stack[i]->toTensor());
        operands_[1 + input] = tensors_[1 + input]->operand;
        arguments_[input++] = &argument;
      } else if (argument.kind == Kind::integer) {
        number.integer = stack[i]->toInt();
      } else if (argument.kind == Kind::boolean) {
        number.integer = stack[i]->toBool();
      } else if (argument.kind == Kind::sizes) {
        const auto sizes = stack[i]->toIntList();
        row_sizes_.emplace(sizes.data(), sizes.size());
        number.integer = static_cast<int64_t>(sizes.size());
      } else {
        const bool is_int = stack[i]->isInt(); // as a pass over the program may write it
        number.real = is_int ? static_cast<double>(stack[i]->toInt()) : stack[i]->toDouble();
      }
      return true;
    });
  }

  void launch() {
    const contract::Inputs checked(caller_, *op_, inputs());
    const Operand& first = operands_[1 + op_->first];
    find_out(first.dim, first.sizes);
    checked.check_out(caller_, first, operands_[0], op_->results[0]);
    void* data[kMaxOperands];
    const int64_t* strides[kMaxOperands];
    for (int k = 0; k < operands(); k++) {
      if (k > 0) contract::check_apart_or_same(caller_, operands_[0], operands_[k]);
      data[k] = operands_[k].data;
      strides[k] = operands_[k].strides;
    }
    if (operands_[0].numel() == 0) return;
    const Plan plan = make_plan(operands(), operands_[0].dim, operands_[0].sizes, strides);
    cpu::launch({op_->index, first.dtype, numbers_, plan, data}, ParallelFor{caller_});
  }

  void launch_over_rows() {
    rows::Layout layout(caller_, *op_, arguments_, operands_, 1, numbers_, row_sizes_);
    const contract::Inputs checked(caller_, *op_, inputs());
    const Operand whole = operands_[1];
    const rows::Shape shape = layout.shape_of(0, whole);
    find_out(shape.dim, shape.sizes);
    layout.check_result(0, whole);
    bool is_apart = true;
    for (int k = 0; k < operands(); k++) {
      const Operand& x = operands_[k];
      if (!layout.has_one_step(k))
        contract::fail(caller_, x.name, " must be contiguous, got strides ", contract::list(x.strides, x.dim));
      if (k == 0) continue;
      (layout.is_of_row(0) ? contract::check_apart : contract::check_apart_or_same)(caller_, operands_[0], x);
      is_apart &= x.data != operands_[0].data;
    }
    cpu::launch_rows(caller_, layout.task(whole, is_apart), ParallelFor{caller_});
  }

 private:
  int operands() const {
    return 1 + static_cast<int>(op_->count);
  }
  std::span<Operand> inputs() {
    return {operands_ + 1, op_->count};
  }
  // ExecuTorch plans memory for the largest shape of `out`; in this call it may be smaller. If `out` cannot be resized,
  // it keeps its shape, and the check of `out` raises the error.
  void find_out(int64_t dim, const int64_t* sizes) {
    (void)runtime::resize_tensor(out_, ::executorch::aten::ArrayRef<int64_t>(sizes, dim));
    operands_[0] = tensors_[0].emplace("out", out_).operand;
    contract::check_in_storage(caller_, operands_[0]);
  }

  const contract::Caller caller_;
  Tensor& out_;
  const Description* op_;
  Number numbers_[kMaxArguments];
  std::optional<std::span<const int64_t>> row_sizes_;
  const Argument* arguments_[kMaxInputs];
  std::optional<TensorArgument> tensors_[1 + kMaxInputs]; // `out`, then the inputs
  Operand operands_[1 + kMaxInputs];
};

template <class Operators, class Op>
void kernel(runtime::KernelRuntimeContext& context, runtime::Span<runtime::EValue*> stack) {
  const Description* const of_kernels = DescriptionOf<Operators, Op>::values.data();
  runtime::EventTracer* const tracer = context.internal_event_tracer();
  runtime::internal::EventTracerProfileOpScope scope(tracer, "native_call");
  try {
    Call call(of_kernels, stack.data());
    if constexpr (Op::is_over_rows)
      call.launch_over_rows();
    else
      call.launch();
  } catch (const std::exception& error) {
    ET_LOG(Error, "%s", error.what());
    context.fail(runtime::Error::InvalidArgument);
  }
  runtime::internal::event_tracer_log_evalue(tracer, *stack[of_kernels->signature.count]);
}

// Registers the out variants that the build has selected. If one is registered already, the runtime ends the process.
template <class Operators>
runtime::Error register_operators() {
  static const std::string selected = std::string(",") + ELEMENTWISE_EXECUTORCH + ",";
  std::vector<runtime::Kernel> kernels;
  for_each_form(Operators{}, [&]<class Op, unsigned form>() {
    if constexpr (form == Form::out) {
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
