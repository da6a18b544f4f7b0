// The sum of a row, in an order that depends on its length alone: the same bits on every instruction set, whichever
// thread adds it, and wherever in a batch the row is; and so on CUDA, where one thread adds a row.
#pragma once

#include <cstdint>

#include "../functor.h"

namespace elementwise::inline ELEMENTWISE_TARGET {

// So many sums are added to at a time, one for each of 128 bytes of terms: the vectors of every instruction set divide
// it, and there are enough of them that none waits for an addition.
template <class C>
constexpr int kSums = 128 / sizeof(C);

// The sum of 2 * half numbers: the upper half is added to the lower one, and so on until one is left.
template <int half, class C>
ELEMENTWISE_INLINE C halved(C* sums) {
  if constexpr (half == 0) {
    return sums[0];
  } else {
    for (int k = 0; k < half; k++) sums[k] += sums[half + k];
    return halved<half / 2>(sums);
  }
}

// term(0) + ... + term(n - 1), each a float or double. Term j is added to sum j % kSums, each of these in the order of
// j, from 0; then these are added as above.
template <class Term>
ELEMENTWISE_INLINE auto row_sum(int64_t n, const Term& term) {
  using C = decltype(term(n));
  C sums[kSums<C>] = {};
  int64_t j = 0;
  for (; j + kSums<C> <= n; j += kSums<C>)
    for (int k = 0; k < kSums<C>; k++) sums[k] += term(j + k);
  for (int k = 0; j + k < n; k++) sums[k] += term(j + k);
  return halved<kSums<C> / 2>(sums);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
