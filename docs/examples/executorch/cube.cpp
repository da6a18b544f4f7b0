// The kernel of example::cube.out, an operator that torch knows from Python alone (export.py). ExecuTorch's macro
// makes a boxed kernel of a function, and registers it.
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
#include <executorch/runtime/kernel/kernel_includes.h>

namespace {

using ::executorch::aten::ScalarType;
using ::executorch::aten::Tensor;
using ::executorch::runtime::KernelRuntimeContext;

Tensor& cube_out(KernelRuntimeContext& context, const Tensor& x, Tensor& out) {
  // These macros log what failed, tell the context and return `out`.
  ET_KERNEL_CHECK(context, x.scalar_type() == ScalarType::Float, InvalidArgument, out);
  ET_KERNEL_CHECK(context, ::executorch::runtime::tensors_have_same_dim_order(x, out), InvalidArgument, out);
  ET_KERNEL_CHECK(
      context, ::executorch::runtime::resize_tensor(out, x.sizes()) == torch::executor::Error::Ok, InvalidArgument,
      out);
  const float* const from = x.const_data_ptr<float>();
  float* const to = out.mutable_data_ptr<float>();
  for (ssize_t i = 0; i < x.numel(); i++) to[i] = from[i] * from[i] * from[i];
  return out;
}

} // namespace

EXECUTORCH_LIBRARY(example, "cube.out", cube_out);
