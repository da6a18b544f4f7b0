// Helpers for operators that are not element-wise: the checks of the contract, memory for a result, and the launch of a
// kernel.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../contract.h"
#include "../cpu/machine.h"
#include "../register_once.h"
#include "../tensor.h"
#include "element.h"

#if defined(ELEMENTWISE_CUDA) && !defined(ELEMENTWISE_CUDA_ON_HOST) // the test on the host has its own backend
#include "../cuda/backend.h"

namespace elementwise::cuda {

inline bool runs(const torch::stable::Tensor& x) {
  return x.is_cuda();
}

} // namespace elementwise::cuda
#endif

namespace elementwise {

// The registered schema of an operator that has its own kernel. Error messages begin with its name.
struct KernelSignature : Signature {
  constexpr explicit KernelSignature(const char* text) : Signature(text, false), schema(text) {
    if (fault != Fault::none) throw "a schema looks like \"f(Tensor x, float c) -> Tensor\"";
  }

  const char* schema;
};

// A tensor argument with its name in the schema: a tensor, an optional tensor, or a list of tensors.
struct Named {
  Named(std::string_view name, const torch::stable::Tensor& x) : name(name), tensors(&x, 1) {}
  Named(std::string_view name, const std::optional<torch::stable::Tensor>& x) : name(name) {
    if (x) tensors = {&*x, 1};
  }
  Named(std::string_view name, const std::vector<torch::stable::Tensor>& xs) : name(name), tensors(xs), is_list(true) {}

  std::string_view name;
  std::span<const torch::stable::Tensor> tensors;
  bool is_list = false;
};

// The tensors of several arguments in one list, together with the operands that the checks of contract.h need.
struct Operands {
  Operands(const contract::Caller& op, std::initializer_list<Named> arguments) {
    for (const Named& argument : arguments)
      for (const torch::stable::Tensor& x : argument.tensors) {
        std::string& name = names.emplace_back(argument.name);
        if (argument.is_list) name.append("[").append(std::to_string(&x - argument.tensors.data())).append("]");
        if (!x.defined()) contract::fail_none(op, name);
        tensors.push_back(&x);
        operands.push_back(Tensor(x.get()).operand(name));
      }
  }
  Operands(const Operands&) = delete; // because operands refer to `names`

  std::deque<std::string> names; // a deque does not move its elements
  std::vector<const torch::stable::Tensor*> tensors;
  std::vector<Operand> operands;
};

// Refuses None, tensors that are not floating-point, tensors whose dtype, device or shape differs from the first one's,
// and tensors with elements past the end of their storage.
inline void check_alike(const contract::Caller& op, std::initializer_list<Named> tensors) {
  contract::check_inputs(op, Ordinals<FloatingPoint>::each, Operands(op, tensors).operands);
}

// The same checks for a tensor whose shape may differ from that of `first`, and with one of the listed dtypes, such as
// a weight or an index. The operator itself must check its shape and values. An absent optional tensor is accepted; so
// is a list, each of whose tensors is checked.
template <class... Dtypes>
void check_beside(const contract::Caller& op, const Named& first, const Named& other, List<Dtypes...>) {
  const Operands both(op, {first, other});
  for (const Operand& x : std::span(both.operands).subspan(first.tensors.size())) {
    contract::check_inputs(op, Ordinals<List<Dtypes...>>::each, {&x, 1});
    contract::check_same_device(op, both.operands[0], x);
  }
}

// Refuses an index with an element that is not from 0 to n - 1, before anything is written. The index is contiguous, of
// int32 or int64. `where` is a contiguous tensor of bool with as many elements; where it is false, the index is not
// checked. On CUDA the functor calls check_place instead, because a check here would have to wait for the device.
inline void check_index(
    const contract::Caller& op, std::string_view name, const torch::stable::Tensor& index, int64_t n,
    const std::optional<torch::stable::Tensor>& where = std::nullopt) {
  if (!index.is_cpu()) return;
  const auto* const counts = where ? static_cast<const bool*>(where->const_data_ptr()) : nullptr;
  const auto check = [&]<class Place>(const Place* places) {
    for (int64_t i = 0, count = index.numel(); i < count; i++)
      if ((!counts || counts[i]) && (places[i] < 0 || places[i] >= n))
        contract::fail(op, name, " must lie in [0, ", n, "), got ", places[i]);
  };
  const auto dtype = index.scalar_type();
  if (dtype == torch::headeronly::ScalarType::Int) return check(static_cast<const int32_t*>(index.const_data_ptr()));
  if (dtype == torch::headeronly::ScalarType::Long) return check(static_cast<const int64_t*>(index.const_data_ptr()));
  contract::fail(op, name, " must be int32 or int64, got ", contract::dtype_name(static_cast<int32_t>(dtype)));
}

// Refuses a written tensor that overlaps itself, shares memory with another tensor of the call, or may not be written
// because it was made in inference mode. Then counts the write in each version counter.
inline void check_written(
    const contract::Caller& op, std::initializer_list<Named> written, std::initializer_list<Named> read) {
  Operands outs(op, written), ins(op, read);
  // Written tensors come first, because mutable_data_ptr gives a lazy clone its own memory.
  for (size_t k = 0; k < outs.tensors.size(); k++) outs.operands[k].data = outs.tensors[k]->mutable_data_ptr();
  for (size_t k = 0; k < ins.tensors.size(); k++)
    ins.operands[k].data = const_cast<void*>(ins.tensors[k]->const_data_ptr());
  for (size_t k = 0; k < outs.operands.size(); k++) {
    const Operand& out = outs.operands[k];
    contract::check_in_storage(op, out);
    contract::check_not_self_overlapping(op, out);
    for (size_t j = k + 1; j < outs.operands.size(); j++) contract::check_apart(op, out, outs.operands[j]);
    for (const Operand& x : ins.operands) contract::check_apart(op, out, x);
  }
  for (size_t k = 0; k < outs.tensors.size(); k++)
    if (!Tensor(outs.tensors[k]->get()).bump_version()) contract::fail_inference_tensor(op, outs.operands[k]);
}

// Returns the argument with adjacent elements: copies a tensor if it is not contiguous.
inline torch::stable::Tensor contiguous(const torch::stable::Tensor& x) {
  return torch::stable::contiguous(x);
}
inline std::optional<torch::stable::Tensor> contiguous(const std::optional<torch::stable::Tensor>& x) {
  return x ? std::optional(torch::stable::contiguous(*x)) : std::nullopt;
}
inline std::vector<torch::stable::Tensor> contiguous(std::vector<torch::stable::Tensor> xs) {
  for (torch::stable::Tensor& x : xs) x = torch::stable::contiguous(x);
  return xs;
}

// The address of a tensor's elements, for the members of a functor; null if the tensor is absent. For a member of
// another type than T, name the type: data<int64_t>(index).
template <class T = void>
const T* data(const std::optional<torch::stable::Tensor>& x) {
  return x ? static_cast<const T*>(x->const_data_ptr()) : nullptr;
}
template <class T = void>
T* mutable_data(const std::optional<torch::stable::Tensor>& x) {
  return x ? static_cast<T*>(x->mutable_data_ptr()) : nullptr;
}

template <class T>
Pointers<T> pointers(
    const contract::Caller& op, std::string_view name, const std::vector<torch::stable::Tensor>& xs,
    const auto& data_of) {
  Pointers<T> all{};
  all.count = static_cast<int64_t>(xs.size());
  if (all.count > all.kMost) contract::fail(op, name, " must have at most ", all.kMost, " tensors, got ", all.count);
  for (int64_t k = 0; k < all.count; k++) all.of[k] = data_of(xs[k]);
  return all;
}
inline Pointers<const void> data(
    const contract::Caller& op, std::string_view name, const std::vector<torch::stable::Tensor>& xs) {
  return pointers<const void>(op, name, xs, [](const auto& x) { return x.const_data_ptr(); });
}
inline Pointers<void> mutable_data(
    const contract::Caller& op, std::string_view name, const std::vector<torch::stable::Tensor>& xs) {
  return pointers<void>(op, name, xs, [](const auto& x) { return x.mutable_data_ptr(); });
}

// If contiguous() copied x, this copies the written elements back to x.
inline void write_back(std::optional<torch::stable::Tensor> x, const std::optional<torch::stable::Tensor>& written) {
  if (x && data(x) != data(written)) torch::stable::copy_(*x, *written);
}
inline void write_back(
    const std::vector<torch::stable::Tensor>& xs, const std::vector<torch::stable::Tensor>& written) {
  for (size_t k = 0; k < xs.size(); k++) write_back(xs[k], written[k]);
}

// Returns a new tensor on the device of `like`. Its dtype is that of `like` if none is given.
inline torch::stable::Tensor empty(
    const contract::Caller& op, const torch::stable::Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef sizes,
    std::optional<torch::headeronly::ScalarType> dtype = std::nullopt) {
  try {
    torch::stable::Tensor result = torch::stable::new_empty(like, sizes, dtype);
    if (result.is_cpu()) cpu::on_fresh_output(result.mutable_data_ptr(), result.numel() * result.element_size());
    return result;
  } catch (const std::exception&) {
    Operand result = Tensor(like.get()).operand("out");
    if (dtype) result.dtype = static_cast<int32_t>(*dtype);
    result.dim = static_cast<int64_t>(sizes.size());
    result.sizes = sizes.data();
    contract::fail_to_allocate(op, result);
  }
}

// The types of the loop for an instruction set, and of the function that launches the kernel on CUDA.
using OnCpu = void(int32_t dtype, const void* kernel, int64_t begin, int64_t end);
using OnCuda = cuda::Error(int32_t dtype, const void* kernel, int64_t n, void* stream);

// Calls kernel(i) for each i below n, on the device of `x` and in its dtype. Each call processes about `elements`
// elements, which decides how many threads compute them. It may be 0.
void launch(
    const contract::Caller& op, const auto& kernel, const torch::stable::Tensor& x, int64_t n, int64_t elements = 1) {
  const auto dtype = static_cast<int32_t>(x.scalar_type());
  Operand of_dtype{"the tensor that is passed to launch"};
  of_dtype.dtype = dtype;
  contract::check_dtype(op, Ordinals<FloatingPoint>::each, of_dtype); // the kernel is compiled for these alone
  if (n == 0) return;                                                 // a grid of no blocks is an error
#ifdef ELEMENTWISE_CUDA
  if (cuda::runs(x)) {
    return cuda::on_device(
        op, x.get_device_index(), [&](void* stream) { return on_cuda(kernel)(dtype, &kernel, n, stream); });
  }
#endif
#ifndef ELEMENTWISE_CUDA_ON_HOST
  OnCpu* const run = on_cpu(kernel);
  const int64_t grain = 1 + 32 * 1024 / std::max<int64_t>(elements, 1); // with fewer calls, a thread is not worth it
  torch::stable::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
    const cpu::DefaultFloatEnvironment environment;
    run(dtype, &kernel, begin, end);
  });
#endif
}

} // namespace elementwise
