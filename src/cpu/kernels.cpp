// The CPU kernel, compiled once for each instruction set: MULADD_NB_ISA names the namespace, and the
// build passes the matching -march. Only the standard library is included, and everything but the
// entry point has internal linkage, so that no function compiled here for AVX-512 can be the one the
// linker keeps for a machine without it.
#include "kernels.h"

#include <cmath>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace muladd_nb::cpu::MULADD_NB_ISA {
namespace {

// ---- 16-bit types <-> float. Rounding is to nearest even; a NaN stays a (quiet) NaN.

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

float widen(bfloat16 x) {
  return bits_as<float>(uint32_t{x.bits} << 16);
}

void narrow(float x, bfloat16& to) {
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40;
  to.bits = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

#if defined(__F16C__)

float widen(float16 x) {
  return _cvtsh_ss(x.bits);
}

void narrow(float x, float16& to) {
  to.bits = _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

#elif defined(__FLT16_MAX__) && defined(__aarch64__)

float widen(float16 x) {
  return static_cast<float>(bits_as<_Float16>(x.bits));
}

void narrow(float x, float16& to) {
  to.bits = bits_as<uint16_t>(static_cast<_Float16>(x));
}

#else

// Integer arithmetic only, so that a thread that flushes subnormals gets the same bits as F16C.
float widen(float16 x) {
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

void narrow(float x, float16& to) {
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
  to.bits = static_cast<uint16_t>(sign | half);
}

#endif

// float and double are stored as they are computed.
template <class C>
C widen(C x) {
  return x;
}
template <class C>
void narrow(C x, C& to) {
  to = x;
}

// ---- Rows of n elements, next to each other in memory.

template <class T>
void widen_row(const T* from, compute_t<T>* to, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = widen(from[i]);
}

template <class T>
void narrow_row(const compute_t<T>* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; i++) narrow(from[i], to[i]);
}

#if defined(__F16C__) // GCC 12 does not vectorise these conversions by itself

template <>
void widen_row(const float16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < n; i++) to[i] = widen(from[i]);
}

template <>
void narrow_row(const float* from, float16* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; i++) narrow(from[i], to[i]);
}

#endif

// Copies past the cache: a line that is not read again need not be fetched to be written.
template <class T>
void stream_row(const T* from, T* to, int64_t n) {
#ifdef __SSE2__
  constexpr int64_t kVector = 16 / sizeof(T);
  const int64_t misaligned = (reinterpret_cast<uintptr_t>(to) & 15) / sizeof(T);
  const int64_t head = misaligned ? std::min(n, kVector - misaligned) : 0;
  std::memcpy(to, from, head * sizeof(T));
  int64_t i = head;
  for (; i + kVector <= n; i += kVector)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  std::memcpy(to + i, from + i, (n - i) * sizeof(T));
#else
  std::memcpy(to, from, n * sizeof(T));
#endif
}

// ---- A tile: n[0] x n[1] elements, strides s[0] (inner) and s[1].

template <class C>
struct Rows {
  const C* data;
  int64_t stride; // from one row to the next
};

// The tile of one input as rows of adjacent elements in the compute type: itself where it is that
// already, else gathered into `buffer` in the order of its own memory.
template <class T>
Rows<compute_t<T>> rows_of(const T* from, const int64_t s[2], const int64_t n[2], compute_t<T>* buffer) {
  if constexpr (std::is_same_v<T, compute_t<T>>)
    if (s[0] == 1 || n[0] == 1) return {from, s[1]};
  if (s[1] != 0 && s[1] < s[0]) {
    for (int64_t i = 0; i < n[0]; i++)
      for (int64_t j = 0; j < n[1]; j++) buffer[j * n[0] + i] = widen(from[i * s[0] + j * s[1]]);
    return {buffer, n[0]};
  }
  const int64_t rows = s[1] == 0 ? 1 : n[1]; // an expanded row is gathered once
  for (int64_t j = 0; j < rows; j++) {
    const T* const row = from + j * s[1];
    compute_t<T>* const to = buffer + j * n[0];
    if (s[0] == 1) {
      widen_row(row, to, n[0]);
    } else if (s[0] == 0) {
      std::fill(to, to + n[0], widen(*row));
    } else {
      for (int64_t i = 0; i < n[0]; i++) to[i] = widen(row[i * s[0]]);
    }
  }
  return {buffer, s[1] == 0 ? 0 : n[0]};
}

template <class T, class F>
void tile(
    T* out, const T* a, const T* b, const F& f, const int64_t (&s)[kOperands][2], const int64_t n[2], bool stream) {
  using C = compute_t<T>;
  alignas(64) C a_buffer[Tiles::kTile], b_buffer[Tiles::kTile], result[Tiles::kTile];
  alignas(64) T stored[Tiles::kTile];
  const Rows<C> x = rows_of(a, s[1], n, a_buffer), y = rows_of(b, s[2], n, b_buffer);
  for (int64_t j = 0; j < n[1]; j++) {
    T* const row = out + j * s[0][1];
    const C *const x_row = x.data + j * x.stride, *const y_row = y.data + j * y.stride;
    const bool adjacent = s[0][0] == 1;
    C* to = result;
    if constexpr (std::is_same_v<T, C>)
      if (adjacent && !stream) to = row;
#pragma GCC ivdep // out may be a or b itself: then an element is read and written in the same step
    for (int64_t i = 0; i < n[0]; i++) to[i] = f(x_row[i], y_row[i]);
    if (adjacent && !stream) {
      if constexpr (!std::is_same_v<T, C>) narrow_row(result, row, n[0]);
      continue;
    }
    const T* packed = stored;
    if constexpr (std::is_same_v<T, C>) {
      packed = result;
    } else {
      narrow_row(result, stored, n[0]);
    }
    if (adjacent) {
      stream_row(packed, row, n[0]);
    } else {
      for (int64_t i = 0; i < n[0]; i++) row[i * s[0][0]] = packed[i];
    }
  }
}

// Walks the tiles from begin to end like an odometer: the digits are the tile's place in the two inner
// dimensions and its index in each outer one.
template <class T, class F>
void run(const Work& work, const F& f, int64_t begin, int64_t end) {
  const Plan& plan = work.plan;
  const Tiles& tiles = work.tiles;
  int64_t digit[kMaxDims] = {}, base[kMaxDims];
  const int digits = std::max(plan.dims, 2);
  int64_t rest = begin;
  for (int d = 0; d < digits; d++) {
    base[d] = d < 2 ? tiles.count[d] : plan.size[d];
    digit[d] = rest % base[d];
    rest /= base[d];
  }
  int64_t s[kOperands][2];
  for (int operand = 0; operand < kOperands; operand++)
    for (int d = 0; d < 2; d++) s[operand][d] = d < plan.dims ? plan.stride[operand][d] : 1 - d;

  for (int64_t at = begin; at < end; at++) {
    int64_t offset[kOperands] = {}, n[2];
    for (int d = 0; d < 2; d++) {
      const int64_t first = digit[d] * tiles.extent[d];
      n[d] = std::min(tiles.extent[d], tiles.size[d] - first);
      for (int operand = 0; operand < kOperands; operand++) offset[operand] += first * s[operand][d];
    }
    for (int d = 2; d < plan.dims; d++)
      for (int operand = 0; operand < kOperands; operand++) offset[operand] += digit[d] * plan.stride[operand][d];
    tile(
        static_cast<T*>(work.out) + offset[0], static_cast<const T*>(work.a) + offset[1],
        static_cast<const T*>(work.b) + offset[2], f, s, n, work.stream);
    for (int d = 0; d < digits && ++digit[d] == base[d]; d++) digit[d] = 0;
  }
#ifdef __SSE2__
  if (work.stream) _mm_sfence(); // streamed lines are seen by other threads from here on
#endif
}

} // namespace

void kernel(const Work& work, int64_t begin, int64_t end) {
  with_dtype(work.dtype, [&](auto storage) {
    using T = decltype(storage);
    with_functor<compute_t<T>>(work.function, work.c, [&](const auto& f) { run<T>(work, f, begin, end); });
  });
}

} // namespace muladd_nb::cpu::MULADD_NB_ISA
