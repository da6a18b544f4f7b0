// Adds rows of elements to sums. The sums are doubles, so that thousands of rows can be added without losing accuracy.
// The order of the additions is the same for every instruction set. The file is compiled once for each of them, as
// kernels.h is, and other files use only the table `summers`.
#include "convert.h"
#include "vectors.h"

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

// `sum` adds element i of a row to the sum i % kSums, and then adds these sums pairwise. The longest vectors need this
// many sums.
constexpr int kSums = 32;

template <class T>
compute_t<T> sum(const Element<T>* x, int64_t n) {
  compute_t<T> lane[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int k = 0; k < kSums; k++) lane[k] += widen(x[i + k].value);
  for (int k = 0; i + k < n; k++) lane[k] += widen(x[i + k].value);
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int k = 0; k < half; k++) lane[k] += lane[k + half];
  return lane[0];
}

// The sum of one element of each of kRows rows, pairwise; rows are n elements apart.
template <int kRows, class T>
ELEMENTWISE_INLINE compute_t<T> few(const Element<T>* x, int64_t n) {
  if constexpr (kRows == 1)
    return widen(x->value);
  else
    return few<kRows / 2, T>(x, n) + few<kRows / 2, T>(x + kRows / 2 * n, n);
}

template <int kRows, class T>
void add_rows(const Element<T>* x, int64_t n, double* sums) {
  ELEMENTWISE_INDEPENDENT
  for (int64_t i = 0; i < n; i++) sums[i] += few<kRows, T>(x + i, n);
}

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

void add_sums(const double* from, int64_t n, double* sums) {
  for (int64_t i = 0; i < n; i++) sums[i] += from[i];
}

template <class T>
void round(const double* sums, int64_t n, int64_t step, void* to) {
  auto* x = static_cast<Element<T>*>(to);
  for (int64_t i = 0; i < n; i++, x += step) x->value = narrow(static_cast<compute_t<T>>(sums[i]), To<T>{});
}

template <class T>
constexpr Summer kSummer{kOrdinal<T>, add<T>, add_sums, round<T>};

} // namespace

const Summer summers[] = {kSummer<float16>, kSummer<bfloat16>, kSummer<float>, kSummer<double>};

} // namespace elementwise::cpu::ELEMENTWISE_ISA
