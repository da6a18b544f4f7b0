// What is stored, and what is computed with: 16-bit types become float and back, with the instructions of the set that
// is compiled for. They are rounded to nearest even; a NaN stays a (quiet) NaN.
#pragma once

#include <cmath>
#include <cstring>

#include "../functor.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class T>
struct To {};

inline float widen(bfloat16 x) {
  return bits_as<float>(uint32_t{x.bits} << 16);
}

inline bfloat16 narrow(float x, To<bfloat16>) {
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint32_t high = bits >> 16;
  const uint32_t rounded = (bits + (0x7fff + (high & 1))) >> 16;
  return {static_cast<uint16_t>(std::isnan(x) ? high | 0x40 : rounded)};
}

#if defined(__F16C__)

inline float widen(float16 x) {
  return _cvtsh_ss(x.bits);
}

inline float16 narrow(float x, To<float16>) {
  return {_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)};
}

#elif defined(__ARM_FP16_FORMAT_IEEE)

inline float widen(float16 x) {
  return static_cast<float>(bits_as<__fp16>(x.bits));
}

inline float16 narrow(float x, To<float16>) {
  return {bits_as<uint16_t>(static_cast<__fp16>(x))};
}

#else

// No float operation here sees or makes a subnormal that matters, so that a thread that flushes them to zero
// gets the same bits as F16C gives.
inline float widen(float16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00) { // infinity and NaN
    const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
    return bits_as<float>(sign | 0x7f800000 | (magnitude << 13) | quiet);
  }
  if (magnitude >= 0x400) return bits_as<float>(sign | ((magnitude << 13) + (112u << 23)));
  // A subnormal is a multiple of 2^-24, which is a normal float.
  return bits_as<float>(sign | bits_as<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
}

inline float16 narrow(float x, To<float16>) {
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x47800000) { // 2^16 and more
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) { // 2^-14 and more: normal; rounding may carry into infinity
    half = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  } else { // subnormal: adding 0.5 leaves the multiple of 2^-24, rounded, in the low bits
    half = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000;
  }
  return {static_cast<uint16_t>(sign | half)};
}

#endif

// The other types are stored as they are computed.
template <class C>
C widen(C x) {
  return x;
}
template <class C, class T>
T narrow(C x, To<T>) {
  return static_cast<T>(x);
}

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA
