// Functions of float8_e4m3fn for functors, which pass it as its bits: x.view(torch.uint8).
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "elementwise/functor.h"

namespace float8::inline ELEMENTWISE_TARGET {

ELEMENTWISE_INLINE uint8_t
to_float8(float x) { // rounds to nearest even, and saturates; there is only one NaN, whose sign does not matter
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = bits >> 24 & 0x80;
  const float magnitude = std::fabs(x) < 448.0f ? std::fabs(x) : 448.0f;
  std::memcpy(&bits, &magnitude, sizeof(bits));
  const uint32_t normal = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
  const uint32_t subnormal = static_cast<uint32_t>(static_cast<int32_t>(std::rint(magnitude * 512.0f)));
  const uint32_t number = sign | (magnitude < 0.015625f ? subnormal : normal);
  return static_cast<uint8_t>(x == x ? number : 0x7f);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

ELEMENTWISE_INLINE float from_float8(uint8_t x) {
  const uint32_t magnitude = x & 0x7f, bits = (magnitude << 20) + (120u << 23);
  float normal;
  std::memcpy(&normal, &bits, sizeof(normal));
  const float finite = magnitude < 8 ? static_cast<float>(magnitude) * 0.001953125f : normal;
  const float value = magnitude == 0x7f ? kNaN : finite;
  return x & 0x80 ? -value : value;
}

} // namespace float8::inline ELEMENTWISE_TARGET
