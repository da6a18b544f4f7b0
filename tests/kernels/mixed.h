// Operators whose operands differ in dtype, and that have several results.
#pragma once

#include <cmath>

#include "elementwise/bound.h"

namespace mixed::ELEMENTWISE_TARGET {

using elementwise::List, elementwise::Results;

struct Keep {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x, bool keep, C scale) const {
    return keep ? x * scale : C(0);
  }
};
struct Quantize {
  template <class C>
  ELEMENTWISE_FUNCTION int8_t operator()(C x, C scale) const {
    return static_cast<int8_t>(std::rint(x * scale));
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
  ELEMENTWISE_FUNCTION Results<C, int64_t, bool> operator()(C x, int16_t n, C w) const {
    return {x * w, {int64_t{n} * 1'000'000'007, {x < w}}};
  }
};

// clang-format off
struct KeepKernel : elementwise::Kernel<Keep, true, true, false> {
  template <class T> using Inputs = List<T, bool>;
};
struct QuantizeKernel : elementwise::Kernel<Quantize, true, false> {
  template <class T> using Results = List<int8_t>;
};
struct BothKernel : elementwise::Kernel<Both, true, true> {
  static constexpr int kResults = 2;
  template <class T> using Results = List<T, T>;
};
struct CountKernel : elementwise::Kernel<Count, true, true, false> {
  static constexpr int kResults = 3;
  template <class T> using Results = List<T, int64_t, bool>;
  template <class T> using Inputs = List<T, int16_t>;
};
// clang-format on

template <class K>
struct Of {
  using Kernel = K;
};
using Operators = List<Of<KeepKernel>, Of<QuantizeKernel>, Of<BothKernel>, Of<CountKernel>>;

} // namespace mixed::ELEMENTWISE_TARGET

namespace mixed {
using ELEMENTWISE_TARGET::Operators;
}

// The numbers of a kernel made by hand are those of the one that it is made of.
namespace elementwise {
#define MIXED_BOUND(Name, ...)                                                   \
  template <class C>                                                             \
  struct Bound<C, mixed::ELEMENTWISE_TARGET::Name##Kernel>                       \
      : Bound<C, Kernel<mixed::ELEMENTWISE_TARGET::Name, __VA_ARGS__>> {         \
    using Bound<C, Kernel<mixed::ELEMENTWISE_TARGET::Name, __VA_ARGS__>>::Bound; \
  };
MIXED_BOUND(Keep, true, true, false)
MIXED_BOUND(Quantize, true, false)
MIXED_BOUND(Both, true, true)
MIXED_BOUND(Count, true, true, false)
#undef MIXED_BOUND
} // namespace elementwise
