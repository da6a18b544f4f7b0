// What every kernel refuses, and in which words.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <stdexcept>
#include <string>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// STD_TORCH_CHECK would put function, file and line before the sentence.
inline void require(bool ok, const std::string& sentence) {
  if (!ok) throw std::runtime_error("mymul: " + sentence);
}

inline void check(const Tensor& a, const Tensor& b) {
  const ScalarType dtype = a.scalar_type();
  require(dtype == ScalarType::Float || dtype == ScalarType::Double, "a must be float32 or float64");
  require(a.device() == b.device(), "a and b must be on the same device");
  require(b.scalar_type() == dtype, "a and b must have the same dtype");
  require(
      a.dim() == b.dim() && std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin()),
      "a and b must have the same shape");
}
