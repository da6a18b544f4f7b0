// The operators, once for all backends: check, find or allocate the output, plan, launch.
//
// A backend is a type with two static functions:
//   void launch(const char* op, Function, double c, Dtype, const Plan&, void* out, const void* a,
//               const void* b, int32_t device_index)    computes out = function(a, b);
//   void on_fresh_output(void* data, size_t bytes)      is told of every new output before it is written.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "contract.h"
#include "copies.h"
#include "elementwise.h"
#include "strided.h"
#include "tensor.h"

namespace muladd_nb {

// Boxed kernels: the arguments are on `stack`, in the order of the schema, and the result replaces the
// first. TORCH_BOX would write the same for a function of torch::stable::Tensor, with a shared_ptr and a
// second handle for each; see tensor.h.
template <class Backend>
struct Operators {
  static void mymuladd(StableIValue* stack, uint64_t, uint64_t) {
    const Tensor a(stack[0]), b(stack[1]);
    stack[0] = fresh("mymuladd", Function::muladd, a, b, number(stack[2])).release();
  }

  static void mymul(StableIValue* stack, uint64_t, uint64_t) {
    const Tensor a(stack[0]), b(stack[1]);
    stack[0] = fresh("mymul", Function::mul, a, b, 0).release();
  }

  static void myadd_out(StableIValue* stack, uint64_t, uint64_t) {
    const Tensor a(stack[0]), b(stack[1]), out(stack[2]);
    into("myadd_out", Function::add, a, b, 0, out);
  }

  static void mymuladd_out(StableIValue* stack, uint64_t, uint64_t) {
    const Tensor a(stack[0]), b(stack[1]), out(stack[3]);
    into("mymuladd_out", Function::muladd, a, b, number(stack[2]), out);
  }

  // The overloads named `tensor_c` are those above for a compiled program in which c changes.
  static void mymuladd_tensor_c(StableIValue* stack, uint64_t, uint64_t) {
    const Tensor a(stack[0]), b(stack[1]), c(stack[2]);
    stack[0] = fresh("mymuladd", Function::muladd, a, b, number("mymuladd", c)).release();
  }

  static void mymuladd_out_tensor_c(StableIValue* stack, uint64_t, uint64_t) {
    const Tensor a(stack[0]), b(stack[1]), c(stack[2]), out(stack[3]);
    into("mymuladd_out", Function::muladd, a, b, number("mymuladd_out", c), out);
  }

  // The overloads named `out`, which ExecuTorch maps the functional operators to, return `out`.
  static void mymuladd_dot_out(StableIValue* stack, uint64_t, uint64_t) {
    const Tensor a(stack[0]), b(stack[1]);
    Tensor out(stack[3]);
    into("mymuladd.out", Function::muladd, a, b, number(stack[2]), out);
    stack[0] = out.release();
  }

  static void mymul_dot_out(StableIValue* stack, uint64_t, uint64_t) {
    const Tensor a(stack[0]), b(stack[1]);
    Tensor out(stack[2]);
    into("mymul.out", Function::mul, a, b, 0, out);
    stack[0] = out.release();
  }

 private:
  static double number(StableIValue value) {
    return torch::stable::detail::to<double>(value);
  }

  static double number(const char* op, const Tensor& c) {
    contract::check_scalar(op, c.operand("c"));
    return *static_cast<const double*>(c.data());
  }

  static Tensor fresh(const char* op, Function function, const Tensor& a, const Tensor& b, double c) {
    const Operand x = a.operand("a"), y = b.operand("b");
    const Dtype dtype = check_inputs(op, x, y);
    Tensor out = empty_like(op, a, x);
    const Operand z = out.operand("out");
    if (const int64_t numel = z.numel()) {
      void* const data = out.mutable_data();
      Backend::on_fresh_output(data, numel * element_size(dtype));
      run(op, function, c, dtype, z, data, x, a.data(), y, b.data());
    }
    return out;
  }

  static void into(const char* op, Function function, const Tensor& a, const Tensor& b, double c, const Tensor& out) {
    const Operand x = a.operand("a"), y = b.operand("b"), z = out.operand("out");
    const Dtype dtype = check_inputs(op, x, y);
    contract::check_same(op, x, z);
    contract::check_not_self_overlapping(op, z);
    const void *x_data = a.data(), *y_data = b.data();
    void* const z_data = out.mutable_data();
    contract::check_apart_or_same(op, z, z_data, x, x_data, element_size(dtype));
    contract::check_apart_or_same(op, z, z_data, y, y_data, element_size(dtype));
    if (!out.bump_version()) contract::fail_inference_tensor(op, z);
    if (z.numel() > 0) run(op, function, c, dtype, z, z_data, x, x_data, y, y_data);
  }

  static Dtype check_inputs(const char* op, const Operand& a, const Operand& b) {
    const Dtype dtype = contract::check_dtype(op, a);
    contract::check_same(op, a, b);
    return dtype;
  }

  // The strides of torch.empty_like. Those of a contiguous tensor are its own, and one call of the
  // allocator is 0.4 us cheaper than one through the dispatcher (benchmarks/per_call.py).
  static Tensor empty_like(const char* op, const Tensor& a, const Operand& x) {
    if (x.contiguous()) {
      AtenTensorHandle out;
      if (aoti_torch_empty_strided(x.dim, x.sizes, x.strides, x.dtype, x.device_type, x.device_index, &out) !=
          TORCH_SUCCESS)
        contract::fail_to_allocate(op, x);
      return Tensor(out);
    }
    AtenTensorHandle self;
    TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(a.get(), &self));
    const auto none = torch::stable::detail::from(std::nullopt);
    StableIValue stack[] = {torch::stable::detail::from(self), none, none, none, none, none};
    if (torch_call_dispatcher("aten::empty_like", "", stack, TORCH_ABI_VERSION) != TORCH_SUCCESS)
      contract::fail_to_allocate(op, x);
    return Tensor(stack[0]);
  }

  static void run(
      const char* op, Function function, double c, Dtype dtype, const Operand& out, void* out_data, const Operand& a,
      const void* a_data, const Operand& b, const void* b_data) {
    const Plan plan = make_plan(out.dim, out.sizes, out.strides, a.strides, b.strides);
    Backend::launch(op, function, c, dtype, plan, out_data, a_data, b_data, out.device_index);
  }
};

} // namespace muladd_nb

// The block that registers a backend's kernels, the same list for each.
#define MULADD_NB_REGISTER(dispatch_key, Backend)                      \
  STABLE_TORCH_LIBRARY_IMPL(muladd_nb, dispatch_key, m) {              \
    if (muladd_nb::registered_before()) return;                        \
    using Operators = muladd_nb::Operators<Backend>;                   \
    m.impl("mymuladd", Operators::mymuladd);                           \
    m.impl("mymul", Operators::mymul);                                 \
    m.impl("myadd_out", Operators::myadd_out);                         \
    m.impl("mymuladd_out", Operators::mymuladd_out);                   \
    m.impl("mymuladd.tensor_c", Operators::mymuladd_tensor_c);         \
    m.impl("mymuladd_out.tensor_c", Operators::mymuladd_out_tensor_c); \
    m.impl("mymuladd.out", Operators::mymuladd_dot_out);               \
    m.impl("mymul.out", Operators::mymul_dot_out);                     \
  }
