// The arithmetic of one element of each operator. fma rounds once, with or without an FMA instruction. The build turns
// off contraction, so the compiler fuses nothing else.
#pragma once

#include "elementwise/math/basic.h"

namespace muladd_nb::inline ELEMENTWISE_TARGET {

struct MulAdd {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C a, C b, C c) const {
    return elementwise::fma(a, b, c);
  }
};

struct Mul {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C a, C b) const {
    return a * b;
  }
};

struct Add {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C a, C b) const {
    return a + b;
  }
};

} // namespace muladd_nb::inline ELEMENTWISE_TARGET
