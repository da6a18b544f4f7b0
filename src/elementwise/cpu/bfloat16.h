// Converts between bfloat16, which tensors store, and float, which kernels compute in. bfloat16 is the upper half of a
// float, so the compiler vectorises loops over these functions.
#pragma once

#include <cmath>

#include "../functor.h"

namespace elementwise::inline ELEMENTWISE_TARGET {

ELEMENTWISE_INLINE float widen(bfloat16 x) {
  return __builtin_bit_cast(float, uint32_t{x.bits} << 16);
}

// Rounds to nearest even; a NaN stays a (quiet) NaN. The bfloat16 is in the upper half of the result.
ELEMENTWISE_INLINE uint32_t rounded_to_bfloat16(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  return std::isnan(x) ? bits | 0x400000 : bits + (0x7fff + (bits >> 16 & 1));
}

ELEMENTWISE_INLINE void set(bfloat16* to, float x) {
  to->bits = static_cast<uint16_t>(rounded_to_bfloat16(x) >> 16);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
