// For kernels that are not element-wise: 16-bit element types with conversions to and from float by static_cast, on the
// CPU and on a GPU, and the dispatch on the dtype.
#pragma once

#include <cstring>
#include <type_traits>

#ifdef ELEMENTWISE_ISA
#define ELEMENTWISE_LONG_FUNCTORS // see ../cpu/kernels.h
#include "../cpu/convert.h"

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

// A 16-bit type for code that is compiled for an instruction set. torch's types have inline functions, which each
// instruction set would compile under the same name.
template <class Storage>
struct Converted : Storage {
  Converted() = default;
  explicit Converted(float x) : Storage(narrow<Storage>(x)) {}
  explicit operator float() const {
    return widen(static_cast<const Storage&>(*this));
  }
};

#if !defined(__ARM_FP16_FORMAT_IEEE) // GCC 12 vectorises neither the instructions of F16C nor a call
template <>
inline Converted<float16>::Converted(float x) : float16(narrow_by_bits(x)) {}
template <>
inline Converted<float16>::operator float() const {
  return widen_by_bits(*this);
}
#endif

using Half = Converted<float16>;
using BFloat16 = Converted<bfloat16>;

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA

namespace elementwise {
using cpu::ELEMENTWISE_ISA::Half, cpu::ELEMENTWISE_ISA::BFloat16;
}
#else
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "../cuda/start.h"
#include "../functor.h"

namespace elementwise {
using torch::headeronly::Half, torch::headeronly::BFloat16;
}
#endif

#include "../bound_functor.h"
#include "../math.h"
#include "../place.h"

namespace elementwise {

template <>
struct ComputeOf<Half> : ComputeOf<float16> {};
template <>
struct ComputeOf<BFloat16> : ComputeOf<bfloat16> {};

// The addresses of a list of tensors, in a struct that can be passed to a CUDA kernel by value.
template <class T>
struct Pointers {
  static constexpr int64_t kMost = 32; // the arguments of a CUDA kernel have at most 4096 bytes
  T* of[kMost];
  int64_t count;
};

// Calls body(kernel), where `kernel` is a Kernel<T> for the type T with this ordinal. Its members are copied from
// `given`, a Kernel<void>, which is the same struct with void pointers.
template <template <class> class Kernel, class Body>
void with_kernel(int32_t ordinal, const void* given, const Body& body) {
  with_dtype(FloatingPoint{}, ordinal, [&](auto storage) {
    using S = decltype(storage);
    using T = std::conditional_t<
        std::is_same_v<S, float16>, Half, std::conditional_t<std::is_same_v<S, bfloat16>, BFloat16, S>>;
    static_assert(std::is_trivially_copyable_v<Kernel<T>> && sizeof(Kernel<T>) == sizeof(Kernel<void>));
    Kernel<T> kernel;
    std::memcpy(&kernel, given, sizeof(kernel));
    body(kernel);
  });
}

} // namespace elementwise
