// Finds the rows of a call's tensors, for torch and for ExecuTorch. A row is one dimension, or several trailing ones. A
// tensor with one value for each row lacks these dimensions. It gets them with size 1, so that all tensors can be
// broadcast together.
#pragma once

#include <optional>
#include <span>

#include "../contract.h"
#include "task.h"

namespace elementwise::rows {

struct Shape {
  int64_t dim, sizes[kMaxDims];
};

class Layout {
 public:
  // `operands` are the results, which are not read here, and the inputs, which are the `arguments`. `row_sizes` are the
  // sizes of a SymInt[] of the schema, if it has one.
  Layout(
      const contract::Caller& caller, const Description& op, const Argument* const* arguments, Operand* operands,
      int results, const Number* numbers, std::optional<std::span<const int64_t>> row_sizes)
      : caller_(caller),
        op_(op),
        signature_(caller.signature),
        arguments_(arguments),
        operands_(operands),
        results_(results),
        count_of_operands_(results + static_cast<int>(op.count)),
        numbers_(numbers),
        wanted_(contract::wanted(signature_, op, numbers, {arguments, op.count}, results)) {
    find_dimension(row_sizes);
  }
  Layout(const Layout&) = delete; // the operands point into it

  // Returns the first input of type C.
  const Operand& first() const {
    return operands_[results_ + op_.first];
  }
  bool is_of_row(int k) const {
    return k < results_ ? op_.results_of_row[k] : op_.inputs_of_row[k - results_];
  }

  // Whether the elements of a row are equally far apart.
  bool has_one_step(int k) const {
    const Operand& x = operands_[k];
    if (is_of_row(k) || x.dim < count_) return true;
    int64_t next = -1; // the stride that the dimension before must have
    for (int64_t d = x.dim - 1; d >= x.dim - count_; d--) {
      if (x.sizes[d] == 1) continue;
      if (next >= 0 && x.strides[d] != next) return false;
      next = x.strides[d] * x.sizes[d];
    }
    return true;
  }

  bool is_wanted(int k) const {
    return wanted_ >> k & 1;
  }

  // Returns the shape of a result. `whole` has the shape to which all tensors are broadcast.
  Shape shape_of(int k, const Operand& whole) const {
    Shape shape{whole.dim, {}};
    std::copy_n(whole.sizes, whole.dim, shape.sizes);
    if (is_of_row(k)) {
      int64_t* const at = shape.sizes + whole.dim - from_end_;
      std::fill_n(at, count_, 1);
      if (!keeps_dim()) {
        std::copy(at + count_, shape.sizes + whole.dim, at);
        shape.dim -= count_;
      }
    }
    return shape;
  }

  void check_result(int k, const Operand& whole) const {
    const Operand& x = operands_[k];
    const Shape shape = shape_of(k, whole);
    contract::check_device_and_dtype(caller_, first(), x, op_.results[k], caller_.signature.written != 0);
    if (x.dim != shape.dim || !std::equal(x.sizes, x.sizes + x.dim, shape.sizes))
      contract::fail(
          caller_, x.name, " must have the shape of the result, ", contract::list(shape.sizes, shape.dim), ", got ",
          contract::list(x.sizes, x.dim));
  }

  // Describes the call for the kernel. `whole` has the shape to which all tensors are broadcast.
  Task task(const Operand& whole, bool is_apart) {
    Task task;
    task.index = op_.index;
    task.dtype = first().dtype;
    task.numbers = numbers_;
    task.results = results_;
    task.is_apart = is_apart;
    task.operands = count_of_operands_;
    const int64_t begin = whole.dim - from_end_, end = begin + count_; // the dimensions that are reduced
    const auto is_reduced = [begin, end](int64_t d) { return d >= begin && d < end; };
    int64_t step = end - 1; // the last of them, or the last that has a step
    while (step > begin && whole.sizes[step] == 1) step--;
    int64_t strides[kMaxOperands][kMaxDims];
    for (int k = 0; k < count_of_operands_; k++) {
      const Operand& x = operands_[k];
      int64_t* const of = strides[k];
      if (is_of_row(k)) task.of_row |= uint32_t{1} << k;
      const bool is_unwanted = k < results_ && !is_wanted(k);
      if (is_unwanted) task.unwanted |= uint32_t{1} << k;
      // A gradient with one value for each row lacks the reduced dimensions, and another result without keepdim.
      const bool needs_dims = op_.like ? !is_unwanted : x.dim < whole.dim;
      const Operand own = k < results_ && is_of_row(k) && needs_dims ? unsqueezed(k) : x;
      const int64_t missing = whole.dim - own.dim;
      for (int64_t d = 0; d < whole.dim; d++) {
        const bool is_repeated = is_unwanted || d < missing || own.sizes[d - missing] == 1;
        of[d] = is_repeated ? 0 : own.strides[d - missing];
        const bool is_own = is_reduced(d) && is_of_row(k);
        if (k < results_ && op_.like && is_repeated && whole.sizes[d] != 1 && !is_own && !is_unwanted)
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
      task.last_size = std::max<int64_t>(1, whole.sizes[d]);
      task.count *= whole.sizes[d];
      if (whole.sizes[d] == 1) continue;
      bool continues = task.dims > 0;
      for (int k = 0; k < count_of_operands_ && continues; k++)
        continues = task.stride[task.dims - 1][k] == strides[k][d] * whole.sizes[d];
      if (!continues) task.sizes[task.dims++] = 1;
      task.sizes[task.dims - 1] *= whole.sizes[d];
      for (int k = 0; k < count_of_operands_; k++) task.stride[task.dims - 1][k] = strides[k][d];
    }
    return task;
  }

 private:
  bool keeps_dim() const {
    const Number* const keeps = contract::number(signature_, numbers_, "keepdim", Kind::boolean);
    return keeps && keeps->integer;
  }

  // Finds the reduced dimension, or the first of several, counted from the end because broadcasting aligns shapes
  // there. Tensors with one value for each row get these dimensions, with size 1.
  void find_dimension(std::optional<std::span<const int64_t>> row_sizes) {
    int64_t dims = 0;
    for (int k = results_; k < count_of_operands_; k++) {
      if (operands_[k].dim >= kMaxDims)
        contract::fail(
            caller_, operands_[k].name, " must have fewer than ", kMaxDims, " dimensions, got ", operands_[k].dim);
      if (!is_of_row(k)) dims = std::max(dims, operands_[k].dim);
    }
    if (dims == 0) contract::fail(caller_, first().name, " must have a dimension to reduce, got shape []");
    if (row_sizes) find_trailing_dimensions(*row_sizes);
    const Number* const given = contract::number(signature_, numbers_, "dim", Kind::integer);
    const int64_t dim = given ? given->integer : -count_;
    if (dim < -dims || dim >= dims) // an IndexError, as torch's own operators raise
      contract::fail<std::out_of_range>(caller_, "dim must be from ", -dims, " to ", dims - 1, ", got ", dim);
    from_end_ = dim < 0 ? -dim : dims - dim;
    for (int k = results_; k < count_of_operands_; k++) {
      const std::string_view name = arguments_[k - results_]->name; // family.h gives these names
      const bool is_like_result =
          name.starts_with("grad__") || name.starts_with("grad_tangent__") || name.starts_with("reduced__");
      if (is_of_row(k) && !(is_like_result && keeps_dim())) operands_[k] = unsqueezed(k);
    }
  }

  // A row may be several trailing dimensions, if a SymInt[] of the schema has their sizes. A tensor has these, or one
  // element in their place.
  void find_trailing_dimensions(std::span<const int64_t> sizes) {
    count_ = static_cast<int64_t>(sizes.size());
    const std::string_view name = std::ranges::find(signature_.arguments, Kind::sizes, &Argument::kind)->name;
    if (count_ == 0) contract::fail(caller_, name, " must have a size, got []");
    const auto refuse = [&](const Operand& x) {
      contract::fail(
          caller_, x.name, " must end in ", name, ", ", contract::list(sizes.data(), count_), ", got shape ",
          contract::list(x.sizes, x.dim));
    };
    bool is_found = false;
    for (int k = results_; k < count_of_operands_; k++) {
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
    }
    if (!is_found) refuse(first());
  }

  // Returns operand k, which has one value for each row, and inserts the reduced dimensions, of size 1, unless they
  // come before all dimensions that it has.
  Operand unsqueezed(int k) {
    Operand x = operands_[k];
    const int64_t at = x.dim + count_ - from_end_;
    if (at < 0) return x;
    if (x.dim + count_ > kMaxDims)
      contract::fail(caller_, x.name, " must have one value for each row, got shape ", contract::list(x.sizes, x.dim));
    for (int64_t d = 0; d < x.dim + count_; d++) {
      const bool is_new = d >= at && d < at + count_;
      sizes_[k][d] = is_new ? 1 : x.sizes[d - (d < at ? 0 : count_)];
      strides_[k][d] = is_new ? 0 : x.strides[d - (d < at ? 0 : count_)];
    }
    x.dim += count_;
    x.added = count_;
    x.added_at = at;
    x.sizes = sizes_[k];
    x.strides = strides_[k];
    return x;
  }

  const contract::Caller& caller_;
  const Description& op_;
  const Signature& signature_;
  const Argument* const* const arguments_;
  Operand* const operands_;
  const int results_, count_of_operands_;
  const Number* const numbers_;
  const uint32_t wanted_;
  int64_t from_end_ = 1, count_ = 1; // of the dimensions that are reduced
  int64_t sizes_[kMaxOperands][kMaxDims], strides_[kMaxOperands][kMaxDims];
};

} // namespace elementwise::rows
