// Runs one call of an operator from torch, for all backends: checks, finds or allocates the output, plans and launches.
// Registers the operators with the dispatcher.
//
// A backend is a type with torch's number for its kind of device, kDeviceType, and four static functions:
//   on_fresh_output(data, bytes)                    prepares the memory of a new output before it is written;
//   launch(caller, task, device_index)              runs the task;
//   launch_sums(caller, task, summed, allocate)     runs it, and sums results over broadcast dimensions;
//   launch_rows(caller, task, device_index)         runs a task over rows.
// The CPU's backend is below, and cuda/backend.h has the one of CUDA.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "contract.h"
#include "cpu/launch.h"
#include "cpu/rows.h"
#include "cpu/sums.h"
#include "kernels_of_library.h"
#include "register_once.h"
#include "tensor.h"

#ifdef ELEMENTWISE_CUDA
#include "cuda/backend.h"
#endif

namespace elementwise {

namespace cpu {

// Runs tasks on torch's threads.
struct Backend {
  static constexpr int32_t kDeviceType = 0;
  static constexpr auto on_fresh_output = cpu::on_fresh_output;

  static void launch(const contract::Caller&, const Task& task, int32_t) {
    cpu::launch(task, parallel_for);
  }

  // If bit k of `summed` is set, elements of result k that have the same place in memory are added up. allocate(bytes)
  // returns memory that lives as long as the call.
  static void launch_sums(const contract::Caller&, const Task& task, uint32_t summed, const auto& allocate) {
    Sums sums(task, summed);
    sums(allocate(sums.bytes()), parallel_for);
  }

  static void launch_rows(const contract::Caller& op, const rows::Task& task, int32_t) {
    cpu::launch_rows(op, task, parallel_for);
  }

 private:
  static constexpr auto parallel_for = [](int64_t end, int64_t grain, const auto& body) {
    in_pool(body, [&](const auto& caught) { torch::stable::parallel_for(0, end, grain, caught); });
  };
};

} // namespace cpu

// Returns a list of integers on a stack. The caller still owns the list.
inline std::vector<int64_t> integers(StableIValue value) {
  const auto list = torch::stable::detail::to<StableListHandle>(value);
  size_t size;
  TORCH_ERROR_CODE_CHECK(torch_list_size(list, &size));
  std::vector<int64_t> integers;
  for (size_t i = 0; i < size; i++) {
    StableIValue element;
    TORCH_ERROR_CODE_CHECK(torch_list_get_item(list, static_cast<int64_t>(i), &element));
    integers.push_back(torch::stable::detail::to<int64_t>(element));
  }
  return integers;
}

// One call of an element-wise operator in one of its forms. rows/torch.h has the calls over rows.
template <class Backend, int kResults, int kInputs>
class Call {
 public:
  // The arguments are on `stack`, in the order of the schema, and the caller still owns them.
  Call(const Description* of_kernels, unsigned form, const StableIValue* stack)
      : signature_(of_kernels->signature), caller_{signature_, form} {
    int input = 0;
    op_ = contract::read_arguments(caller_, of_kernels, numbers_, [&](int i, const Argument& argument, Number& number) {
      if (argument.is_tensor()) {
        const bool is_optional = argument.kind == Kind::optional;
        const Tensor x = is_optional ? optional_tensor(stack[i]) : Tensor(stack[i]);
        if (is_optional && !x.get()) return false;
        arguments_[input] = &argument;
        tensors_[kResults + input++] = x;
      } else if (argument.kind == Kind::integer) {
        number.integer = torch::stable::detail::to<int64_t>(stack[i]);
      } else if (argument.kind == Kind::boolean) {
        number.integer = torch::stable::detail::to<bool>(stack[i]);
      } else if (argument.kind == Kind::sizes) {
        row_sizes_ = integers(stack[i]);
        number.integer = static_cast<int64_t>(row_sizes_->size());
      } else if (form & tensor_numbers) {
        number.real = read(argument.name, Tensor(stack[i]));
      } else {
        number.real = torch::stable::detail::to<double>(stack[i]);
      }
      return true;
    });
    if (form & (writing | out)) tensors_[0] = Tensor(stack[signature_.count]);
    if (form & tensor_numbers && Backend::kDeviceType != 0) {
      // torch chose this kernel because one of the tensors is on its device. The number may be that tensor.
      const Operand a = operand(kResults + static_cast<int>(op_->first));
      if (a.device_type != Backend::kDeviceType)
        contract::fail(
            caller_, "a number that is passed as a tensor must be on cpu beside ", a.name, ", which is on ",
            contract::device_name(a));
    }
  }

  // Makes new tensors, with the strides of torch.empty_like of the first input that has their shape. A gradient has the
  // shape of its tensor, or [0] if the caller does not ask for it: then it has no address in the task.
  void compute(StableIValue* stack) {
    for (int k = kResults; k < operands(); k++) operands_[k] = operand(k);
    const contract::Inputs inputs(caller_, *op_, {operands_ + kResults, op_->count});
    const Operand& computed = operands_[kResults]; // all inputs are expanded to the shape of the computation by now
    const uint32_t wanted = contract::wanted(signature_, *op_, numbers_, {arguments_, op_->count}, kResults);
    uint32_t summed = 0;
    int first_wanted = kResults;
    for (int k = kResults - 1; k >= 0; k--) {
      const bool is_wanted = wanted >> k & 1;
      const int like = op_->like && inputs.are_broadcast ? operand_like(k) : -1;
      const Operand to = like < 0 ? computed : tensors_[like].operand("out");
      const bool is_summed = !contract::same_shape(to, computed);
      made_[k] = !is_wanted  ? empty_contiguous(no_elements())
                 : is_summed ? empty_contiguous(to)
                             : empty_like(inputs.first_of_shape, op_->results[k]);
      operands_[k] = made_[k].operand("out");
      if (is_summed) sum_to(operands_[k], to, computed, summed_strides_[k]);
      summed |= uint32_t{is_summed} << k;
      if (is_wanted)
        first_wanted = k;
      else
        operands_[k].data = nullptr;
    }
    if (computed.numel() > 0) {
      for (int k = 0; k < kResults; k++)
        if (wanted & ~summed & uint32_t{1} << k)
          Backend::on_fresh_output(operands_[k].data, computed.numel() * operands_[k].element_bytes);
      const size_t of_shape = inputs.first_of_shape < op_->count ? inputs.first_of_shape : 0;
      const int by = wanted & summed ? kResults + static_cast<int>(of_shape) : first_wanted;
      if (wanted) run(wanted & summed ? summed : 0, by);
    } else {
      for (int k = 0; k < kResults; k++)
        if (wanted & summed & uint32_t{1} << k) TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(made_[k].get()));
    }
    for (int k = 0; k < kResults; k++) stack[k] = made_[k].release();
  }

  // Writes to `out`, or to the tensors that the declaration marks.
  void write() {
    find_written();
    const contract::Inputs inputs(caller_, *op_, {operands_ + kResults, op_->count});
    for (int k = 0; k < kResults; k++) {
      inputs.check_out(caller_, first(), operands_[k], op_->results[k]);
      contract::check_not_self_overlapping(caller_, operands_[k]);
      contract::check_in_storage(caller_, operands_[k]);
    }
    take_memory([this](int, int input) { return !is_written(input); });
    if (operands_[0].numel() > 0) run();
  }

 protected:
  // Reads the operands of a call that writes, and finds which of them are its results.
  void find_written() {
    for (int k = kResults; k < operands(); k++) operands_[k] = operand(k);
    if (signature_.written) {
      for (int i = kResults, k = 0; i < operands(); i++)
        if (is_written(i)) place_[k++] = i;
      for (int k = 0; k < kResults; k++) operands_[k] = operands_[place_[k]]; // a copy, because inputs are expanded
    } else {
      operands_[0] = operand(0);
    }
  }

  // Finds the memory of all operands, and counts the writes. may_be(k, i) says whether the result k may be the input i.
  void take_memory(const auto& may_be) {
    // The results come first: a lazy clone gets its own memory here, so that it no longer shares memory with an input.
    for (int k = 0; k < kResults; k++)
      operands_[k].data = operands_[place_[k]].data = tensors_[place_[k]].mutable_data();
    for (int i = kResults; i < operands(); i++)
      if (!is_written(i)) operands_[i].data = const_cast<void*>(tensors_[i].data());
    for (int k = 0; k < kResults; k++)
      for (int i = kResults; i < operands(); i++) {
        const auto check = may_be(k, i) ? contract::check_apart_or_same : contract::check_apart;
        if (i != place_[k]) check(caller_, operands_[k], operands_[i]);
      }
    for (int k = 0; k < kResults; k++)
      if (!tensors_[place_[k]].bump_version()) contract::fail_inference_tensor(caller_, operands_[k]);
  }

  double read(std::string_view name, const Tensor& number) const {
    if (number.undefined()) contract::fail(caller_, name, " must be a number, got None");
    contract::check_number(caller_, number.operand(name), Backend::kDeviceType);
    double value;
    TORCH_ERROR_CODE_CHECK(aoti_torch_item_float64(number.get(), &value));
    return value;
  }

  int operands() const {
    return kResults + static_cast<int>(op_->count);
  }

  bool is_written(int k) const {
    return arguments_[k - kResults]->is_written;
  }

  Operand operand(int k) const {
    const std::string_view name = k < kResults ? "out" : arguments_[k - kResults]->name;
    if (tensors_[k].undefined()) contract::fail_none(caller_, name);
    return tensors_[k].operand(name);
  }

  // Returns the first input of type C.
  const Operand& first() const {
    return operands_[kResults + op_->first];
  }

  // Returns the index of the operand whose shape the k-th gradient has, or -1 if it is absent.
  int operand_like(int k) const {
    const int input = contract::input_of(signature_.arguments[op_->like[k]], {arguments_, op_->count});
    return input < 0 ? -1 : kResults + input;
  }

  Operand no_elements() const {
    static constexpr int64_t kNone = 0;
    Operand x = first();
    x.dim = 1;
    x.sizes = x.strides = &kNone;
    return x;
  }

  // Calling the allocator is 0.8 us cheaper than calling empty_like through the dispatcher (measured), but needs the
  // strides: the input's, with gaps closed. If no input has the shape of the result, the result is contiguous.
  OwnTensor empty_like(size_t input, int32_t own) const {
    const bool is_like = input < op_->count;
    Operand x = operands_[kResults + (is_like ? input : 0)];
    x.dtype = own == kOfC ? first().dtype : own;
    if (is_like && x.contiguous()) return empty(x, x.strides);
    const int64_t* const end = x.strides + x.dim;
    const bool is_sorted = x.dim > 0 && end[-1] > 0 && std::adjacent_find(x.strides, end, std::less_equal<>()) == end;
    if (x.dim <= kMaxDims && (is_sorted || !is_like)) return empty_contiguous(x);
    AtenTensorHandle self;
    TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensors_[kResults + input].get(), &self));
    const auto none = torch::stable::detail::from(std::nullopt);
    StableIValue stack[] = {torch::stable::detail::from(self), none, none, none, none, none};
    if (torch_call_dispatcher("aten::empty_like", "", stack, TORCH_ABI_VERSION) != TORCH_SUCCESS)
      contract::fail_to_allocate(caller_, x);
    OwnTensor made(stack[0]);
    const Operand like = made.operand("out");
    if (like.dtype == x.dtype) return made;
    // To pass a dtype we would need a std::optional, and the library would export its symbols.
    return empty(x, like.strides);
  }

  // Makes a contiguous tensor. It has at most kMaxDims dimensions.
  OwnTensor empty_contiguous(const Operand& x) const {
    int64_t strides[kMaxDims];
    int64_t stride = 1;
    for (int64_t d = x.dim - 1; d >= 0; d--) {
      strides[d] = stride;
      stride *= std::max<int64_t>(1, x.sizes[d]);
    }
    return empty(x, strides);
  }

  // Expands a contiguous result from the shape of `to` to that of the computation. Along dimensions that are summed it
  // gets a stride of 0.
  static void sum_to(Operand& x, const Operand& to, const Operand& computed, int64_t* strides) {
    int64_t stride = 1;
    for (int64_t d = computed.dim - 1, missing = computed.dim - to.dim; d >= 0; d--) {
      const int64_t size = d < missing ? 1 : to.sizes[d - missing];
      strides[d] = size == 1 ? 0 : stride;
      stride *= size;
    }
    x.strides = strides;
  }

  OwnTensor empty(const Operand& x, const int64_t* strides) const {
    AtenTensorHandle out;
    if (aoti_torch_empty_strided(x.dim, x.sizes, strides, x.dtype, x.device_type, x.device_index, &out) !=
        TORCH_SUCCESS)
      contract::fail_to_allocate(caller_, x);
    return OwnTensor(out);
  }

  // Adds up the results whose bit is set in `summed`, and goes over memory in the order of the operand `by`.
  void run(uint32_t summed = 0, int by = 0) const {
    const Operand& computed = operands_[kResults];
    const int64_t* strides[kOperands];
    void* data[kOperands];
    for (int k = 0; k < operands(); k++) {
      data[k] = operands_[k].data;
      strides[k] = data[k] || summed >> k & 1 ? operands_[k].strides : nullptr;
    }
    const Plan plan = make_plan(operands(), computed.dim, computed.sizes, strides, by);
    const Task task{op_->index, first().dtype, numbers_, plan, data};
    if (!summed) return Backend::launch(caller_, task, computed.device_index);
    OwnTensor memory;
    Backend::launch_sums(caller_, task, summed, [&](int64_t bytes) {
      const int64_t stride = 1;
      memory = empty(
          {"out", 1, &bytes, &stride, kOrdinal<uint8_t>, 1, computed.device_type, computed.device_index}, &stride);
      return memory.mutable_data();
    });
  }

  static constexpr int kOperands = kResults + kInputs;

  const Signature& signature_;
  const contract::Caller caller_;
  const Description* op_; // the kernel for the optional tensors that are present, and for the values of each OneOf
  Number numbers_[kMaxArguments];
  std::optional<std::vector<int64_t>> row_sizes_;
  const Argument* arguments_[kInputs]; // the inputs
  Tensor tensors_[kOperands];          // the written tensors, then the inputs
  OwnTensor made_[kResults];           // new results
  int place_[kResults] = {};           // if the call writes: the index of each result among the operands
  Operand operands_[kOperands];
  int64_t summed_strides_[kResults][kMaxDims];
};

// The tensors among the arguments on a stack: a kernel that the dispatcher calls owns them.
class OwnedArguments {
 public:
  OwnedArguments(const Signature& signature, unsigned form, const StableIValue* stack) {
    for (int i = 0; i < signature.count; i++) {
      const Kind kind = signature.arguments[i].kind;
      if (kind == Kind::optional)
        own_optional(stack[i]);
      else if (kind == Kind::sizes)
        list_ = torch::stable::detail::to<StableListHandle>(stack[i]);
      else if (is_tensor(kind) || (form & tensor_numbers && kind == Kind::real))
        own(stack[i]);
    }
    if (form & (writing | out)) own(stack[signature.count]);
  }
  OwnedArguments(const OwnedArguments&) = delete;
  ~OwnedArguments() {
    if (list_) torch_delete_list(list_);
    while (count_) const OwnTensor last(release_last());
  }

  StableIValue release_last() {
    return owned_[--count_];
  }

 private:
  void own(StableIValue value) {
    owned_[count_++] = value;
  }
  // torch allocates memory for an optional tensor's handle.
  void own_optional(StableIValue value) {
    auto& of_value = optional_[optional_count_++];
    of_value.reset(torch::stable::detail::to<StableIValue*>(value));
    if (of_value) own(*of_value);
  }

  StableIValue owned_[kMaxArguments + 1];
  std::unique_ptr<StableIValue> optional_[kMaxOptional];
  int count_ = 0, optional_count_ = 0;
  StableListHandle list_ = nullptr;
};

} // namespace elementwise

#include "rows/torch.h"

namespace elementwise {

template <class Op, class Backend, int kResults = Op::Kernel::kResults, int kInputs = Op::Kernel::kInputs>
using CallOf =
    std::conditional_t<Op::is_over_rows, rows::Call<Backend, kResults, kInputs>, Call<Backend, kResults, kInputs>>;

// Runs a kernel. The caller keeps its arguments.
template <class Operators, class Op, class Backend, unsigned form>
void run(StableIValue* stack) {
  CallOf<Op, Backend> call(DescriptionOf<Operators, Op>::values.data(), form, stack);
  if constexpr (form & functional) {
    call.compute(stack);
  } else {
    call.write();
  }
}

// A boxed kernel, which owns its arguments. TORCH_BOX would make one from a function of torch::stable::Tensor, with a
// shared_ptr and a second handle for each tensor; see tensor.h.
template <class Operators, class Op, class Backend, unsigned form>
void boxed(StableIValue* stack, uint64_t, uint64_t) {
  OwnedArguments owned(Op::signature, form, stack);
  run<Operators, Op, Backend, form>(stack);
  if constexpr (form & out) stack[0] = owned.release_last();
}

template <class Operators>
void define(torch::stable::detail::StableLibrary& library) {
  if (registered_before()) return;
  for_each_form(Operators{}, [&]<class Op, unsigned form>() {
    library.def(Op::signature.schema(form, Op::Kernel::kResults).c_str());
  });
}

template <class Operators, class Backend>
void implement(torch::stable::detail::StableLibrary& library) {
  for_each_form(Operators{}, [&]<class Op, unsigned form>() {
    kernels_of_library().push_back(
        {Op::signature, form, Op::Kernel::kResults, Backend::kDeviceType, Op::broadcasts,
         run<Operators, Op, Backend, form>});
    if (!registered_before()) library.impl(Op::signature.qualified(form).c_str(), boxed<Operators, Op, Backend, form>);
  });
}

} // namespace elementwise

#ifdef ELEMENTWISE_CUDA
#define ELEMENTWISE_IMPLEMENT_CUDA(name, Operators)                                                       \
  STABLE_TORCH_LIBRARY_IMPL(name, CUDA, library) {                                                        \
    elementwise::implement<elementwise::WithDerivatives<Operators>, elementwise::cuda::Backend>(library); \
  }
#else
#define ELEMENTWISE_IMPLEMENT_CUDA(name, Operators)
#endif

// A fragment of the namespace: a second copy of the library may open it too, and then adds nothing.
#define ELEMENTWISE_OPERATORS(name, Operators)                                                           \
  STABLE_TORCH_LIBRARY_FRAGMENT(name, library) {                                                         \
    elementwise::define<elementwise::WithDerivatives<Operators>>(library);                               \
  }                                                                                                      \
  STABLE_TORCH_LIBRARY_IMPL(name, CPU, library) {                                                        \
    elementwise::implement<elementwise::WithDerivatives<Operators>, elementwise::cpu::Backend>(library); \
  }                                                                                                      \
  ELEMENTWISE_IMPLEMENT_CUDA(name, Operators)
