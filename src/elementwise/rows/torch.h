// A call of an operator over rows. It works like any other call, except that one dimension is reduced, and that tensors
// and results with one value for each row lack this dimension. Included by torch.h.
#pragma once

#include "task.h"

namespace elementwise::rows {

template <class Backend, int kResults, int kInputs>
class Call : elementwise::Call<Backend, kResults, kInputs> {
  using Base = elementwise::Call<Backend, kResults, kInputs>;
  using Base::arguments_, Base::caller_, Base::made_, Base::numbers_, Base::op_, Base::operand, Base::operands,
      Base::operands_, Base::signature_, Base::tensors_, Base::is_written, Base::first;

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
      if (!is_of_row(k) && !op_->like && like < op_->count && !op_->inputs_of_row[like])
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
    bool is_apart = !signature_.written;
    for (int k = kResults; k < operands(); k++) is_apart &= operands_[k].data != operands_[0].data; // out is all of it
    run(whole, is_apart);
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

  // Finds the reduced dimension, counted from the end because broadcasting aligns shapes there. Tensors with one value
  // for each row get this dimension, with size 1.
  void find_dimension() {
    int64_t dims = 0;
    for (int k = kResults; k < operands(); k++) {
      if (operands_[k].dim >= kMaxDims)
        contract::fail(caller_, operands_[k].name, " must have less than ", kMaxDims, " dimensions");
      if (!is_of_row(k)) dims = std::max(dims, operands_[k].dim);
    }
    if (dims == 0) contract::fail(caller_, first().name, " must have a dimension to reduce, got shape []");
    const Number* const given = number("dim", Kind::integer);
    const int64_t dim = given ? given->integer : -1;
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

  void unsqueeze(int k) {
    Operand& x = operands_[k];
    const int64_t at = x.dim + 1 - from_end_;
    if (at < 0)
      contract::fail(caller_, x.name, " must have one value for each row, got shape ", contract::list(x.sizes, x.dim));
    for (int64_t d = 0; d <= x.dim; d++) {
      sizes_[k][d] = d == at ? 1 : x.sizes[d - (d > at)];
      strides_[k][d] = d == at ? 0 : x.strides[d - (d > at)];
    }
    x.dim++;
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
      *at = 1;
      if (!keeps || !keeps->integer) {
        std::copy(at + 1, shape.sizes + whole.dim, at);
        shape.dim--;
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
    const int64_t reduced = whole.dim - from_end_;
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
        const bool is_own = d == reduced && is_of_row(k);
        if (k < kResults && op_->like && is_repeated && whole.sizes[d] != 1 && !is_own && !is_unwanted)
          task.summed |= uint32_t{1} << k;
      }
      task.step[k] = of[reduced];
      task.data[k] = x.data;
      task.dtypes[k] = x.dtype;
      task.bytes[k] = x.element_bytes;
      task.numel[k] = x.numel();
    }
    task.size = whole.sizes[reduced];
    for (int64_t d = 0; d < whole.dim; d++) {
      if (d == reduced) continue;
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

  int64_t from_end_ = 1;
  int64_t sizes_[kResults + kInputs][kMaxDims], strides_[kResults + kInputs][kMaxDims];
};

} // namespace elementwise::rows
