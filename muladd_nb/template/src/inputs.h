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
[[noreturn]] inline void fail(const std::string& sentence) {
  throw std::runtime_error("mymul: " + sentence);
}

inline void check(const Tensor& a, const Tensor& b) {
  const ScalarType dtype = a.scalar_type();
  if (dtype != ScalarType::Float && dtype != ScalarType::Double) fail("a must be float32 or float64");
  if (a.device() != b.device()) fail("a and b must be on the same device");
  if (b.scalar_type() != dtype) fail("a and b must have the same dtype");
  const auto of_a = a.sizes(), of_b = b.sizes();
  if (!std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end())) fail("a and b must have the same shape");
}
