// Moves the elements of a box between a tensor, where they have strides, and a buffer, where they are packed. The code
// knows only the size of an element. It is compiled once for each instruction set, as kernels.h is, and other files use
// only the table `movers`.
#include <algorithm>
#include <cstring>
#include <utility>

#include "vectors.h"

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

constexpr int64_t kShort = 8; // rows of fewer elements are moved together

// Calls body(place in the buffer, offset in the tensor) for each element, in the order of the tensor's memory, unless
// the inner loop would be short.
void for_each_element(const int64_t stride[2], const int64_t n[2], const auto& body) {
  if (n[0] < kShort || (runs_across(stride) && n[1] >= kShort)) {
    for (int64_t i = 0; i < n[0]; i++)
      for (int64_t j = 0; j < n[1]; j++) body(j * n[0] + i, i * stride[0] + j * stride[1]);
  } else {
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t i = 0; i < n[0]; i++) body(j * n[0] + i, i * stride[0] + j * stride[1]);
  }
}

// The elements at some places of two vectors, one after the other.
template <int... place, class Vector>
Vector shuffled(Vector first, Vector second) {
#ifdef __clang__
  return __builtin_shufflevector(first, second, place...);
#else // GCC has __builtin_shufflevector only since version 12
  return __builtin_shuffle(first, second, Vector{place...});
#endif
}

// Transposes W x W elements, where a vector has W elements. The rows of `from` are `s` elements apart; they become the
// columns of `to`, whose rows are `n` elements apart. Each round interleaves the first half of the vectors with the
// second half.
template <class T, int W, int... I>
void transpose(const Element<T>* from, int64_t s, Element<T>* to, int64_t n, std::integer_sequence<int, I...>) {
  typedef T Vector __attribute__((vector_size(W * sizeof(T))));
  Vector x[W], y[W];
#pragma GCC unroll 16
  for (int k = 0; k < W; k++) std::memcpy(x + k, from + k * s, sizeof(Vector));
#pragma GCC unroll 16
  for (int rounds = W; rounds > 1; rounds /= 2) {
#pragma GCC unroll 16
    for (int k = 0; k < W / 2; k++) {
      y[2 * k] = shuffled<(I % 2 * W + I / 2)...>(x[k], x[W / 2 + k]);
      y[2 * k + 1] = shuffled<(I % 2 * W + I / 2 + W / 2)...>(x[k], x[W / 2 + k]);
    }
#pragma GCC unroll 16
    for (int k = 0; k < W; k++) x[k] = y[k];
  }
#pragma GCC unroll 16
  for (int k = 0; k < W; k++) std::memcpy(to + k * n, x + k, sizeof(Vector));
}

// Packed elements are read in vectors right after they are written. If such a read covers several shorter writes that
// have not reached the cache, the processor waits. So the functions below write a row in whole vectors, and the last
// vector overlaps the one before.

// Every second one of 2 W elements, beginning with the first or the second.
template <class T, int first, int... I>
void every_other(const Element<T>* from, Element<T>* to, std::integer_sequence<int, I...>) {
  typedef T Vector __attribute__((vector_size(sizeof...(I) * sizeof(T))));
  Vector low, high;
  std::memcpy(&low, from, sizeof(Vector));
  std::memcpy(&high, from + sizeof...(I), sizeof(Vector));
  const Vector result = shuffled<(2 * I + first)...>(low, high);
  std::memcpy(to, &result, sizeof(Vector));
}

// One vector of elements that are `step` apart.
template <class T, int... I>
void every(const Element<T>* from, int64_t step, Element<T>* to, std::integer_sequence<int, I...>) {
  typedef T Vector __attribute__((vector_size(sizeof...(I) * sizeof(T))));
  const Vector result = {from[I * step].value...};
  std::memcpy(to, &result, sizeof(Vector));
}

// We prefetch this many bytes ahead of the elements that are gathered (measured).
constexpr int64_t kAhead = 2048;

template <class T>
void gather_even(const Element<T>* from, int64_t n, Element<T>* to) {
  constexpr int64_t W = kVector / sizeof(T);
  constexpr std::make_integer_sequence<int, W> lanes;
  int64_t k = 0;
#pragma GCC unroll 4
  for (; k + W < n; k += W) {
    __builtin_prefetch(reinterpret_cast<const char*>(from + 2 * k) + kAhead);
    every_other<T, 0>(from + 2 * k, to + k, lanes);
  }
  if (n > W) { // begins one element earlier, because the element after the last one may be outside of the tensor
    every_other<T, 1>(from + 2 * (n - W) - 1, to + n - W, lanes);
  } else {
    for (; k < n; k++) to[k].value = from[2 * k].value;
  }
}

template <class T>
void gather(const void* memory, int64_t step, int64_t n, void* packed) {
  constexpr int64_t W = kVector / sizeof(T);
  constexpr std::make_integer_sequence<int, W> lanes;
  const auto* const from = static_cast<const Element<T>*>(memory);
  auto* const to = static_cast<Element<T>*>(packed);
  if (step == 0) {
    // A copy. fill_n takes a reference, and the compiler would read *from again after each element that it writes.
    const Element<T> same = *from;
    return std::fill_n(to, n, same), void();
  }
  if (step == 2) return gather_even(from, n, to);
  int64_t k = 0;
  for (; k + W <= n; k += W) every<T>(from + k * step, step, to + k, lanes);
  if (k < n && n > W) every<T>(from + (n - W) * step, step, to + n - W, lanes);
  if (n < W)
    for (; k < n; k++) to[k].value = from[k * step].value;
}

template <class T>
void scatter(const void* packed, int64_t step, int64_t n, void* memory) {
  const auto* const from = static_cast<const Element<T>*>(packed);
  auto* to = static_cast<Element<T>*>(memory);
  for (int64_t k = 0; k < n; k++, to += step) to->value = from[k].value;
}

// Writes whole cache lines past the cache, if `memory` begins with one, and the rest as usual.
template <class T>
void stream(const void* packed, int64_t, int64_t n, void* memory) {
  const int64_t bytes = n * sizeof(T);
  const int64_t lines = reinterpret_cast<uintptr_t>(memory) % kLine == 0 ? bytes / kLine * kLine : 0;
  const auto* const from = static_cast<const char*>(packed);
  auto* const to = static_cast<char*>(memory);
  for (int64_t k = 0; k < lines; k += kLine) write_past_cache(from + k, to + k);
  if (lines < bytes) std::memcpy(to + lines, from + lines, bytes - lines);
}

template <class T>
void gather_box(const void* memory, const int64_t stride[2], const int64_t n[2], void* packed) {
  constexpr int W = std::min<int>(8, kVector / sizeof(T));
  const auto* const from = static_cast<const Element<T>*>(memory);
  auto* const to = static_cast<Element<T>*>(packed);
  if (W > 2 && stride[1] == 1 && n[0] >= W && n[1] >= W) {
    const int64_t whole[] = {n[0] - n[0] % W, n[1] - n[1] % W};
    for (int64_t i = 0; i < whole[0]; i += W)
      for (int64_t j = 0; j < whole[1]; j += W)
        transpose<T, W>(
            from + i * stride[0] + j, stride[0], to + j * n[0] + i, n[0], std::make_integer_sequence<int, W>{});
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t i = j < whole[1] ? whole[0] : 0; i < n[0]; i++)
        to[j * n[0] + i].value = from[i * stride[0] + j].value;
  } else if (n[0] < kShort || runs_across(stride)) {
    for_each_element(stride, n, [&](int64_t at, int64_t place) { to[at].value = from[place].value; });
  } else {
    for (int64_t j = 0; j < n[1]; j++) gather<T>(from + j * stride[1], stride[0], n[0], to + j * n[0]);
  }
}

template <class T>
void scatter_box(const void* packed, const int64_t stride[2], const int64_t n[2], void* memory) {
  const auto* const from = static_cast<const Element<T>*>(packed);
  auto* const to = static_cast<Element<T>*>(memory);
  for_each_element(stride, n, [&](int64_t at, int64_t place) { to[place].value = from[at].value; });
}

template <class T>
constexpr Mover kMover{gather<T>, scatter<T>, stream<T>, gather_box<T>, scatter_box<T>};

} // namespace

const Mover movers[] = {kMover<uint8_t>, kMover<uint16_t>, kMover<uint32_t>, kMover<uint64_t>};

} // namespace elementwise::cpu::ELEMENTWISE_ISA
