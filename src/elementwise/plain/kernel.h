// What an operator that is not element-wise takes from here: the sentences of the contract, and where its kernel runs.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "../contract.h"
#include "../copies.h"
#include "../tensor.h"
#include "element.h"

#ifdef ELEMENTWISE_CUDA
#include "../cuda/backend.h"
#endif

namespace elementwise {

inline Operand operand(std::string_view name, const torch::stable::Tensor& x) {
  return operand(name, x.get());
}

// Refuses tensors that are not floating-point, or not of the dtype, device and shape of the first.
inline void check_alike(const contract::Caller& op, std::initializer_list<Operand> tensors) {
  const Operand& first = *tensors.begin();
  contract::check_dtype(op, ValuesOf<FloatingPoint>::dtypes, first);
  for (const Operand& x : tensors) contract::check_same(op, first, x);
}

} // namespace elementwise
