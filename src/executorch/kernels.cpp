// The kernels for the ExecuTorch runtime: the contract, the plan and the arithmetic are those of the kernels for torch.
// Memory and threads are the runtime's. It does not know exceptions: a kernel reports its failure to the
// context, and the sentence to the log.
#include "kernels.h"

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/thread_parallel_interface.h>

#include "../contract.h"
#include "../cpu/launch.h"
#include "../strided.h"

namespace muladd_nb::native {
namespace {

using ::executorch::runtime::Error;

// Sizes and strides as everything here counts them, in 64 bits. A tensor of ExecuTorch need not have strides:
// its memory is dense, in the order of its dim order. A program with more dimensions than the limit does not load.
class Argument {
 public:
  Argument(const char* name, const Tensor& tensor) : operand_{name} {
    operand_.dim = tensor.dim();
    operand_.sizes = sizes_;
    operand_.strides = strides_;
    operand_.dtype = static_cast<int32_t>(tensor.scalar_type());
    operand_.device_type = static_cast<int32_t>(tensor.device_type());
    operand_.device_index = tensor.device_index();
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), sizes_);
    int64_t stride = 1;
    for (int64_t i = operand_.dim - 1; i >= 0; i--) {
      const int64_t d = tensor.dim_order().data() ? tensor.dim_order()[i] : i;
      strides_[d] = stride;
      stride *= sizes_[d];
    }
  }

  const Operand& operator*() const {
    return operand_;
  }
  const Operand* operator->() const {
    return &operand_;
  }

 private:
  int64_t sizes_[::executorch::runtime::kTensorDimensionLimit];
  int64_t strides_[::executorch::runtime::kTensorDimensionLimit];
  Operand operand_;
};

void check_and_launch(const char* op, Function function, const Tensor& a, const Tensor& b, double c, Tensor& out) {
  const Argument x("a", a), y("b", b);
  const Dtype dtype = contract::check_dtype(op, *x);
  contract::check_same(op, *x, *y);
  // The memory plan has room for the largest shape; this call's may be a smaller one. An out that cannot
  // take it keeps its own, and check_same says so.
  (void)::executorch::runtime::resize_tensor(out, a.sizes());
  const Argument z("out", out);
  contract::check_same(op, *x, *z);
  void* const z_data = out.mutable_data_ptr();
  const void *const x_data = a.const_data_ptr(), *const y_data = b.const_data_ptr();
  contract::check_apart_or_same(op, *z, z_data, *x, x_data, element_size(dtype));
  contract::check_apart_or_same(op, *z, z_data, *y, y_data, element_size(dtype));
  if (z->numel() == 0) return;
  const Plan plan = make_plan(z->dim, z->sizes, z->strides, x->strides, y->strides);
  cpu::launch(function, c, dtype, plan, z_data, x_data, y_data, [op](int64_t end, int64_t grain, const auto& body) {
    if (!::executorch::extension::parallel_for(0, end, grain, body)) contract::fail(op, "the thread pool failed");
  });
}

Tensor& run(
    KernelRuntimeContext& context, const char* op, Function function, const Tensor& a, const Tensor& b, double c,
    Tensor& out) {
  try {
    check_and_launch(op, function, a, b, c, out);
  } catch (const std::exception& error) {
    ET_LOG(Error, "%s", error.what());
    context.fail(Error::InvalidArgument);
  }
  return out;
}

} // namespace

Tensor& mymuladd_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, double c, Tensor& out) {
  return run(context, "mymuladd.out", Function::muladd, a, b, c, out);
}

Tensor& mymul_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, Tensor& out) {
  return run(context, "mymul.out", Function::mul, a, b, 0, out);
}

} // namespace muladd_nb::native
