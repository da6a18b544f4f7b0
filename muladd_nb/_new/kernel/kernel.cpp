// @name@: its schema, the checks of its arguments, and the call of its kernel.
#include "@stem@.h"

#include "elementwise/own_kernel/kernel.h"

ELEMENTWISE_KERNEL(my_ops, @stem@, @functor@)

#ifndef ELEMENTWISE_ISA // the kernel is compiled for each instruction set, and the rest once

namespace my_ops {
namespace {

using torch::stable::Tensor;

constexpr elementwise::KernelSignature kSignature(@space@"@schema@");
constexpr elementwise::contract::Caller kOperator{kSignature, elementwise::functional};

@result@ run(@parameters@) {
@check@
@contiguous@
@allocate@
  const @functor@<void> kernel{
@given@
  };
  elementwise::launch(kOperator, kernel, @first@, @first@.numel());
@write_back@
@return@
}

} // namespace
} // namespace my_ops

STABLE_TORCH_LIBRARY_FRAGMENT(my_ops, library) {
  if (!elementwise::registered_before()) library.def(my_ops::kSignature.schema);
}

STABLE_TORCH_LIBRARY_IMPL(my_ops, CPU, library) {
  if (!elementwise::registered_before()) library.impl("@name@", TORCH_BOX(&my_ops::run));
}

#ifdef ELEMENTWISE_CUDA
STABLE_TORCH_LIBRARY_IMPL(my_ops, CUDA, library) {
  if (!elementwise::registered_before()) library.impl("@name@", TORCH_BOX(&my_ops::run));
}
#endif

#endif
