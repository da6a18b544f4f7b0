// What an operator that is not element-wise takes from here: the checks of the contract, memory for a result, and where
// its kernel runs.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <vector>

#include "../contract.h"
#include "../copies.h"
#include "../cpu/float_environment.h"
#include "../cpu/fresh.h"
#include "../cpu/isa.h"
#include "../tensor.h"
#include "element.h"

#if defined(ELEMENTWISE_CUDA) && !defined(ELEMENTWISE_CUDA_ON_HOST) // the test of CUDA kernels has its own
#include "../cuda/backend.h"

namespace elementwise::cuda {

inline bool runs(const torch::stable::Tensor& x) {
  return x.is_cuda();
}

} // namespace elementwise::cuda
#endif

namespace elementwise {

// A tensor by its name in the schema.
struct Named {
  std::string_view name;
  const torch::stable::Tensor& tensor;

  Operand operand(const contract::Caller& op) const {
    if (!tensor.defined()) contract::fail_none(op, name);
    return elementwise::operand(name, tensor.get());
  }
};

// Refuses None, tensors that are not floating-point, those that are not of the dtype, device and shape of the first,
// and elements past the end of a storage.
inline void check_alike(const contract::Caller& op, std::initializer_list<Named> tensors) {
  std::vector<Operand> operands;
  for (const Named& x : tensors) operands.push_back(x.operand(op));
  contract::check_inputs(op, ValuesOf<FloatingPoint>::dtypes, operands.data(), operands.size());
}

// Refuses the same of a tensor whose shape is not that of `first`, and whose dtype is one of a list: a weight, an
// index. What its shape and its values must be, only the operator knows.
template <class... Dtypes>
void check_beside(const contract::Caller& op, const Named& first, const Named& other, List<Dtypes...>) {
  const Operand x = other.operand(op);
  contract::check_inputs(op, ValuesOf<List<Dtypes...>>::dtypes, &x, 1);
  contract::check_same_device(op, first.operand(op), x);
}

// Returns a new tensor on the device of `like`, and of its dtype if there is no other.
inline torch::stable::Tensor empty(
    const contract::Caller& op, const torch::stable::Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef sizes,
    std::optional<torch::headeronly::ScalarType> dtype = std::nullopt) {
  try {
    torch::stable::Tensor result = torch::stable::new_empty(like, sizes, dtype);
    if (result.is_cpu()) cpu::on_fresh_output(result.mutable_data_ptr(), result.numel() * result.element_size());
    return result;
  } catch (const std::exception&) {
    Operand result = operand("out", like.get());
    if (dtype) result.dtype = static_cast<int32_t>(*dtype);
    result.dim = static_cast<int64_t>(sizes.size());
    result.sizes = sizes.data();
    contract::fail_to_allocate(op, result);
  }
}

// The loop for an instruction set, and what launches the kernel on CUDA.
using OnCpu = void(int32_t dtype, const void* kernel, int64_t begin, int64_t end);
using OnCuda = cuda::Error(int32_t dtype, const void* kernel, int64_t n, void* stream);

// Calls kernel(i) for each i below n, on the device of `x` and in its dtype; one call takes as long as `elements` do.
template <class Kernel>
void launch(
    [[maybe_unused]] const contract::Caller& op, const Kernel& kernel, const torch::stable::Tensor& x, int64_t n,
    int64_t elements = 1) {
  if (n == 0) return; // a grid of no blocks is an error
  const auto dtype = static_cast<int32_t>(x.scalar_type());
#ifdef ELEMENTWISE_CUDA
  if (cuda::runs(x)) {
    return cuda::on_device(
        op, x.get_device_index(), [&](void* stream) { return on_cuda(kernel)(dtype, &kernel, n, stream); });
  }
#endif
#ifndef ELEMENTWISE_CUDA_ON_HOST
  OnCpu* const run = on_cpu(kernel);
  const int64_t grain = 1 + 32 * 1024 / elements; // less is not worth another thread
  torch::stable::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
    const cpu::DefaultFloatEnvironment environment;
    run(dtype, &kernel, begin, end);
  });
#endif
}

} // namespace elementwise
