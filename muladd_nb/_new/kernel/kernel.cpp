// @name@: its schema, what it refuses, and where its kernel runs.
#include "@name@.h"

#include "elementwise/plain/kernel.h"

namespace my_ops {
namespace {

using torch::stable::Tensor;

constexpr elementwise::Signature kSignature("@declaration@");
constexpr elementwise::contract::Caller kOperator{kSignature, elementwise::functional};

@result@ run(@parameters@) {
  elementwise::check_alike(kOperator, {@operands@});
@contiguous@
@allocate@
  const int64_t n = @first_out@.numel();
  if (n == 0) return @returned@; // a grid of no blocks is an error
  const auto dtype = static_cast<int32_t>(@first@.scalar_type());
#ifdef ELEMENTWISE_CUDA
  if (elementwise::cuda::runs(@first@)) {
    elementwise::cuda::on_device(kOperator, @first@.get_device_index(), [&](void* stream) {
      return @name@_on_cuda(dtype, @pointers@, n, stream);
    });
    return @returned@;
  }
#endif
  elementwise::with_element(dtype, [&](auto element) {
    using T = decltype(element);
@data@
    constexpr int64_t kGrain = 32 * 1024; // less is not worth another thread
    torch::stable::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) @name@_at(i, @arguments@);
    });
  });
  return @returned@;
}

} // namespace
} // namespace my_ops

STABLE_TORCH_LIBRARY_FRAGMENT(my_ops, library) {
  if (!elementwise::registered_before()) library.def("@schema@");
}

STABLE_TORCH_LIBRARY_IMPL(my_ops, CPU, library) {
  if (!elementwise::registered_before()) library.impl("@name@", TORCH_BOX(&my_ops::run));
}

#ifdef ELEMENTWISE_CUDA
STABLE_TORCH_LIBRARY_IMPL(my_ops, CUDA, library) {
  if (!elementwise::registered_before()) library.impl("@name@", TORCH_BOX(&my_ops::run));
}
#endif
