// Adds up and converts rows of adjacent elements. The order of the additions is the same for every instruction set. The
// file is compiled once for each of them, as kernels.h is, and other files use only the tables `summers` and
// `row_mover`.
#include "../rows/row.h"
#include "convert.h"
#include "vectors.h"

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

// Adds element i of a row to the sum i % kLanes, and then adds these sums pairwise, in the order of row_loops.h.
template <class T>
compute_t<T> sum(const Element<T>* x, int64_t n) {
  constexpr int kLanes = 128 / sizeof(compute_t<T>);
  compute_t<T> lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; k++) lanes[k] += widen(x[i + k].value);
  for (int k = 0; i + k < n; k++) lanes[k] += widen(x[i + k].value);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
  return lanes[0];
}

// The sum of one element of each of kRows rows, pairwise; rows are n elements apart.
template <int kRows, class T>
ELEMENTWISE_INLINE compute_t<T> few(const Element<T>* x, int64_t n) {
  if constexpr (kRows == 1)
    return widen(x->value);
  else
    return few<kRows / 2, T>(x, n) + few<kRows / 2, T>(x + kRows / 2 * n, n);
}

template <int kRows, class T, class Sum>
void add_rows(const Element<T>* x, int64_t n, Sum* sums) {
  ELEMENTWISE_INDEPENDENT
  for (int64_t i = 0; i < n; i++) sums[i] += few<kRows, T>(x + i, n);
}

// ---- Sums of many rows. They are doubles, so that thousands of rows can be added without losing accuracy.

template <class T>
void add(const void* from, int64_t n, int64_t rows, double* sums, bool along, int64_t pitch) {
  constexpr int kRows = 8; // added at once, so that the sums are read and written only once
  const auto* x = static_cast<const Element<T>*>(from);
  for (; !along && pitch == 0 && rows >= kRows; rows -= kRows, x += kRows * n) add_rows<kRows>(x, n, sums);
  for (; rows > 0; rows--, x += n, sums += pitch) {
    if (along)
      *sums += sum(x, n);
    else
      add_rows<1>(x, n, sums);
  }
}

template <class T>
void round(const double* sums, int64_t n, int64_t step, void* to) {
  auto* x = static_cast<Element<T>*>(to);
  for (int64_t i = 0; i < n; i++, x += step) x->value = narrow<T>(static_cast<compute_t<T>>(sums[i]));
}

// ---- One row.

template <class T>
ELEMENTWISE_FLATTEN void add_row(const void* from, int64_t n, int64_t step, void* to) {
  const auto* const x = static_cast<const Element<T>*>(from);
  auto* const sums = static_cast<T*>(to);
  if (step == 0)
    *sums += passes::Sum{}(
        passes::Extent<T>({n, 0, nullptr, nullptr, nullptr, nullptr}), [x](int64_t j) { return x[j].value; });
  else if (step == 1)
    add_rows<1>(x, n, sums);
  else // an `int dim` is not the last one
    for (int64_t j = 0; j < n; j++) sums[j * step] += x[j].value;
}

// GCC does not vectorise conversions of float16, so we call the instructions. An array of eight in between would be
// copied in halves by GCC, and read as a whole: then a row takes ten times as long.
template <class T>
void widen_row(const void* from, int64_t n, float* to) {
  const auto* const x = static_cast<const Element<T>*>(from);
  int64_t j = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, float16>)
    for (; j + 8 <= n; j += 8)
      _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + j))));
#endif
  for (; j < n; j++) to[j] = widen(x[j].value);
}
template <class T>
void narrow_row(const float* from, int64_t n, void* to) {
  auto* const x = static_cast<Element<T>*>(to);
  int64_t j = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, float16>)
    for (; j + 8 <= n; j += 8)
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(x + j), _mm256_cvtps_ph(_mm256_loadu_ps(from + j), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; j < n; j++) x[j].value = narrow<T>(from[j]);
}

void widen_bools(const void* from, int64_t n, int32_t* to) {
  const auto* const x = static_cast<const uint8_t*>(from);
  for (int64_t j = 0; j < n; j++) to[j] = x[j];
}

template <class T>
constexpr Summer kSummer{kOrdinal<T>, add<T>, round<T>};

} // namespace

const Summer summers[] = {kSummer<float16>, kSummer<bfloat16>, kSummer<float>, kSummer<double>};

const RowMover row_mover{
    {widen_row<bfloat16>, widen_row<float16>},
    {narrow_row<bfloat16>, narrow_row<float16>},
    widen_bools,
    {add_row<float>, add_row<double>}};

} // namespace elementwise::cpu::ELEMENTWISE_ISA
