// Converts rows of the 16-bit types, which are computed as float, and of bool, and adds up rows. Compiled for each
// instruction set.
#include "convert.h"
#include "vectors.h"
#include "work.h"

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

void widen_bfloat16(const void* from, int64_t n, float* to) {
  const auto* const x = static_cast<const Element<bfloat16>*>(from);
  for (int64_t j = 0; j < n; j++) to[j] = widen(x[j].value);
}
void narrow_bfloat16(const float* from, int64_t n, void* to) {
  auto* const x = static_cast<Element<bfloat16>*>(to);
  for (int64_t j = 0; j < n; j++) x[j].value = narrow(from[j], To<bfloat16>{});
}

#if defined(__F16C__)
// Eight elements at a time. An array of eight in between would be copied in halves by GCC, and read as a whole: then a
// row takes ten times as long.
void widen_float16(const void* from, int64_t n, float* to) {
  const auto* const x = static_cast<const Element<float16>*>(from);
  int64_t j = 0;
  for (; j + 8 <= n; j += 8)
    _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + j))));
  for (; j < n; j++) to[j] = widen(x[j].value);
}
void narrow_float16(const float* from, int64_t n, void* to) {
  auto* const x = static_cast<Element<float16>*>(to);
  int64_t j = 0;
  for (; j + 8 <= n; j += 8)
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(x + j), _mm256_cvtps_ph(_mm256_loadu_ps(from + j), _MM_FROUND_TO_NEAREST_INT));
  for (; j < n; j++) x[j].value = narrow(from[j], To<float16>{});
}
#else
void widen_float16(const void* from, int64_t n, float* to) {
  const auto* const x = static_cast<const Element<float16>*>(from);
  for (int64_t j = 0; j < n; j++) to[j] = widen(x[j].value);
}
void narrow_float16(const float* from, int64_t n, void* to) {
  auto* const x = static_cast<Element<float16>*>(to);
  for (int64_t j = 0; j < n; j++) x[j].value = narrow(from[j], To<float16>{});
}
#endif

void widen_bool(const void* from, int64_t n, int32_t* to) {
  const auto* const x = static_cast<const uint8_t*>(from);
  for (int64_t j = 0; j < n; j++) to[j] = x[j];
}

template <class C>
void add(const void* from, int64_t n, void* to) {
  const auto* const x = static_cast<const C*>(from);
  auto* const y = static_cast<C*>(to);
  ELEMENTWISE_INDEPENDENT
  for (int64_t j = 0; j < n; j++) y[j] += x[j];
}

// Adds in lanes and then pairwise, in the order of row_loops.h.
template <class C>
void sum(const void* from, int64_t n, void* to) {
  constexpr int kLanes = 128 / sizeof(C);
  const auto* const x = static_cast<const C*>(from);
  C lanes[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    for (int k = 0; k < kLanes; k++) lanes[k] += x[j + k];
  for (int k = 0; j < n; j++, k++) lanes[k] += x[j];
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
  *static_cast<C*>(to) += lanes[0];
}

} // namespace

const RowMover row_mover{
    widen_float16,
    widen_bfloat16,
    narrow_float16,
    narrow_bfloat16,
    widen_bool,
    {add<float>, add<double>},
    {sum<float>, sum<double>}};

} // namespace elementwise::cpu::ELEMENTWISE_ISA
