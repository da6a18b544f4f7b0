// Conversions between the types that tensors store and the types that kernels compute in: `widen` converts a 16-bit
// element to float, and `narrow` a float to a 16-bit element. They use the instructions of the instruction set.
// `narrow` rounds to nearest even; a NaN stays a (quiet) NaN.
#pragma once

#include "bfloat16.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#if defined(ELEMENTWISE_LONG_FUNCTORS) && defined(__AVX512F__)
#define ELEMENTWISE_WIDE // see kernels.h
#endif

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

template <class To>
To bits_as(auto from) {
  return __builtin_bit_cast(To, from);
}

#if defined(__ARM_FP16_FORMAT_IEEE)

inline float widen(float16 x) {
  return static_cast<float>(bits_as<__fp16>(x.bits));
}

inline float16 rounded_to_float16(float x) {
  return {bits_as<uint16_t>(static_cast<__fp16>(x))};
}

#else

// `condition ? yes : no`, without a branch.
inline uint32_t choose(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = -uint32_t{condition};
  return (yes & mask) | (no & ~mask);
}

// float16 without F16C. There is no branch, so that GCC vectorises loops that call these. Results have the bits that
// F16C gives, even on a thread that flushes subnormals to zero, because no operation here depends on a subnormal.
inline float widen_by_bits(float16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const int32_t magnitude = x.bits & 0x7fff;
  constexpr uint32_t kBias = 112u << 23;                       // the difference of the exponents' biases
  const uint32_t normal = (uint32_t(magnitude) << 13) + kBias; // infinity and NaN need kBias once more
  const uint32_t number = (normal + choose(magnitude >= 0x7c00, kBias, 0)) | choose(magnitude > 0x7c00, 0x400000, 0);
  // A subnormal is a multiple of 2^-24, which is a normal float.
  return bits_as<float>(
      sign | choose(magnitude < 0x400, bits_as<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f), number));
}

inline float16 narrow_by_bits(float x) {
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  const auto ordered = static_cast<int32_t>(magnitude);
  const uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  // From 2^-14 on. Rounding may carry into infinity.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below it the result is subnormal, a multiple of 2^-24. Adding 0.5 leaves that multiple, rounded, in the low bits.
  const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000;
  uint32_t half = choose(ordered >= 0x38800000, normal, subnormal);
  half = choose(ordered >= 0x47800000, 0x7c00, half); // from 2^16 on
  half = choose(ordered > 0x7f800000, nan, half);
  return {static_cast<uint16_t>(sign | half)};
}

#if defined(__F16C__)

// Hides from clang that x was a float16. Otherwise clang computes comparisons and minima in float16, one element at a
// time, because F16C only converts. `in` is the kind of register that x is in.
#if defined(__clang__)
#define ELEMENTWISE_HIDE(x, in) asm("" : "+" in(x))
#else
#define ELEMENTWISE_HIDE(x, in)
#endif

inline float widen(float16 x) {
  ELEMENTWISE_HIDE(x.bits, "r");
  return _cvtsh_ss(x.bits);
}

inline float16 rounded_to_float16(float x) {
  // Not _cvtss_sh: in clang's headers it is a compound literal, which is not C++.
  const __m128i halves = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT);
  return {static_cast<uint16_t>(_mm_cvtsi128_si32(halves))};
}

#else

// These are not inlined: vectorised, they would be three times as much code as the rest of an operator.
[[gnu::noinline]] inline float widen(float16 x) {
  return widen_by_bits(x);
}

[[gnu::noinline]] inline float16 rounded_to_float16(float x) {
  return narrow_by_bits(x);
}

#endif
#endif

#if defined(__F16C__)

// A vector of elements of the type that a kernel computes in. GCC keeps the array in a register, and compiles a loop
// over it to one instruction.
#if defined(ELEMENTWISE_WIDE)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
template <class C, int n = kLanes>
struct Lanes {
  alignas(sizeof(C) * n) C lane[n];
};

// GCC 12 does not vectorise conversions of float16, so we call the instructions.
inline Lanes<float> load_float16(const void* from) {
  Lanes<float> to;
#if defined(ELEMENTWISE_WIDE)
  _mm512_store_ps(to.lane, _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(from))));
#else
  __m256 numbers = _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  ELEMENTWISE_HIDE(numbers, "x");
  _mm256_store_ps(to.lane, numbers);
#endif
  return to;
}

inline void unload_float16(const Lanes<float>& from, void* to) {
#if defined(ELEMENTWISE_WIDE)
  const __m256i halves = _mm512_maskz_cvtps_ph(0xffff, _mm512_load_ps(from.lane), _MM_FROUND_TO_NEAREST_INT);
  _mm256_storeu_si256(static_cast<__m256i*>(to), halves);
#else
  const __m128i halves = _mm256_cvtps_ph(_mm256_load_ps(from.lane), _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128(static_cast<__m128i*>(to), halves);
#endif
}

#endif

// Other types are computed as they are stored.
template <class C>
C widen(C x) {
  return x;
}
// In torch every byte other than 0 is true, and x.view(torch.bool) has such bytes. To the compiler a bool is 0 or 1.
inline bool widen(const bool& x) {
  return reinterpret_cast<const uint8_t&>(x) != 0;
}
template <class T>
T narrow(auto x) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return {static_cast<uint16_t>(rounded_to_bfloat16(x) >> 16)};
  else if constexpr (std::is_same_v<T, float16>)
    return rounded_to_float16(x);
  else
    return static_cast<T>(x);
}

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA
