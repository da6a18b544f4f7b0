// A call of an operator over rows. It works like any other call, except that one dimension is reduced, or several
// trailing ones as one, and that tensors and results with one value for each row lack these. Included by torch.h.
#pragma once

#include <vector>

#include "task.h"

namespace elementwise::rows {

template <class Backend, int kResults, int kInputs>
class Call : elementwise::Call<Backend, kResults, kInputs> {
  using Base = elementwise::Call<Backend, kResults, kInputs>;
  using Base::arguments_, Base::caller_, Base::made_, Base::numbers_, Base::op_, Base::operand, Base::operands,
      Base::operands_, Base::place_, Base::row_sizes_, Base::signature_, Base::tensors_, Base::is_written, Base::first;

 public:
  using Base::Base;

  void compute(StableIValue* stack) {
    for (int k = kResults; k < operands(); k++) operands_[k] = operand(k);
    find_dimension();
    const contract::Inputs inputs(caller_, *op_, {operands_ + kResults, op_->count});
    const Operand& whole = operands_[kResults];
    for (int k = 0; k < kResults; k++) {
      Shape shape = shape_of(k, whole);
      Operand x = whole;
      x.dim = shape.dim;
      x.sizes = shape.sizes;
      x.dtype = op_->results[k] == kOfC ? first().dtype : op_->results[k];
      const size_t like = inputs.first_of_shape;
      if (!is_of_row(k) && !op_->like && !row_sizes_ && like < op_->count && !op_->inputs_of_row[like])
        made_[k] = this->empty_like(like, op_->results[k]);
      else
        made_[k] = this->empty_contiguous(x);
      operands_[k] = made_[k].operand("out");
      operands_[k].data = made_[k].mutable_data();
      Backend::on_fresh_output(operands_[k].data, operands_[k].numel() * operands_[k].element_bytes);
    }
    for (int k = kResults; k < operands(); k++) operands_[k].data = const_cast<void*>(tensors_[k].data());
    run(whole, true);
    for (int k = 0; k < kResults; k++) stack[k] = made_[k].release();
  }

  // Writes to `out`, or to the tensors that the declaration marks.
  void write() {
    Base::find_written();
    find_dimension();
    const contract::Inputs inputs(caller_, *op_, {operands_ + kResults, op_->count});
    const Operand whole = operands_[kResults];
    for (int k = 0; k < kResults; k++) {
      const Shape shape = shape_of(k, whole);
      Operand like = whole;
      like.dim = shape.dim;
      like.sizes = shape.sizes;
      contract::check_device_and_dtype(caller_, first(), operands_[k], op_->results[k]);
      if (!contract::same_shape(like, operands_[k]))
        contract::fail(
            caller_, operands_[k].name, " must have the shape of the result, ", contract::list(like.sizes, like.dim),
            ", got ", contract::list(operands_[k].sizes, operands_[k].dim));
      contract::check_not_self_overlapping(caller_, operands_[k]);
      contract::check_in_storage(caller_, operands_[k]);
    }
    Base::take_memory([this](int k, int input) { return !is_written(input) && !is_of_row(k); });
    for (int k = 0; k < kResults; k++)
      if (!is_of_row(k) && !has_one_step(operands_[k])) compute_elsewhere(k);
    bool is_apart = !signature_.written;
    for (int k = kResults; k < operands(); k++) is_apart &= operands_[k].data != operands_[0].data; // out is all of it
    run(whole, is_apart);
    for (int k = 0; k < kResults; k++)
      if (copies_[k].get()) copy(copies_[k], tensors_[place_[k]]);
  }

 private:
  struct Shape {
    int64_t dim, sizes[kMaxDims + 1];
  };

  bool is_of_row(int k) const {
    return k < kResults ? op_->results_of_row[k] : op_->inputs_of_row[k - kResults];
  }

  // The number that was passed for the argument `name`, or null if the schema has no such argument.
  const Number* number(std::string_view name, Kind kind) const {
    const Number* at = numbers_;
    for (int i = 0; i < signature_.count; i++) {
      const Argument& argument = signature_.arguments[i];
      if (argument.name == name && argument.kind == kind) return at;
      at += !argument.is_tensor();
    }
    return nullptr;
  }

  // Finds the reduced dimension, or the first of several, counted from the end because broadcasting aligns shapes
  // there. Tensors with one value for each row get these dimensions, with size 1.
  void find_dimension() {
    int64_t dims = 0;
    for (int k = kResults; k < operands(); k++) {
      if (operands_[k].dim >= kMaxDims)
        contract::fail(caller_, operands_[k].name, " must have less than ", kMaxDims, " dimensions");
      if (!is_of_row(k)) dims = std::max(dims, operands_[k].dim);
    }
    if (dims == 0) contract::fail(caller_, first().name, " must have a dimension to reduce, got shape []");
    if (row_sizes_) find_trailing_dimensions();
    const Number* const given = number("dim", Kind::integer);
    const int64_t dim = given ? given->integer : -count_;
    if (dim < -dims || dim >= dims)
      contract::fail(caller_, "dim must be from ", -dims, " to ", dims - 1, ", got ", dim);
    from_end_ = dim < 0 ? -dim : dims - dim;
    const Number* const keeps = number("keepdim", Kind::boolean);
    for (int k = kResults; k < operands(); k++) {
      const std::string_view name = arguments_[k - kResults]->name;
      const bool is_grad =
          name.starts_with("grad__") || name.starts_with("grad_tangent__"); // it has the shape of the result
      if (is_of_row(k) && !(is_grad && keeps && keeps->integer)) unsqueeze(k);
    }
  }

  // A row may be several trailing dimensions, if an int[] of the schema has their sizes. A tensor has these, or one
  // element in their place.
  void find_trailing_dimensions() {
    count_ = row_sizes_.size();
    std::vector<int64_t> sizes;
    for (int64_t d = 0; d < count_; d++) sizes.push_back(row_sizes_[d]);
    const std::string_view name = std::ranges::find(signature_.arguments, Kind::sizes, &Argument::kind)->name;
    if (count_ == 0) contract::fail(caller_, name, " must have a size, got []");
    const auto refuse = [&](const Operand& x) {
      contract::fail(
          caller_, x.name, " must end in ", name, ", ", contract::list(sizes.data(), count_), ", got shape ",
          contract::list(x.sizes, x.dim));
    };
    bool is_found = false;
    for (int k = kResults; k < operands(); k++) {
      const Operand& x = operands_[k];
      if (is_of_row(k)) continue;
      bool has_all = x.dim >= count_, has_one = true;
      for (int64_t d = 0; d < count_; d++) {
        const int64_t size = x.dim - count_ + d < 0 ? 1 : x.sizes[x.dim - count_ + d];
        has_all &= size == sizes[d];
        has_one &= size == 1;
      }
      if (!has_all && !has_one) refuse(x);
      is_found |= has_all;
      if (!has_one && !is_written(k) && !has_one_step(x)) read_copy(k);
    }
    if (!is_found) refuse(first());
  }
  // Whether the elements of a row are equally far apart.
  bool has_one_step(const Operand& x) const {
    int64_t next = -1; // the stride that the dimension before must have
    for (int64_t d = x.dim - 1; d >= x.dim - count_; d--) {
      if (x.sizes[d] == 1) continue;
      if (next >= 0 && x.strides[d] != next) return false;
      next = x.strides[d] * x.sizes[d];
    }
    return true;
  }
  // Reads an input from a contiguous copy.
  void read_copy(int k) {
    contract::check_in_storage(caller_, operands_[k]);
    copies_[k] = this->empty_contiguous(operands_[k]);
    copy(tensors_[k], copies_[k]);
    tensors_[k] = copies_[k];
    operands_[k] = operand(k);
  }
  // Computes a result that is written in contiguous memory, from which it is copied.
  void compute_elsewhere(int k) {
    copies_[k] = this->empty_contiguous(operands_[k]);
    if (signature_.written) copy(tensors_[place_[k]], copies_[k]);
    for (Operand* const x : {&operands_[k], &operands_[place_[k]]}) {
      x->strides = copies_[k].operand("").strides;
      x->data = copies_[k].mutable_data();
    }
  }
  struct WithoutGradients { // restores the mode if torch throws, too
    const bool was_enabled = aoti_torch_grad_mode_is_enabled();
    WithoutGradients() {
      aoti_torch_grad_mode_set_enabled(false);
    }
    ~WithoutGradients() {
      aoti_torch_grad_mode_set_enabled(was_enabled);
    }
  };
  static void copy(const Tensor& from, const Tensor& to) {
    AtenTensorHandle handles[2];
    TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(to.get(), &handles[0]));
    TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(from.get(), &handles[1]));
    StableIValue stack[] = {
        torch::stable::detail::from(handles[0]), torch::stable::detail::from(handles[1]),
        torch::stable::detail::from(false)};
    const WithoutGradients guard;
    TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::copy_", "", stack, TORCH_ABI_VERSION));
    const OwnTensor returned(stack[0]);
  }

  void unsqueeze(int k) {
    Operand& x = operands_[k];
    const int64_t at = x.dim + count_ - from_end_;
    if (at < 0 || x.dim + count_ > kMaxDims)
      contract::fail(caller_, x.name, " must have one value for each row, got shape ", contract::list(x.sizes, x.dim));
    for (int64_t d = 0; d < x.dim + count_; d++) {
      const bool is_new = d >= at && d < at + count_;
      sizes_[k][d] = is_new ? 1 : x.sizes[d - (d < at ? 0 : count_)];
      strides_[k][d] = is_new ? 0 : x.strides[d - (d < at ? 0 : count_)];
    }
    x.dim += count_;
    x.sizes = sizes_[k];
    x.strides = strides_[k];
  }

  // The index of the operand that this argument is, or -1.
  int operand_of(int argument) const {
    for (int k = kResults; k < operands(); k++)
      if (arguments_[k - kResults] == &signature_.arguments[argument]) return k;
    return -1;
  }

  // Whether the caller asks for the k-th gradient.
  bool is_wanted(int k) const {
    const Number* const needs = number("needs__", Kind::integer);
    return operand_of(op_->like[k]) >= 0 && (!needs || needs->integer >> k & 1);
  }

  Shape shape_of(int k, const Operand& whole) const {
    Shape shape{whole.dim, {}};
    std::copy_n(whole.sizes, whole.dim, shape.sizes);
    if (op_->like) {
      const int like = operand_of(op_->like[k]);
      if (!is_wanted(k)) return {1, {0}};
      const Operand own = tensors_[like].operand("");
      shape.dim = own.dim;
      std::copy_n(own.sizes, own.dim, shape.sizes);
    } else if (is_of_row(k)) {
      const Number* const keeps = number("keepdim", Kind::boolean);
      int64_t* const at = shape.sizes + whole.dim - from_end_;
      std::fill_n(at, count_, 1);
      if (!keeps || !keeps->integer) {
        std::copy(at + count_, shape.sizes + whole.dim, at);
        shape.dim -= count_;
      }
    }
    return shape;
  }

  // Describes the call for the kernel. `whole` has the shape to which all tensors are broadcast.
  Task task(const Operand& whole) {
    Task task;
    task.index = op_->index;
    task.dtype = first().dtype;
    task.numbers = numbers_;
    task.results = kResults;
    task.operands = operands();
    const int64_t begin = whole.dim - from_end_, end = begin + count_; // the dimensions that are reduced
    const auto is_reduced = [begin, end](int64_t d) { return d >= begin && d < end; };
    int64_t step = end - 1; // the last of them, or the last that has a step
    while (step > begin && whole.sizes[step] == 1) step--;
    int64_t strides[kMaxOperands][kMaxDims];
    for (int k = 0; k < operands(); k++) {
      const Operand& x = operands_[k];
      int64_t* const of = strides[k];
      if (is_of_row(k)) task.of_row |= uint32_t{1} << k;
      const bool is_unwanted = k < kResults && op_->like && !is_wanted(k);
      if (is_unwanted) task.unwanted |= uint32_t{1} << k;
      const bool is_squeezed = k < kResults && is_of_row(k) && x.dim < whole.dim && !op_->like;
      Operand own = x;
      if (k < kResults && (is_squeezed || (op_->like && is_of_row(k) && !is_unwanted))) {
        unsqueeze(k);
        own = operands_[k];
        operands_[k] = x;
      }
      const int64_t missing = whole.dim - own.dim;
      for (int64_t d = 0; d < whole.dim; d++) {
        const bool is_repeated = is_unwanted || d < missing || own.sizes[d - missing] == 1;
        of[d] = is_repeated ? 0 : own.strides[d - missing];
        const bool is_own = is_reduced(d) && is_of_row(k);
        if (k < kResults && op_->like && is_repeated && whole.sizes[d] != 1 && !is_own && !is_unwanted)
          task.summed |= uint32_t{1} << k;
      }
      task.step[k] = of[step];
      task.data[k] = x.data;
      task.dtypes[k] = x.dtype;
      task.bytes[k] = x.element_bytes;
      task.numel[k] = x.numel();
    }
    for (int64_t d = 0; d < whole.dim; d++) {
      if (is_reduced(d)) {
        task.size *= whole.sizes[d];
        continue;
      }
      task.last = std::max<int64_t>(1, whole.sizes[d]);
      task.count *= whole.sizes[d];
      if (whole.sizes[d] == 1) continue;
      bool continues = task.dims > 0;
      for (int k = 0; k < operands() && continues; k++)
        continues = task.stride[task.dims - 1][k] == strides[k][d] * whole.sizes[d];
      if (!continues) task.sizes[task.dims++] = 1;
      task.sizes[task.dims - 1] *= whole.sizes[d];
      for (int k = 0; k < operands(); k++) task.stride[task.dims - 1][k] = strides[k][d];
    }
    return task;
  }

  void run(const Operand& whole, bool is_apart) {
    Task given = task(whole);
    given.is_apart = is_apart;
    Backend::launch_rows(caller_, given, whole.device_index);
  }

  int64_t from_end_ = 1, count_ = 1; // of the dimensions that are reduced
  OwnTensor copies_[kResults + kInputs];
  int64_t sizes_[kResults + kInputs][kMaxDims], strides_[kResults + kInputs][kMaxDims];
};

} // namespace elementwise::rows
