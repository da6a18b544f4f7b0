// The operators that kernels.cpp tests: this package's arithmetic, operands of several dtypes, several results,
// optional tensors, and derivatives.
#pragma once

#include <cmath>

#include "elementwise/operator.h"
#include "functors.h"

namespace tested::inline ELEMENTWISE_TARGET {

using elementwise::Results;

struct Keep {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x, bool keep, C scale) const {
    return keep ? x * scale : C(0);
  }
};
struct Quantize {
  template <class C>
  ELEMENTWISE_FUNCTION int8_t operator()(C x, C scale) const {
    const C y = std::rint(x * scale);
    const C above = y > -128 ? y : C(-128); // NaN, too
    return static_cast<int8_t>(above < 127 ? above : C(127));
  }
};
struct Both {
  template <class C>
  ELEMENTWISE_FUNCTION Results<C, C> operator()(C a, C b) const {
    return {a + b, {a - b}};
  }
};
struct Count {
  template <class C>
  ELEMENTWISE_FUNCTION Results<C, int64_t, bool> operator()(int16_t n, const C& x, C w) const noexcept {
    return {x * w, {int64_t{n} * 1'000'000'007, {x < w}}};
  }
};
struct Shift {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(elementwise::Optional<C> bias, C x, elementwise::Optional<int32_t> n) const {
    return (bias ? x + *bias : -x) * static_cast<C>(n.value_or(3));
  }
};

} // namespace tested::inline ELEMENTWISE_TARGET

namespace tested {

using elementwise::differentiable, elementwise::functional, elementwise::Operator;

// clang-format off
using Operators = elementwise::List<
    Operator<"muladd(Tensor a, Tensor b, float c)", muladd_nb::MulAdd, functional | differentiable>,
    Operator<"muladd.Tensor(Tensor a, Tensor b, Tensor c)", muladd_nb::MulAdd, functional | differentiable>,
    Operator<"mul(Tensor a, Tensor b)", muladd_nb::Mul, functional>,
    Operator<"add(Tensor a, Tensor b)", muladd_nb::Add, functional>,
    Operator<"keep(Tensor x, Tensor keep, float scale)", Keep, functional | differentiable>,
    Operator<"quantize(Tensor x, float scale)", Quantize, functional>,
    Operator<"both(Tensor a, Tensor b)", Both, functional | differentiable>,
    Operator<"count(Tensor n, Tensor x, float w)", Count, functional>,
    Operator<"shift(Tensor? bias, Tensor x, Tensor? n=None)", Shift, functional>
>;
// clang-format on

} // namespace tested
