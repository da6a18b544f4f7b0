// What sums: rows of a floating-point type are added to sums of the type that it is computed in, in an order that no
// instruction set changes. Compiled once for each, as kernels.h is; nothing here is seen from the outside but
// `summers`.
#include "convert.h"
#include "vectors.h"

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

// Element i of a row is added to the sum i % kLanes, and these pairwise: as many as the longest vectors need.
constexpr int kLanes = 32;

template <class T>
compute_t<T> sum(const Element<T>* x, int64_t n) {
  compute_t<T> lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; k++) lane[k] += widen(x[i + k].value);
  for (int k = 0; i + k < n; k++) lane[k] += widen(x[i + k].value);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; k++) lane[k] += lane[k + half];
  return lane[0];
}

// Adds each element of kRows rows to a sum, in the order of the rows.
template <int kRows, class T>
void add_rows(const Element<T>* x, int64_t n, compute_t<T>* sums) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
  for (int64_t i = 0; i < n; i++) {
    compute_t<T> sum = sums[i];
    for (int j = 0; j < kRows; j++) sum += widen(x[j * n + i].value);
    sums[i] = sum;
  }
}

template <class T>
void add(const void* from, int64_t n, int64_t rows, void* to, bool along, int64_t pitch) {
  constexpr int kRows = 4; // to the same sums, which are then read and written once
  const auto* x = static_cast<const Element<T>*>(from);
  auto* sums = static_cast<compute_t<T>*>(to);
  for (; !along && pitch == 0 && rows >= kRows; rows -= kRows, x += kRows * n) add_rows<kRows>(x, n, sums);
  for (; rows > 0; rows--, x += n, sums += pitch) {
    if (along)
      *sums += sum(x, n);
    else
      add_rows<1>(x, n, sums);
  }
}

template <class C>
void add_sums(const void* from, int64_t n, void* to) {
  for (int64_t i = 0; i < n; i++) static_cast<C*>(to)[i] += static_cast<const C*>(from)[i];
}

template <class T>
void round(const void* from, int64_t n, int64_t step, void* to) {
  const auto* sums = static_cast<const compute_t<T>*>(from);
  auto* x = static_cast<Element<T>*>(to);
  for (int64_t i = 0; i < n; i++, x += step) x->value = narrow(sums[i], To<T>{});
}

template <class T>
constexpr Summer kSummer{kOrdinal<T>, sizeof(compute_t<T>), add<T>, add_sums<compute_t<T>>, round<T>};

} // namespace

const Summer summers[] = {kSummer<float16>, kSummer<bfloat16>, kSummer<float>, kSummer<double>};

} // namespace elementwise::cpu::ELEMENTWISE_ISA
