// The contract of the operators: the checks that every kernel makes before it reads or writes, and their error
// messages. They work on an `Operand`, which describes a tensor of torch or of ExecuTorch. _layer/contract.py has the
// same checks for fake and meta tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "operator.h"
#include "overlap.h"
#include "strided.h"

namespace elementwise {

// A tensor of a call: its name in the schema, and its metadata, read once from torch's or ExecuTorch's tensor. Sizes
// and strides count elements; the tensor owns them.
struct Operand {
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d = 0; d < dim; d++) n *= sizes[d];
    return n;
  }

  // Returns the distance from the first element to just past the last one, in elements.
  int64_t extent() const {
    int64_t last = 0;
    for (int64_t d = 0; d < dim; d++) {
      if (sizes[d] == 0) return 0;
      last += strides[d] * (sizes[d] - 1);
    }
    return last + 1;
  }

  // The same answer as torch.Tensor.is_contiguous: the strides of dimensions of size one do not matter.
  bool contiguous() const {
    int64_t expected = 1;
    for (int64_t d = dim - 1; d >= 0; d--) {
      if (sizes[d] == 1) continue;
      if (strides[d] != expected) return numel() == 0;
      expected *= sizes[d];
    }
    return true;
  }

  std::string_view name;
  int64_t dim = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int32_t dtype = 0; // torch's ordinal, as for device_type
  int64_t element_bytes = 0;
  int32_t device_type = 0;
  int32_t device_index = 0;
  int64_t offset = 0;        // where the first element is in the storage, in elements
  int64_t storage_bytes = 0; // the size of the storage
  void* data = nullptr;      // the address of the first element
  int64_t added = 0;         // dimensions that the caller's tensor lacks, from added_at on (rows/layout.h)
  int64_t added_at = 0;
};

namespace contract {

// The operator that an error message begins with. Its overload's name is left out, except for an out variant.
struct Caller {
  const Signature& signature;
  unsigned form;
};

// Raises an error. STD_TORCH_CHECK would put function, file and line before the message.
template <class Error = std::runtime_error>
[[noreturn]] void fail(const Caller& op, const auto&... parts) {
  const std::string name = op.signature.qualified(op.form);
  std::ostringstream text;
  text << (op.form & out ? name : name.substr(0, name.find('.'))) << ": ";
  (text << ... << parts);
  throw Error(text.str());
}

// "x, y or z", if `last` is " or ". word(i) returns the i-th of n words.
std::string listed(size_t n, const char* last, const auto& word) {
  std::string text;
  for (size_t i = 0; i < n; i++) text.append(i == 0 ? "" : i + 1 < n ? ", " : last).append(word(i));
  return text;
}

inline std::string list(const int64_t* values, int64_t n) {
  return std::string("[") + listed(n, ", ", [&](size_t i) { return std::to_string(values[i]); }) + "]";
}

// Returns torch's name of a device, for error messages. The ordinals of its type cannot change, because serialized
// models contain them; ExecuTorch has the same.
inline std::string device_name(const Operand& x) {
  static const char* const names[] = {"cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
                                      "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
                                      "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuseone"};
  const size_t type = x.device_type;
  const std::string name = type < std::size(names) ? names[type] : "device type " + std::to_string(type);
  return x.device_index < 0 || type == 0 ? name : name + ":" + std::to_string(x.device_index);
}

// Returns torch's name of a dtype. These ordinals cannot change either.
inline std::string dtype_name(int32_t dtype) {
  // clang-format off
  static const char* const names[] = {
      "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
      "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2", "quint2x4", "bits1x8", "bits2x4",
      "bits4x2", "bits8", "bits16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16",
      "uint32", "uint64", "uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7", "int1", "int2", "int3",
      "int4", "int5", "int6", "int7", "float8_e8m0fnu", "float4_e2m1fn_x2",
  };
  // clang-format on
  return static_cast<size_t>(dtype) < std::size(names) ? names[dtype] : "dtype " + std::to_string(dtype);
}

[[noreturn]] inline void fail_to_allocate(const Caller& op, const Operand& like) {
  fail(
      op, "could not allocate the result, a ", dtype_name(like.dtype), " tensor of shape ", list(like.sizes, like.dim),
      " on ", device_name(like));
}

// The argument was None, which torch's parser accepts wherever a schema says Tensor.
[[noreturn]] inline void fail_none(const Caller& op, std::string_view name) {
  fail(op, name, " must be a tensor, got None");
}

[[noreturn]] inline void fail_inference_tensor(const Caller& op, const Operand& out) {
  fail(
      op, out.name,
      " was made in inference mode and is not written outside it; write to a clone of it, or call the operator "
      "under torch.inference_mode()");
}

inline bool same_shape(const Operand& x, const Operand& y) {
  return x.dim == y.dim && std::equal(x.sizes, x.sizes + x.dim, y.sizes);
}

inline void check_dtype(const Caller& op, std::span<const int32_t> dtypes, const Operand& a) {
  if (std::find(dtypes.begin(), dtypes.end(), a.dtype) != dtypes.end()) return;
  const std::string any = listed(dtypes.size(), " or ", [&](size_t i) { return dtype_name(dtypes[i]); });
  fail(op, a.name, " must be ", any, ", got ", dtype_name(a.dtype));
}

// Raises an error about two operands that do not fit together. If one is `out`, the advice is to change `out`.
[[noreturn]] void fail_unlike(const Caller& op, const Operand& x, const std::string& unlike, const auto&... cure) {
  if (x.name == "out") fail(op, unlike, "; make out with torch.empty_like");
  fail(op, unlike, "; ", cure...);
}

inline std::string pair_must(const Operand& a, const Operand& x) {
  return std::string(a.name).append(" and ").append(x.name).append(" must ");
}

inline void check_same_device(const Caller& op, const Operand& a, const Operand& x) {
  if (a.device_type != x.device_type || a.device_index != x.device_index)
    fail_unlike(
        op, x, pair_must(a, x) + "be on the same device, got " + device_name(a) + " and " + device_name(x), "use ",
        x.name, ".to(", a.name, ".device)");
}

// Checks a pair: first the device, then the dtype. `own` is the dtype that x must have, or kOfC if it must have a's. A
// row of 16 bits is computed in float, so tensors beside it may be float32 too, as the weights of a norm often are.
inline void check_device_and_dtype(
    const Caller& op, const Operand& a, const Operand& x, int32_t own = kOfC, bool is_over_rows = false) {
  check_same_device(op, a, x);
  if (own == kOfC && x.dtype != a.dtype && !(is_over_rows && has_16_bits(a.dtype) && x.dtype == kOrdinal<float>))
    fail_unlike(
        op, x, pair_must(a, x) + "have the same dtype, got " + dtype_name(a.dtype) + " and " + dtype_name(x.dtype),
        "nothing is promoted, use ", x.name, ".to(", a.name, ".dtype)");
  if (own != kOfC && x.dtype != own) fail(op, x.name, " must be ", dtype_name(own), ", got ", dtype_name(x.dtype));
}

inline void check_same_shape(const Caller& op, const Operand& a, const Operand& x) {
  if (!same_shape(a, x))
    fail_unlike(
        op, x, pair_must(a, x) + "have the same shape, got " + list(a.sizes, a.dim) + " and " + list(x.sizes, x.dim),
        "nothing is broadcast, use ", x.name, ".expand_as(", a.name, ") or ", a.name, ".expand_as(", x.name, ")");
}

// A number that is passed as a tensor must be on the CPU, so that reading it does not wait for a device. It may lie on
// the kernel's own kind of device too: compiled programs pass `x.item()` in this way, and item() would have waited too.
inline void check_number(const Caller& op, const Operand& c, int32_t device_type) {
  constexpr int32_t kCpu = 0;
  const bool is_near = c.device_type == kCpu || c.device_type == device_type;
  if (c.dim == 0 && c.dtype == kOrdinal<double> && is_near) return;
  const std::string name = op.signature.qualified(op.form);
  fail(
      op, c.name, " must be a number, or for ", name.substr(name.find('.') + 1),
      " a float64 tensor of shape [] on cpu, got one of ", dtype_name(c.dtype), ", shape ", list(c.sizes, c.dim),
      ", on ", device_name(c));
}

// Returns the index of a number in the list of allowed values. The caller has converted a bool to 0 or 1.
inline size_t check_choice(const Caller& op, const Argument& argument, const Choices& choices, int64_t number) {
  const std::span<const int64_t> values(choices.values, choices.size);
  const auto found = std::find(values.begin(), values.end(), number);
  if (found == values.end()) {
    const auto text = [&](int64_t value) {
      return argument.kind != Kind::boolean ? std::to_string(value) : value ? "True" : "False";
    };
    const std::string any = listed(values.size(), " or ", [&](size_t i) { return text(values[i]); });
    fail(op, argument.name, " must be ", any, ", got ", text(number));
  }
  return found - values.begin();
}

// Reads the arguments of a call, and returns the kernel for the optional tensors that are present and for the value of
// each OneOf. read(i, argument, number) takes the i-th argument: it sets `number`, unless the argument is a tensor,
// and returns false if an optional tensor is absent.
const Description* read_arguments(const Caller& op, const Description* kernels, Number* numbers, const auto& read) {
  size_t kernel = 0, choices = 1;
  for (int i = 0; i < op.signature.count; i++) {
    const Argument& argument = op.signature.arguments[i];
    const Choices& of = kernels->choices[i];
    size_t choice = !read(i, argument, *numbers);
    if (of.values) choice = check_choice(op, argument, of, numbers->integer);
    numbers += !argument.is_tensor();
    kernel += choices * choice;
    choices *= of.count(argument.kind);
  }
  return kernels + kernel;
}

// Returns the number that was passed for the argument `name`, or null if the schema has no such argument.
inline const Number* number(const Signature& signature, const Number* numbers, std::string_view name, Kind kind) {
  for (const Argument& argument : std::span(signature.arguments, signature.count)) {
    if (argument.name == name && argument.kind == kind) return numbers;
    numbers += !argument.is_tensor();
  }
  return nullptr;
}

// Returns the index of an argument among the inputs, or -1 if it is an optional tensor that is absent.
inline int input_of(const Argument& argument, std::span<const Argument* const> inputs) {
  const auto found = std::find(inputs.begin(), inputs.end(), &argument);
  return found == inputs.end() ? -1 : static_cast<int>(found - inputs.begin());
}

// Returns which results the caller asks for, as a bit for each. Only gradients may be unwanted.
inline uint32_t wanted(
    const Signature& signature, const Description& op, const Number* numbers, std::span<const Argument* const> inputs,
    int results) {
  const uint32_t all = (uint32_t{1} << results) - 1;
  if (!op.like) return all;
  const Number* const needs = number(signature, numbers, "needs__", Kind::integer);
  uint32_t wanted = needs ? static_cast<uint32_t>(needs->integer) & all : all;
  for (int k = 0; k < results; k++)
    if (input_of(signature.arguments[op.like[k]], inputs) < 0) wanted &= ~(uint32_t{1} << k);
  return wanted;
}

// A storage may have been shrunk below its tensor, as untyped_storage().resize_ and FSDP do, or have no memory.
inline void check_in_storage(const Caller& op, const Operand& x) {
  const int64_t extent = x.extent();
  if (extent > 0 && (x.offset + extent) * x.element_bytes > x.storage_bytes)
    fail(
        op, x.name, " must lie in its storage, got shape ", list(x.sizes, x.dim), ", strides ", list(x.strides, x.dim),
        " and offset ", x.offset, " in a storage of ", x.storage_bytes, " bytes");
  // A zero tensor of torch has no memory, but its storage claims to have bytes, and begins at null. A view of it begins
  // at null plus an offset.
  if (extent > 0 && reinterpret_cast<intptr_t>(x.data) == x.offset * x.element_bytes)
    fail(op, x.name, " must have memory, got a tensor without memory; clone() of a zero tensor has memory");
}

// Makes all checks of the inputs of a call, which must have the same dtype, device and shape.
inline void check_inputs(const Caller& op, std::span<const int32_t> dtypes, std::span<const Operand> inputs) {
  check_dtype(op, dtypes, inputs[0]);
  for (const Operand& x : inputs.subspan(1)) {
    check_device_and_dtype(op, inputs[0], x);
    check_same_shape(op, inputs[0], x);
  }
  for (const Operand& x : inputs) check_in_storage(op, x);
}

// The checked inputs of a call, expanded to the shape of the result.
class Inputs {
 public:
  // Makes all checks. If shapes differ, it expands `inputs` to one shape: broadcast dimensions get strides of 0.
  Inputs(const Caller& op, const Description& of, std::span<Operand> inputs) {
    const Operand& a = inputs[of.first];
    check_dtype(op, of.dtypes, a);
    for (size_t k = 0; k < inputs.size(); k++) {
      if (k == of.first) continue;
      check_device_and_dtype(op, a, inputs[k], of.inputs[k], of.is_over_rows);
      if (!of.broadcasts) check_same_shape(op, a, inputs[k]);
      are_broadcast = are_broadcast || !same_shape(a, inputs[k]);
    }
    if (are_broadcast) broadcast_shape(op, inputs);
    for (const Operand& x : inputs) check_in_storage(op, x);
    if (are_broadcast)
      expand(inputs);
    else
      while (first_of_shape < inputs.size() && inputs[first_of_shape].added) first_of_shape++;
  }
  Inputs(const Inputs&) = delete; // the operands point into it

  bool are_broadcast = false;
  size_t first_of_shape = 0; // the first input that was passed with this shape, or the number of inputs

  // Checks a tensor that is written to against the first input of type C.
  void check_out(const Caller& op, const Operand& a, const Operand& out, int32_t own) const {
    check_device_and_dtype(op, a, out, own);
    if (are_broadcast && !same_shape(a, out))
      fail(
          op, out.name, " must have the shape that the tensors are broadcast to, ", list(a.sizes, a.dim), ", got ",
          list(out.sizes, out.dim));
    check_same_shape(op, a, out);
  }

 private:
  // Finds the shape that the inputs are broadcast to. Shapes are aligned at the last dimension; dimensions of size 1
  // are repeated.
  void broadcast_shape(const Caller& op, std::span<const Operand> inputs) {
    dim_ = 0;
    for (const Operand& x : inputs) dim_ = std::max(dim_, x.dim);
    if (dim_ > kMaxDims) fail(op, "tensors of more than ", kMaxDims, " dimensions are not broadcast, got ", dim_);
    std::fill_n(sizes_, dim_, 1);
    for (const Operand& x : inputs) {
      int64_t* const sizes = sizes_ + (dim_ - x.dim);
      for (int64_t d = 0; d < x.dim; d++) {
        if (sizes[d] != 1 && x.sizes[d] != 1 && sizes[d] != x.sizes[d]) fail_to_broadcast(op, inputs);
        if (sizes[d] == 1) sizes[d] = x.sizes[d];
      }
    }
  }

  [[noreturn]] static void fail_to_broadcast(const Caller& op, std::span<const Operand> inputs) {
    const auto name = [&](size_t k) { return inputs[k].name; };
    const auto shape = [&](size_t k) { // as the caller passed it
      const Operand& x = inputs[k];
      std::vector<int64_t> sizes(x.sizes, x.sizes + x.dim);
      sizes.erase(sizes.begin() + x.added_at, sizes.begin() + x.added_at + x.added);
      return list(sizes.data(), x.dim - x.added) + (x.added ? " (one value for each row)" : "");
    };
    fail(
        op, listed(inputs.size(), " and ", name), " must have shapes that broadcast, got ",
        listed(inputs.size(), " and ", shape));
  }

  void expand(std::span<Operand> inputs) {
    first_of_shape = inputs.size();
    for (size_t k = inputs.size(); k-- > 0;) {
      Operand& x = inputs[k];
      const int64_t missing = dim_ - x.dim;
      std::fill_n(strides_[k], missing, 0);
      for (int64_t d = 0; d < x.dim; d++) strides_[k][missing + d] = x.sizes[d] == 1 ? 0 : x.strides[d];
      if (missing == 0 && !x.added && std::equal(sizes_, sizes_ + dim_, x.sizes)) {
        first_of_shape = k; // a new result gets the strides of this input
      } else {
        x.dim = dim_;
        x.sizes = sizes_;
        x.strides = strides_[k];
      }
    }
  }

  int64_t dim_, sizes_[kMaxDims], strides_[kMaxInputs][kMaxDims]; // the layout of the expanded inputs
};

inline void check_not_self_overlapping(const Caller& op, const Operand& out) {
  if (!out.contiguous() && overlaps_itself(out.dim, out.sizes, out.strides))
    fail(
        op, out.name, " must not overlap itself, got shape ", list(out.sizes, out.dim), " and strides ",
        list(out.strides, out.dim));
}

// Whether two operands have a byte in common.
inline bool share_memory(const Operand& x, const Operand& y) {
  const int64_t x_extent = x.extent(), y_extent = y.extent(), x_bytes = x.element_bytes, y_bytes = y.element_bytes;
  const int64_t distance = static_cast<const char*>(y.data) - static_cast<const char*>(x.data);
  if (x_extent == 0 || y_extent == 0 || distance >= x_extent * x_bytes || -distance >= y_extent * y_bytes) return false;
  const int64_t unit = x_bytes == y_bytes && distance % y_bytes == 0 ? y_bytes : 1;
  return overlaps(
      {x.dim, x.sizes, x.strides, x_bytes / unit}, {y.dim, y.sizes, y.strides, y_bytes / unit}, distance / unit);
}

// A tensor that is written to must share no memory with another tensor of the call.
inline void check_apart(const Caller& op, const Operand& out, const Operand& x) {
  if (share_memory(out, x)) fail(op, out.name, " is written to and must share no memory with ", x.name);
}

// `out` may be exactly an input. Any other shared element might be read after it was written.
inline void check_apart_or_same(const Caller& op, const Operand& out, const Operand& x) {
  bool same = out.data == x.data && out.dtype == x.dtype;
  for (int64_t d = 0; d < out.dim; d++) same &= out.sizes[d] == 1 || out.strides[d] == x.strides[d];
  if (!same && share_memory(out, x))
    fail(op, out.name, " must be ", x.name, " itself or share no memory with it, got a partial overlap");
}

} // namespace contract
} // namespace elementwise
