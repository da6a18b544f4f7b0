// The operators, once for all backends: check, find or allocate the output, plan, launch.
//
// A backend is a type with two static functions:
//   void launch(const char* op, Function, double c, Dtype, const Plan&, void* out, const void* a,
//               const void* b, int32_t device_index)    computes out = function(a, b);
//   void on_fresh_output(void* data, size_t bytes)      is told of every new output before it is written.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "contract.h"
#include "elementwise.h"
#include "strided.h"

namespace muladd_nb {

template <class Backend>
struct Operators {
  using Tensor = torch::stable::Tensor;

  static Tensor mymuladd(const Tensor& a, const Tensor& b, double c) {
    return fresh("mymuladd", Function::muladd, a, b, c);
  }

  static Tensor mymul(const Tensor& a, const Tensor& b) {
    return fresh("mymul", Function::mul, a, b);
  }

  static void myadd_out(const Tensor& a, const Tensor& b, const Tensor& out) {
    into("myadd_out", Function::add, a, b, 0, out);
  }

  static void mymuladd_out(const Tensor& a, const Tensor& b, double c, const Tensor& out) {
    into("mymuladd_out", Function::muladd, a, b, c, out);
  }

  // The overloads named `out`, which ExecuTorch maps the functional operators to, return `out`.
  static Tensor mymuladd_dot_out(const Tensor& a, const Tensor& b, double c, const Tensor& out) {
    into("mymuladd.out", Function::muladd, a, b, c, out);
    return out;
  }

  static Tensor mymul_dot_out(const Tensor& a, const Tensor& b, const Tensor& out) {
    into("mymul.out", Function::mul, a, b, 0, out);
    return out;
  }

 private:
  static Tensor fresh(const char* op, Function function, const Tensor& a, const Tensor& b, double c = 0) {
    const Operand x("a", a), y("b", b);
    const Dtype dtype = check_inputs(op, x, y);
    const Tensor out = empty_like(a, x);
    const int64_t numel = out.numel();
    if (numel == 0) return out;
    void* const data = out.mutable_data_ptr();
    Backend::on_fresh_output(data, numel * element_size(dtype));
    run(op, function, c, dtype, Operand("out", out), data, x, a.const_data_ptr(), y, b.const_data_ptr());
    return out;
  }

  static void into(const char* op, Function function, const Tensor& a, const Tensor& b, double c, const Tensor& out) {
    const Operand x("a", a), y("b", b), z("out", out);
    const Dtype dtype = check_inputs(op, x, y);
    contract::check_same(op, x, z);
    contract::check_not_self_overlapping(op, z);
    if (out.numel() == 0) return;
    const void *x_data = a.const_data_ptr(), *y_data = b.const_data_ptr();
    void* const z_data = out.mutable_data_ptr();
    contract::check_apart_or_same(op, z, z_data, x, x_data, element_size(dtype));
    contract::check_apart_or_same(op, z, z_data, y, y_data, element_size(dtype));
    run(op, function, c, dtype, z, z_data, x, x_data, y, y_data);
  }

  static Dtype check_inputs(const char* op, const Operand& a, const Operand& b) {
    const Dtype dtype = contract::check_dtype(op, a);
    contract::check_same(op, a, b);
    return dtype;
  }

  // The strides of torch.empty_like. Those of a contiguous tensor are its own, and one call of the
  // allocator is 0.4 us cheaper than one through the dispatcher (benchmarks/per_call.py).
  static Tensor empty_like(const Tensor& a, const Operand& x) {
    if (!a.is_contiguous()) return torch::stable::empty_like(a);
    AtenTensorHandle out;
    TORCH_ERROR_CODE_CHECK(
        aoti_torch_empty_strided(x.dim, x.sizes, x.strides, x.dtype, x.device_type, x.device_index, &out));
    return Tensor(out);
  }

  static void run(
      const char* op, Function function, double c, Dtype dtype, const Operand& out, void* out_data, const Operand& a,
      const void* a_data, const Operand& b, const void* b_data) {
    const Plan plan = make_plan(out.dim, out.sizes, out.strides, a.strides, b.strides);
    Backend::launch(op, function, c, dtype, plan, out_data, a_data, b_data, out.device_index);
  }

  static size_t element_size(Dtype dtype) {
    return dtype == Dtype::float64 ? 8 : dtype == Dtype::float32 ? 4 : 2;
  }
};

} // namespace muladd_nb

// The block that registers a backend's kernels, the same list for each.
#define MULADD_NB_REGISTER(dispatch_key, Backend)                    \
  STABLE_TORCH_LIBRARY_IMPL(muladd_nb, dispatch_key, m) {            \
    using Operators = muladd_nb::Operators<Backend>;                 \
    m.impl("mymuladd", TORCH_BOX(&Operators::mymuladd));             \
    m.impl("mymul", TORCH_BOX(&Operators::mymul));                   \
    m.impl("myadd_out", TORCH_BOX(&Operators::myadd_out));           \
    m.impl("mymuladd_out", TORCH_BOX(&Operators::mymuladd_out));     \
    m.impl("mymuladd.out", TORCH_BOX(&Operators::mymuladd_dot_out)); \
    m.impl("mymul.out", TORCH_BOX(&Operators::mymul_dot_out));       \
  }
