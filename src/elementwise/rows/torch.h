// A call of an operator over rows. It works like any other call, except that one dimension is reduced, or several
// trailing ones as one, and that tensors and results with one value for each row lack these. Included by torch.h.
#pragma once

#include "layout.h"

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
    Layout layout = lay_out();
    read_copies(layout);
    const contract::Inputs inputs(caller_, *op_, {operands_ + kResults, op_->count});
    const Operand& whole = operands_[kResults];
    for (int k = 0; k < kResults; k++) {
      const Shape shape = op_->like ? shape_of_gradient(k, layout) : layout.shape_of(k, whole);
      const int of_gradient = op_->like ? Base::operand_like(k) : -1; // the tensor that has its dtype
      Operand x = of_gradient < 0 ? first() : operands_[of_gradient];
      x.dim = shape.dim;
      x.sizes = shape.sizes;
      if (op_->results[k] != kOfC) x.dtype = op_->results[k];
      const size_t like = inputs.first_of_shape;
      if (!layout.is_of_row(k) && !op_->like && !row_sizes_ && like < op_->count)
        made_[k] = this->empty_like(like, op_->results[k]);
      else
        made_[k] = this->empty_contiguous(x);
      operands_[k] = made_[k].operand("out");
      Backend::on_fresh_output(operands_[k].data, operands_[k].numel() * operands_[k].element_bytes);
    }
    Backend::launch_rows(caller_, layout.task(whole, true), whole.device_index);
    for (int k = 0; k < kResults; k++) stack[k] = made_[k].release();
  }

  // Writes to `out`, or to the tensors that the declaration marks.
  void write() {
    Base::find_written();
    Layout layout = lay_out();
    read_copies(layout);
    const contract::Inputs inputs(caller_, *op_, {operands_ + kResults, op_->count});
    const Operand whole = operands_[kResults];
    for (int k = 0; k < kResults; k++) {
      layout.check_result(k, whole);
      contract::check_not_self_overlapping(caller_, operands_[k]);
      contract::check_in_storage(caller_, operands_[k]);
    }
    Base::take_memory([&](int k, int input) { return !is_written(input) && !layout.is_of_row(k); });
    for (int k = 0; k < kResults; k++)
      if (!layout.has_one_step(k)) compute_elsewhere(k);
    bool is_apart = !signature_.written;
    for (int k = kResults; k < operands(); k++)
      is_apart &= operands_[k].data != operands_[0].data; // else it is exactly `out`, or they share no memory
    Backend::launch_rows(caller_, layout.task(whole, is_apart), whole.device_index);
    for (int k = 0; k < kResults; k++)
      if (copies_[k].get()) copy(copies_[k], tensors_[place_[k]]);
  }

 private:
  Layout lay_out() {
    return {caller_, *op_, arguments_, operands_, kResults, numbers_, row_sizes_};
  }
  // A gradient has the shape of its tensor. One that nobody asks for has no elements.
  Shape shape_of_gradient(int k, const Layout& layout) const {
    Shape shape{1, {0}};
    if (!layout.is_wanted(k)) return shape;
    const Operand own = tensors_[Base::operand_like(k)].operand("");
    shape.dim = own.dim;
    std::copy_n(own.sizes, own.dim, shape.sizes);
    return shape;
  }
  // Reads the inputs whose rows have no single step from contiguous copies.
  void read_copies(const Layout& layout) {
    for (int k = kResults; k < operands(); k++) {
      if (is_written(k) || layout.has_one_step(k)) continue;
      contract::check_in_storage(caller_, operands_[k]);
      copies_[k] = this->empty_contiguous(operands_[k]);
      copy(tensors_[k], copies_[k]);
      tensors_[k] = copies_[k];
      operands_[k] = operand(k);
    }
  }
  // Lets the kernel write a result into contiguous memory, from which write() copies it.
  void compute_elsewhere(int k) {
    copies_[k] = this->empty_contiguous(operands_[k]);
    if (signature_.written) copy(tensors_[place_[k]], copies_[k]);
    for (Operand* const x : {&operands_[k], &operands_[place_[k]]}) {
      x->strides = copies_[k].operand("").strides;
      x->data = copies_[k].mutable_data();
    }
  }
  static void copy(const Tensor& from, const Tensor& to) {
    const WithoutGradients guard;
    TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(to.get(), from.get(), 0));
  }

  OwnTensor copies_[kResults + kInputs];
};

} // namespace elementwise::rows
