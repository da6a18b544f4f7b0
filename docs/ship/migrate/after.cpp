// silu_mul on libtorch's stable ABI, written by hand, for those who stay on setuptools.
#include <Python.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cmath>
#include <stdexcept>

namespace {

using torch::stable::Tensor;

Tensor silu_mul(const Tensor& x, const Tensor& y) {
  const bool alike = x.scalar_type() == torch::headeronly::ScalarType::Float && x.scalar_type() == y.scalar_type() &&
                     x.sizes().equals(y.sizes()) && x.is_contiguous() && y.is_contiguous();
  if (!alike) throw std::runtime_error("silu_mul: x and y must be contiguous float32 tensors of one shape");
  Tensor out = torch::stable::empty_like(x);
  const float* const from_x = x.const_data_ptr<float>();
  const float* const from_y = y.const_data_ptr<float>();
  float* const to = out.mutable_data_ptr<float>();
  torch::stable::parallel_for(0, x.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) to[i] = from_x[i] / (1 + std::exp(-from_x[i])) * from_y[i];
  });
  return out;
}

} // namespace

STABLE_TORCH_LIBRARY(after, m) {
  m.def("silu_mul(Tensor x, Tensor y) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(after, CPU, m) {
  m.impl("silu_mul", TORCH_BOX(&silu_mul));
}

// The module is empty: its import runs the registrations above.
PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C"};
  return PyModule_Create(&module);
}
