// A team is the threads that compute a row together: a warp for a short row, a block for a long one. All of them run
// the functor. They share the loops over its elements, and all get the result of a reduction. Numbers are added in the
// same order as on the CPU, so the bits are the same. Included by rows/row.h.
//
// A block has blockDim.y teams of blockDim.x threads, a multiple of 32. A team of more than a warp is alone in its
// block.
#pragma once

#include <cstring>

#include "../math/rules.h"
#include "../place.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

using RowBool = uint8_t; // a bool of a row, as memory has it

// The number of elements of a row.
template <class S>
struct Extent {
  int64_t size;
  ELEMENTWISE_INLINE Extent(const cpu::OneRow& row) : size(row.size) {}
  ELEMENTWISE_INLINE operator int64_t() const {
    return size;
  }
  ELEMENTWISE_INLINE static constexpr int64_t first() {
    return 0;
  }
  ELEMENTWISE_INLINE static constexpr void begin_loop(uint32_t /*inputs*/) {}
  ELEMENTWISE_INLINE static constexpr void always_read(uint32_t /*inputs*/) {}
  ELEMENTWISE_INLINE static constexpr void need_whole_row() {}
  ELEMENTWISE_INLINE static constexpr bool has_whole_result() {
    return true;
  }
};

ELEMENTWISE_INLINE int threads() {
  int n = 1;
  ELEMENTWISE_ON_DEVICE(n = static_cast<int>(blockDim.x);)
  return n;
}
ELEMENTWISE_INLINE int rank() { // the index of this thread in its team
  int n = 0;
  ELEMENTWISE_ON_DEVICE(n = static_cast<int>(threadIdx.x);)
  return n;
}
// Waits until all threads of the team have arrived and can see each other's writes.
ELEMENTWISE_INLINE void sync() {
  ELEMENTWISE_ON_DEVICE(if (threads() == 32) __syncwarp(); else __syncthreads();)
}

// The value of x in another thread of the warp.
template <class T>
ELEMENTWISE_INLINE T of_lane(const T& x, [[maybe_unused]] int lane) {
  uint32_t words[(sizeof(T) + 3) / 4] = {};
  std::memcpy(words, &x, sizeof(T));
  ELEMENTWISE_ON_DEVICE(for (uint32_t& word : words) word = __shfl_sync(0xffffffff, word, lane);)
  T other;
  std::memcpy(&other, words, sizeof(T));
  return other;
}

// The value of x in the first thread of each warp: thread k of a warp gets that of warp k.
template <class T>
ELEMENTWISE_INLINE T of_warps(const T& x) {
  T other = x;
  static_assert(sizeof(T) <= 16);
  ELEMENTWISE_ON_DEVICE(
      __shared__ double memory[2 * 32]; //
      T* const slots = reinterpret_cast<T*>(memory); const int warp = rank() / 32, lane = rank() % 32;
      sync(); // the previous values have been read
      if (lane == 0) slots[warp] = x; sync(); other = slots[lane % (threads() / 32)];)
  return other;
}

// Calls take(j, f(j)) for each j below `end` that is begin + i * stride + m * kStep, with m from 0 to 3. It computes
// all four before it takes the first, so that the GPU computes one while it waits for another.
template <int kStep, class F, class Take>
ELEMENTWISE_INLINE void in_fours(int64_t begin, int64_t end, int64_t stride, const F& f, const Take& take) {
#pragma unroll 1
  for (int64_t j = begin; j < end; j += stride) {
    if (j + 3 * kStep < end) {
      const auto a = f(j), b = f(j + kStep), c = f(j + 2 * kStep), d = f(j + 3 * kStep);
      take(j, a);
      take(j + kStep, b);
      take(j + 2 * kStep, c);
      take(j + 3 * kStep, d);
    } else {
#pragma unroll 1
      for (int64_t k = j; k < end; k += kStep) take(k, f(k));
    }
  }
}

// The same for all j below n. The threads of the team share them: a warp takes 128 neighbours, and a thread every 32nd.
ELEMENTWISE_INLINE void share(int64_t n, const auto& f, const auto& take) {
  in_fours<32>(rank() / 32 * 128 + rank() % 32, n, 4 * threads(), f, take);
}

// to[j] = f(j) for all j. `to` is a T* or a DualRow.
ELEMENTWISE_INLINE void write_row(const auto& to, int64_t n, const auto& f) {
  share(n, f, [=](int64_t j, const auto& x) { set(to + j, x); });
  sync();
}

// Computes row i of several rows as to[i][j] = f(j)[i], for all j. A row that is null is left out. On CUDA, rows of
// several teams are added up later (cuda/rows.h).
template <class S, int n, class F>
ELEMENTWISE_INLINE void write_rows(void* const (&to)[n], uint32_t /*added*/, const Extent<S>& size, const F& f) {
  const auto of_one = [&](int64_t j) { return f.template operator()<One>(j); };
  share(size, of_one, [&](int64_t j, const auto& numbers) {
    ELEMENTWISE_UNROLL
    for (int i = 0; i < n; i++)
      if (to[i]) numbers.each[i].write_to(static_cast<math::primal_t<S>*>(to[i]) + j);
  });
  sync();
}

ELEMENTWISE_INLINE void keep_row(const auto& to, int64_t n, const auto& f) {
  write_row(to, n, f);
}
ELEMENTWISE_INLINE void once(int64_t /*size*/, const auto& f) {
  if (rank() == 0) f();
  sync();
}

// Reads an element of a tensor, or of a row that is kept. A result may then be written over that row.
template <class C>
ELEMENTWISE_INLINE C read_one(int64_t /*size*/, int64_t place, bool keeps_rows, const auto& read) {
  const C x = read(place);
  if (keeps_rows) sync();
  return x;
}

// Joins the elements from `begin` to `end`: element j goes to lane j - begin modulo kLanes, and then lanes are joined
// by halves. A lane is a thread of a warp, or of a half warp, which has its own range. The first thread has the result.
template <int kLanes, class C, class Join, class F>
ELEMENTWISE_INLINE C joined_in_lanes(int64_t begin, int64_t end, C identity, const Join& join, const F& f) {
  C x = identity;
  in_fours<kLanes>(begin + rank() % kLanes, end, 4 * kLanes, f, [&](int64_t, const auto& y) { x = join(x, y); });
  for (int half = kLanes / 2; half > 0; half /= 2) x = join(x, of_lane(x, rank() + half));
  return x;
}

// Joins f(0), ... f(n - 1) in the order of cpu/row_loops.h: blocks of 1024 elements are the leaves of a binary tree.
// Each warp joins a subtree, and blocks that are missing at the end are left out.
template <class C>
ELEMENTWISE_INLINE C joined(int64_t n, C identity, const auto& join, const auto& f) {
  constexpr int kLanes = sizeof(math::primal_t<C>) == 8 ? 16 : 32;
  constexpr int64_t kBlock = 1024, kStep = kBlock * (32 / kLanes); // with 64-bit numbers, a warp joins two blocks
  using Level = std::conditional_t<std::is_same_v<C, float>, double, C>;
  const int lane = rank() % 32, warps = threads() / 32;
  const int64_t steps = (n + kStep - 1) / kStep;
  const auto of_step = [&](int64_t from) {
    const int64_t begin = from + lane / kLanes * kBlock;
    Level sum = joined_in_lanes<kLanes>(begin, n - begin < kBlock ? n : begin + kBlock, identity, join, f);
    if (kLanes == 16) {
      const Level next = of_lane(sum, 16);
      if (from + kBlock < n) sum = join(sum, next);
    }
    return of_lane(sum, 0);
  };
  if (warps == 1 && steps == 1) return static_cast<C>(of_step(0));
  int64_t steps_of_warp = 1;
  while (steps_of_warp * warps < steps) steps_of_warp *= 2;
  const int64_t first = rank() / 32 * steps_of_warp;
  Level mine = identity; // if bit d of `count` is set, lane d has the joined result of 2^d steps
  int64_t count = 0;
  for (; count < steps_of_warp && first + count < steps; count++) {
    Level sum = of_step((first + count) * kStep);
    int level = 0;
    for (int64_t bits = count; bits & 1; bits >>= 1) sum = join(of_lane(mine, level++), sum);
    if (lane == level) mine = sum;
  }
  Level all = identity;
  for (int64_t bits = count, done = 0, level = 0; bits; bits >>= 1, level++)
    if (bits & 1) {
      const Level sum = of_lane(mine, static_cast<int>(level));
      all = done++ ? join(sum, all) : sum;
    }
  if (warps > 1) {
    all = of_warps(all);
    for (int half = 1; half < warps; half *= 2) {
      const Level next = of_lane(all, lane + half);
      if ((lane + half) * steps_of_warp < steps) all = join(all, next);
    }
    all = of_lane(all, 0);
  }
  return static_cast<C>(all);
}

// The first element for which is(j), or 0.
ELEMENTWISE_INLINE int64_t first_of(int64_t n, const auto& is) {
  const int64_t first =
      joined(n, n, [](int64_t a, int64_t b) { return b < a ? b : a; }, [&](int64_t j) { return is(j) ? j : n; });
  return first < n ? first : 0;
}

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET
