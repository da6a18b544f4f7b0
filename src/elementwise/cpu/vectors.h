// Access to memory for the files that compute, move and sum: elements at any address, the size of a vector, and writes
// past the cache.
#pragma once

#include <cstdint>
#include <cstring>

#include "work.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

// Bytes of a vector. With AVX-512 vectors have 256 bits too: see meson.build.
#if defined(__AVX2__)
constexpr int kVector = 32;
#else
constexpr int kVector = 16;
#endif

// An element in memory, at any address: a tensor may begin between two of its elements.
template <class T>
struct __attribute__((packed)) Element {
  T value;
};

// Writes a cache line past the cache (a non-temporal store), so that the line need not be read first. Both addresses
// are aligned.
[[gnu::always_inline]] inline void write_past_cache(const void* from, void* to) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_load_si512(from));
#elif defined(__AVX__)
  for (int64_t k = 0; k < kLine / 32; k++)
    _mm256_stream_si256(static_cast<__m256i*>(to) + k, _mm256_load_si256(static_cast<const __m256i*>(from) + k));
#elif defined(__SSE2__)
  for (int64_t k = 0; k < kLine / 16; k++)
    _mm_stream_si128(static_cast<__m128i*>(to) + k, _mm_load_si128(static_cast<const __m128i*>(from) + k));
#else
  std::memcpy(to, from, kLine);
#endif
}

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA
