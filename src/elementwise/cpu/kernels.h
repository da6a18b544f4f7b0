// The CPU kernels, compiled once for each instruction set: ELEMENTWISE_ISA names the namespace, and the build passes
// the matching -march. Everything has internal linkage or a name with the instruction set in it, and of the standard
// library only what is inlined is used, so that no function compiled here for AVX-512 can be the one the linker keeps
// for a machine without it.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>

#include "../bound.h"
#include "convert.h"
#include "work.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

constexpr int64_t kLine = 64;         // bytes of a cache line
constexpr int64_t kBlock = 4 * kLine; // what is gathered, computed and streamed at a time

// Bytes of a vector.
#if defined(__AVX512F__)
constexpr int kVector = 64;
#elif defined(__AVX2__)
constexpr int kVector = 32;
#else
constexpr int kVector = 16;
#endif

// An element in memory, at any address: a tensor may begin between two of its elements.
template <class T>
struct __attribute__((packed)) Element {
  T value;
};

// By its number: GCC copies a struct that is packed byte by byte.
template <class T>
void copy(const Element<T>& from, Element<T>& to) {
  if constexpr (kFloat16Bit<T>) {
    to.value.bits = from.value.bits;
  } else {
    to.value = from.value;
  }
}

// ---- Rows: n elements next to each other in memory.

template <class T, class F, class... X>
void compute(Element<T>* out, int64_t n, F f, X... x) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep // out may be an input itself: then an element is read and written in the same step
#endif
  for (int64_t i = 0; i < n; i++) out[i].value = narrow(f(widen(x[i].value)...), To<T>{});
}

#if defined(__F16C__) // GCC 12 does not vectorise the conversions of float16 by itself

// One vector of it, widened. GCC keeps the array in a register, and the loop over it is one instruction.
constexpr int kLanes = 8;
void widen(const Element<float16>* from, float* to) {
  _mm256_store_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
void narrow(const float* from, Element<float16>* to) {
  const __m128i halves = _mm256_cvtps_ph(_mm256_load_ps(from), _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
}

template <class F, size_t... K, class... X>
void compute_by_vectors(Element<float16>* out, int64_t n, F f, std::index_sequence<K...>, X... x) {
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    alignas(kLine) float wide[sizeof...(X)][kLanes], result[kLanes];
    (widen(x + i, wide[K]), ...);
    for (int lane = 0; lane < kLanes; lane++) result[lane] = f(wide[K][lane]...);
    narrow(result, out + i);
  }
  for (int64_t i = whole; i < n; i++) out[i].value = narrow(f(widen(x[i].value)...), To<float16>{});
}

template <class F, class... X>
void compute(Element<float16>* out, int64_t n, F f, X... x) {
  compute_by_vectors(out, n, f, std::index_sequence_for<X...>{}, x...);
}

#endif

// Writes one cache line past the cache: a line that is overwritten as a whole need not be read first.
inline void stream_line(const void* from, void* to) {
#if defined(__AVX__)
  for (int k = 0; k < 2; k++)
    _mm256_stream_si256(static_cast<__m256i*>(to) + k, _mm256_load_si256(static_cast<const __m256i*>(from) + k));
#elif defined(__SSE2__)
  for (int k = 0; k < 4; k++)
    _mm_stream_si128(static_cast<__m128i*>(to) + k, _mm_load_si128(static_cast<const __m128i*>(from) + k));
#else
  std::memcpy(to, from, kLine);
#endif
}

// A row of one input.
template <class T>
struct Row {
  const Element<T>* data;
  int64_t step; // from one element to the next
};

// n elements of a row, from the i-th on, next to each other: themselves where they are that already, else gathered.
template <class T>
const Element<T>* adjacent(const Element<T>* x, int64_t i, int64_t, Element<T>*) {
  return x + i;
}
template <class T>
[[gnu::always_inline]] inline const Element<T>* adjacent(Row<T> x, int64_t i, int64_t n, Element<T>* buffer) {
  const Element<T>* const from = x.data + i * x.step;
  if (x.step == 1) return from;
  if (n <= 0) __builtin_unreachable(); // GCC would warn of a buffer with nothing in it
  if (x.step == 2) {                   // which GCC makes shuffles of
    for (int64_t k = 0; k < n; k++) copy(from[2 * k], buffer[k]);
  } else if (x.step == 0) {
    for (int64_t k = 0; k < n; k++) copy(*from, buffer[k]);
  } else {
    for (int64_t k = 0; k < n; k++) copy(from[k * x.step], buffer[k]);
  }
  return buffer;
}

// Inlined where GCC would not by itself: it then knows n, and that `buffer` shares no memory with what is read.
template <class T, class F, size_t... K, class... X>
[[gnu::always_inline]] inline void compute_block(
    Element<T>* out, int64_t i, int64_t n, F f, std::index_sequence<K...>, X... x) {
  alignas(kLine) Element<T> buffer[sizeof...(K)][kBlock / sizeof(T)];
  compute(out, n, f, adjacent(x, i, n, buffer[K])...);
}

// A row that is gathered, scattered or streamed, in blocks so short that the processor reads the next one while it
// computes (benchmarks/strided.py). Where it is streamed, `out` is a multiple of the element's size.
template <class T, class F, class... X>
void compute_blocks(Element<T>* out, int64_t step, int64_t n, bool stream, F f, X... x) {
  constexpr int64_t kElements = kBlock / sizeof(T), kLineElements = kLine / sizeof(T);
  constexpr std::index_sequence_for<X...> inputs{};
  alignas(kLine) Element<T> block[kElements];
  int64_t i = 0;
  const auto compute_part = [&](auto part) {
    compute_block(step == 1 ? out + i : block, i, part, f, inputs, x...);
    for (int64_t k = 0; step != 1 && k < part; k++) copy(block[k], out[(i + k) * step]);
    i += part;
  };
  const int64_t past_line = reinterpret_cast<uintptr_t>(out) % kLine / sizeof(T);
  const int64_t before = stream && past_line ? std::min(n, kLineElements - past_line) : 0;
  while (i < n) {
    const int64_t part = (i < before ? before : n) - i;
    if (part < kElements) {
      compute_part(part);
    } else if (stream) {
      compute_block(block, i, kElements, f, inputs, x...);
      for (int64_t k = 0; k < kElements; k += kLineElements) stream_line(block + k, out + i + k);
      i += kElements;
    } else {
      compute_part(std::integral_constant<int64_t, kElements>{});
    }
  }
}

// ---- A tile: n[0] x n[1] elements, with strides s[0] (inner) and s[1].

// Calls body(place in the packed tile, offset in memory) for each element: in the order of memory, unless that
// would make the inner loop a short one.
template <class Body>
void for_each_element(const int64_t s[2], const int64_t n[2], const Body& body) {
  constexpr int64_t kShort = 8;
  if (n[0] < kShort || (s[1] < s[0] && n[1] >= kShort)) {
    for (int64_t i = 0; i < n[0]; i++)
      for (int64_t j = 0; j < n[1]; j++) body(j * n[0] + i, i * s[0] + j * s[1]);
  } else {
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t i = 0; i < n[0]; i++) body(j * n[0] + i, i * s[0] + j * s[1]);
  }
}

// W x W elements, W to a vector: `from` has its rows `s` apart, and they become the columns of `to`, whose
// rows are `n` apart. In each round the first half of the vectors is interleaved with the second.
template <class T, int W, int... I>
void transpose(const Element<T>* from, int64_t s, Element<T>* to, int64_t n, std::integer_sequence<int, I...>) {
  using Bits = std::tuple_element_t<std::countr_zero(sizeof(T)), std::tuple<uint8_t, uint16_t, uint32_t, uint64_t>>;
  typedef Bits Vector __attribute__((vector_size(W * sizeof(T))));
  const auto interleave = [](Vector first, Vector second, auto from) {
#ifdef __clang__
    return __builtin_shufflevector(first, second, (I % 2 * W + I / 2 + from)...);
#else // GCC has that one since 12
    return __builtin_shuffle(first, second, Vector{(I % 2 * W + I / 2 + from)...});
#endif
  };
  Vector x[W], y[W];
#pragma GCC unroll 16
  for (int k = 0; k < W; k++) std::memcpy(x + k, from + k * s, sizeof(Vector));
#pragma GCC unroll 16
  for (int rounds = W; rounds > 1; rounds /= 2) {
#pragma GCC unroll 16
    for (int k = 0; k < W / 2; k++) {
      y[2 * k] = interleave(x[k], x[W / 2 + k], std::integral_constant<int, 0>{});
      y[2 * k + 1] = interleave(x[k], x[W / 2 + k], std::integral_constant<int, W / 2>{});
    }
#pragma GCC unroll 16
    for (int k = 0; k < W; k++) x[k] = y[k];
  }
#pragma GCC unroll 16
  for (int k = 0; k < W; k++) std::memcpy(to + k * n, x + k, sizeof(Vector));
}

// The tile of one input, packed.
template <class T>
[[gnu::always_inline]] inline void gather(
    const Element<T>* from, const int64_t s[2], const int64_t n[2], Element<T>* to) {
  constexpr int W = std::min<int>(8, kVector / sizeof(T));
  if (W > 2 && s[1] == 1 && n[0] >= W && n[1] >= W) {
    const int64_t whole[] = {n[0] - n[0] % W, n[1] - n[1] % W};
    for (int64_t i = 0; i < whole[0]; i += W)
      for (int64_t j = 0; j < whole[1]; j += W)
        transpose<T, W>(from + i * s[0] + j, s[0], to + j * n[0] + i, n[0], std::make_integer_sequence<int, W>{});
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t i = j < whole[1] ? whole[0] : 0; i < n[0]; i++) copy(from[i * s[0] + j], to[j * n[0] + i]);
  } else {
    for_each_element(s, n, [&](int64_t at, int64_t place) { copy(from[place], to[at]); });
  }
}

// Rows too short for a loop of their own: the whole vectors of each; of what is left half a vector each, and so on.
template <int64_t kWidth, bool kWhole, class T, class F, size_t... K>
void compute_short(
    Element<T>* out, const Element<T>* const* in, int64_t i, F f, const int64_t (*s)[2], const int64_t n[2],
    std::index_sequence<K...> inputs) {
  const int64_t end = kWhole ? n[0] - n[0] % kWidth : i + kWidth;
  if (end <= n[0]) {
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t k = i; k < end; k += kWidth)
        compute(out + j * s[0][1] + k, kWidth, f, in[K] + j * s[1 + K][1] + k...);
    i = end;
  }
  if constexpr (kWidth > 1) compute_short<kWidth / 2, false>(out, in, i, f, s, n, inputs);
}

// The tile of one input, packed.
template <class T>
[[gnu::always_inline]] inline const Element<T>* packed(
    const Element<T>* from, const int64_t s[2], const int64_t n[2], Element<T>* buffer) {
  if (s[0] == 1 && s[1] == n[0]) return from;
  gather(from, s, n, buffer);
  return buffer;
}

template <class T, class F, size_t... K>
void tile(
    Element<T>* out, const Element<T>* const* in, const F& f, const int64_t (*s)[2], const int64_t n[2], bool stream,
    std::index_sequence<K...> inputs) {
  alignas(kLine) Element<T> buffer[sizeof...(K)][Tiles::kElements], result[Tiles::kElements];
  bool direct = s[0][0] == 1;
  ((direct &= s[1 + K][0] == 1), ...);
  if (direct && n[0] < Tiles::kShort && n[1] > 1)
    return compute_short<std::min(kVector, 32) / sizeof(T), true>(out, in, 0, f, s, n, inputs);
  if (n[0] < Tiles::kNarrow && n[1] > 1) { // as one row
    const int64_t elements = n[0] * n[1];
    const bool contiguous = s[0][0] == 1 && s[0][1] == n[0];
    compute(contiguous ? out : result, elements, f, packed(in[K], s[1 + K], n, buffer[K])...);
    if (!contiguous) for_each_element(s[0], n, [&](int64_t from, int64_t at) { copy(result[from], out[at]); });
    return;
  }
  Row<T> x[] = {{in[K], s[1 + K][0]}...};
  int64_t next[] = {s[1 + K][1]...}; // from one row to the next
  for (size_t k = 0; k < sizeof...(K); k++) {
    if (!Tiles::runs_across(s[1 + k])) continue;
    gather(in[k], s[1 + k], n, buffer[k]);
    x[k] = {buffer[k], 1};
    next[k] = n[0];
  }
  direct = s[0][0] == 1;
  ((direct &= x[K].step == 1), ...);
  for (int64_t j = 0; j < n[1]; j++, ((x[K].data += next[K]), ...)) {
    Element<T>* const row = out + j * s[0][1];
    if (direct && stream) {
      compute_blocks(row, 1, n[0], true, f, x[K].data...);
    } else if (direct) {
      compute(row, n[0], f, x[K].data...);
    } else {
      compute_blocks(row, s[0][0], n[0], stream && s[0][0] == 1, f, x[K]...);
    }
  }
}

// Walks the tiles from begin to end like an odometer: the digits are the tile's place in the two inner
// dimensions and its index in each outer one.
template <class T, class F, size_t... K>
void run(const Work& work, const F& f, int64_t begin, int64_t end, std::index_sequence<K...> inputs) {
  constexpr int kOperands = 1 + sizeof...(K);
  const Plan& plan = work.task.plan;
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
  for (int k = 0; k < kOperands; k++)
    for (int d = 0; d < 2; d++) s[k][d] = d < plan.dims ? plan.stride[d][k] : 1 - d;

  const int along = tiles.count[0] == 1; // the dimension in which tiles follow each other, as one where they may
  for (int64_t at = begin, step; at < end; at += step) {
    step = tiles.apart ? 1 : std::min(end - at, tiles.count[along] - digit[along]);
    int64_t offset[kOperands] = {}, n[2];
    for (int d = 0; d < 2; d++) {
      const int64_t first = digit[d] * tiles.extent[d];
      n[d] = std::min((d == along ? step : 1) * tiles.extent[d], tiles.size[d] - first);
      for (int k = 0; k < kOperands; k++) offset[k] += first * s[k][d];
    }
    for (int d = 2; d < plan.dims; d++)
      for (int k = 0; k < kOperands; k++) offset[k] += digit[d] * plan.stride[d][k];
    const Element<T>* const in[] = {static_cast<const Element<T>*>(work.task.data[1 + K]) + offset[1 + K]...};
    tile(static_cast<Element<T>*>(work.task.data[0]) + offset[0], in, f, s, n, work.stream, inputs);
    digit[along] += step - 1;
    for (int d = 0; d < digits && ++digit[d] == base[d]; d++) digit[d] = 0;
  }
#ifdef __SSE2__
  if (work.stream) _mm_sfence(); // streamed lines are seen by other threads from here on
#endif
}

template <class Kernel>
void kernel(const Work& work, int64_t begin, int64_t end) {
  with_dtype(typename Kernel::Dtypes{}, work.task.dtype, [&](auto storage) {
    using T = decltype(storage);
    const Bound<compute_t<T>, Kernel> f(work.task.numbers);
    run<T>(work, f, begin, end, std::make_index_sequence<Kernel::kInputs>{});
  });
}

template <class List>
struct All;
template <class... Op>
struct All<List<Op...>> {
  static constexpr Compute kernels[sizeof...(Op) + 1] = {
      kernel<typename Op::Kernel>...}; // one more, because there may be none
};

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA

#define ELEMENTWISE_OPERATORS(library, Operators) \
  const elementwise::cpu::Compute* const elementwise::cpu::ELEMENTWISE_ISA::kernels = All<Operators>::kernels;
