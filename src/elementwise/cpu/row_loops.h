// The loops over a row on the CPU, where one thread computes a row, or several share a long one (Share in work.h). On a
// GPU a team of threads shares them: ../cuda/team.h has the same functions.
//
// Numbers are joined in an order that depends on their count alone, so the bits are the same for every instruction set.
// A block of 1024 is joined in lanes, as many as there are numbers in 128 bytes. With 4 lanes and 10 numbers:
//
//   lane 0       lane 1       lane 2       lane 3
//   f(0)         f(1)         f(2)         f(3)
//   f(4)         f(5)         f(6)         f(7)
//   f(8)         f(9)
//
//   (lane 0 + lane 2) + (lane 1 + lane 3)
//
// Blocks are joined pairwise too, those of float in double.
#pragma once

#include <algorithm>
#include <cstring>

#include "../math/rules.h"
#include "../place.h"
#include "bfloat16.h"
#include "work.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

// A bool of a row. It is not a single byte, because GCC would then compute all numbers of the loop in vectors of 8
// bytes.
using RowBool = int32_t;

// A run of the functor computes the elements of a row from `begin` to `end`. If several threads share the row, a
// reduction has memory for the result of each block.
struct Part {
  int64_t begin, end;
  void* blocks = nullptr;
  bool is_known = false; // whether the results of all blocks are there
  bool is_new = false;   // whether the phase before this one has computed them
};

// These are not inlined, so that they take no registers where one thread computes the row. `pure` says that they change
// no memory that a functor reads: after another function, the compiler would load all numbers again and, for example,
// take a second square root. (joined_blocks writes only blocks[0], which no functor reads, and always the same number.)
#define ELEMENTWISE_OF_SHARE [[gnu::noinline, gnu::cold, gnu::pure]]
ELEMENTWISE_OF_SHARE inline Part part_of_share(const cpu::Share& share, int64_t size, bool is_computed) {
  return is_computed ? Part{share.begin, share.end} : Part{size, size};
}
ELEMENTWISE_OF_SHARE inline Part reduction_of_share(const cpu::Share& share) {
  const int k = share.reductions;
  return {share.begin, share.end, share.blocks[k], k < share.phase, k == share.phase - 1};
}
[[noreturn, gnu::noinline, gnu::cold]] inline void end_phase(int64_t place = -1) {
  throw cpu::Share::EndOfPhase{place};
}
[[noreturn, gnu::noinline, gnu::cold]] inline void fail_without_whole_row() {
  throw cpu::Share::NeedsWholeRow();
}
[[noreturn, gnu::noinline, gnu::cold]] inline void fail_outside(int64_t place) {
  throw cpu::RowError{place};
}
[[noreturn, gnu::noinline, gnu::cold]] inline void fail_because(const char* mistake) {
  throw cpu::RowError{0, mistake};
}

template <class C>
struct Vector;
template <class C>
struct TwoVectors;

// The number of elements of a row, and the row itself if several threads share it. Tensors of type C store their
// elements as S: in the type that the kernel computes in, or in bfloat16. Twice as many of these fill a vector, so
// loops over them compute two vectors of numbers at a time, as `Lanes` says. (Otherwise GCC would take vectors of half
// the size for both.)
template <class S>
struct Extent {
  template <class C>
  using Lanes = std::conditional_t<std::is_same_v<S, bfloat16>, TwoVectors<C>, Vector<C>>;
  int64_t size;
  const cpu::OneRow* shared;
  ELEMENTWISE_INLINE Extent(const cpu::OneRow& row) : size(row.size), shared(row.share ? &row : nullptr) {}
  ELEMENTWISE_INLINE operator int64_t() const {
    return size;
  }
  // Returns the place of an element that this run may read.
  ELEMENTWISE_INLINE int64_t first() const {
    return shared ? shared->share->begin : 0;
  }
  // The functor says which inputs its next loop reads, or any loop. Each phase fetches only the inputs that it reads.
  ELEMENTWISE_INLINE void begin_loop(uint32_t inputs) const {
    if (shared) [[unlikely]]
      shared->share->begin_loop(inputs);
  }
  ELEMENTWISE_INLINE void always_read(uint32_t inputs) const {
    if (shared) [[unlikely]]
      shared->share->always |= inputs;
  }
  // A function of elements calls this before it reads any other element.
  ELEMENTWISE_INLINE void need_whole_row() const {
    if (shared) [[unlikely]]
      fail_without_whole_row();
  }
  ELEMENTWISE_INLINE bool has_whole_result() const {
    return !shared || shared->share->has_whole_result;
  }
  // Returns the elements of a row that is kept.
  ELEMENTWISE_INLINE Part kept() const {
    if (shared) [[unlikely]]
      return part_of_share(*shared->share, size, shared->share->reductions == shared->share->phase);
    return {0, size};
  }
  // Returns the elements of a result.
  ELEMENTWISE_INLINE Part written() const {
    if (shared) [[unlikely]]
      return part_of_share(*shared->share, size, shared->share->is_last);
    return {0, size};
  }
  // Begins a reduction.
  ELEMENTWISE_INLINE Part reduction() const {
    Part part{0, size};
    if (shared) [[unlikely]] {
      part = reduction_of_share(*shared->share);
      shared->share->reductions++;
    }
    return part;
  }
};

// For the numbers that are written once for a row.
ELEMENTWISE_INLINE void once(const auto& n, const auto& f) {
  if (n.written().begin == 0) f();
}

// Reads an element of a tensor, or of a row that is kept. If threads share the row, it is a reduction, because only one
// of them has the element. If no row is kept, its phase computes nothing else.
template <class C>
ELEMENTWISE_INLINE C read_one(const auto& n, int64_t place, bool keeps_rows, const auto& read) {
  const Part part = n.reduction();
  C* const one = static_cast<C*>(part.blocks);
  if (!one) return read(place);
  if (part.is_known) return *one;
  if (place >= part.begin && place < part.end) *one = read(place);
  end_phase(keeps_rows ? -1 : place);
}

// A vector has this many bytes; those of element-wise loops may be shorter (vectors.h). With AVX-512,
// ELEMENTWISE_FLATTEN asks GCC for vectors of 512 bits: exp takes a tenth less time. A row stays in the cache, so they
// are not slower where a functor computes little.
#if defined(__AVX512F__) && !defined(__clang__)
constexpr int kRowVector = 64;
#elif defined(__AVX__)
constexpr int kRowVector = 32;
#else
constexpr int kRowVector = 16;
#endif

// n numbers in memory. The values and the derivatives of dual numbers are separate arrays.
template <class C, int n>
struct Numbers {
  alignas(kRowVector) C number[n];
  ELEMENTWISE_INLINE C operator[](int k) const {
    return number[k];
  }
  ELEMENTWISE_INLINE void set(int k, C x) {
    number[k] = x;
  }
  ELEMENTWISE_INLINE void copy_to(C* to) const {
    typedef char Register __attribute__((vector_size(sizeof(number)))); // an array would be copied in two halves
    Register numbers;
    std::memcpy(&numbers, number, sizeof(number));
    std::memcpy(to, &numbers, sizeof(number));
  }
};
template <class C, int n>
struct Numbers<Dual<C>, n> {
  Numbers<C, n> values, derivatives;
  ELEMENTWISE_INLINE Dual<C> operator[](int k) const {
    return {values[k], derivatives[k]};
  }
  ELEMENTWISE_INLINE void set(int k, const Dual<C>& x) {
    values.set(k, x.value);
    derivatives.set(k, x.derivative);
  }
  ELEMENTWISE_INLINE void copy_to(Dual<C>* to) const {
    for (int k = 0; k < n; k++) to[k] = (*this)[k];
  }
  ELEMENTWISE_INLINE void copy_to(const DualRow<C>& to) const {
    values.copy_to(to.values);
    derivatives.copy_to(to.derivatives);
  }
};

template <template <class> class Lanes, class C>
ELEMENTWISE_INLINE void write_numbers(const Lanes<C>& from, bfloat16* to) {
  constexpr int n = Lanes<C>::kSize;
  Numbers<C, n> numbers;
  from.store(numbers);
  ELEMENTWISE_VECTORS(n, 1)
  for (int k = 0; k < n; k++) set(to + k, numbers[k]);
}

// The numbers of a vector register. GCC keeps a vector in a register where it would keep an array in memory.
template <class C>
struct Vector {
  static constexpr int kSize = kRowVector / sizeof(C);
  typedef C Register __attribute__((vector_size(kRowVector)));
  Register numbers;
  ELEMENTWISE_INLINE void fill(C x) {
    numbers = x - Register{}; // adding 0 would lose the sign of -0
  }
  template <int n>
  ELEMENTWISE_INLINE void load(const Numbers<C, n>& from, int at = 0) {
    std::memcpy(&numbers, from.number + at, sizeof(numbers));
  }
  template <int n>
  ELEMENTWISE_INLINE void store(Numbers<C, n>& to, int at = 0) const {
    std::memcpy(to.number + at, &numbers, sizeof(numbers));
  }
  ELEMENTWISE_INLINE void write_to(C* to) const {
    std::memcpy(to, &numbers, sizeof(numbers));
  }
  ELEMENTWISE_INLINE void write_to(bfloat16* to) const {
    write_numbers(*this, to);
  }
  ELEMENTWISE_INLINE void add_to(C* to) const {
    Register sums;
    std::memcpy(&sums, to, sizeof(sums));
    sums = sums + numbers;
    std::memcpy(to, &sums, sizeof(sums));
  }
};
template <class C>
struct Vector<Dual<C>> {
  static constexpr int kSize = Vector<C>::kSize;
  Vector<C> values, derivatives;
  ELEMENTWISE_INLINE void fill(const Dual<C>& x) {
    values.fill(x.value);
    derivatives.fill(x.derivative);
  }
  template <int n>
  ELEMENTWISE_INLINE void load(const Numbers<Dual<C>, n>& from, int at = 0) {
    values.load(from.values, at);
    derivatives.load(from.derivatives, at);
  }
  template <int n>
  ELEMENTWISE_INLINE void store(Numbers<Dual<C>, n>& to, int at = 0) const {
    values.store(to.values, at);
    derivatives.store(to.derivatives, at);
  }
  ELEMENTWISE_INLINE void write_to(C* to) const { // writes the derivatives, as One does
    derivatives.write_to(to);
  }
  ELEMENTWISE_INLINE void add_to(C* to) const {
    derivatives.add_to(to);
  }
};

template <class C>
struct TwoVectors {
  static constexpr int kSize = 2 * Vector<C>::kSize;
  Vector<C> first, second;
  ELEMENTWISE_INLINE void fill(const C& x) {
    first.fill(x);
    second.fill(x);
  }
  template <int n>
  ELEMENTWISE_INLINE void load(const Numbers<C, n>& from, int at = 0) {
    first.load(from, at);
    second.load(from, at + kSize / 2);
  }
  template <int n>
  ELEMENTWISE_INLINE void store(Numbers<C, n>& to, int at = 0) const {
    first.store(to, at);
    second.store(to, at + kSize / 2);
  }
  ELEMENTWISE_INLINE void write_to(bfloat16* to) const {
    write_numbers(*this, to);
  }
  ELEMENTWISE_INLINE void add_to(C* to) const {
    first.add_to(to);
    second.add_to(to + kSize / 2);
  }
};

// Number k of one vector, or of two, becomes f(number k, k).
template <template <class> class Lanes, class C>
ELEMENTWISE_INLINE void update(Lanes<C>& vector, const auto& f) {
  constexpr int n = Lanes<C>::kSize;
  Numbers<C, n> numbers;
  vector.store(numbers);
  ELEMENTWISE_VECTORS(n, 1)
  for (int k = 0; k < n; k++) numbers.set(k, f(numbers[k], k));
  vector.load(numbers);
}

// Joins lanes pairwise: the second half of the vectors with the first half, and so on, then halves of the last vector.
template <int half, class Lanes, class Join>
ELEMENTWISE_INLINE void halve(Lanes& lanes, const Join& join) {
  ELEMENTWISE_VECTORS(half, 1)
  for (int k = 0; k < half; k++) lanes.set(k, join(lanes[k], lanes[half + k]));
  if constexpr (half > 1) halve<half / 2>(lanes, join);
}
template <int half, class C, int count, class Join>
ELEMENTWISE_INLINE C halved(Vector<C> (&vectors)[count], const Join& join) {
  constexpr int n = Vector<C>::kSize;
  Numbers<C, n> lanes;
  const auto join_second = [&](Vector<C>& first, const Vector<C>& second) ELEMENTWISE_LAMBDA {
    second.store(lanes);
    update(first, [&](C x, int k) ELEMENTWISE_LAMBDA { return join(x, lanes[k]); });
  };
  if constexpr (half > 0) {
    [&]<int... i>(std::integer_sequence<int, i...>) ELEMENTWISE_LAMBDA {
      (join_second(vectors[i], vectors[half + i]), ...);
    }(std::make_integer_sequence<int, half>{});
    return halved<half / 2>(vectors, join);
  } else {
    vectors[0].store(lanes);
    halve<n / 2>(lanes, join);
    return lanes[0];
  }
}
template <int half, class C, int count, class Join>
ELEMENTWISE_INLINE C halved(TwoVectors<C> (&pairs)[count], const Join& join) {
  Vector<C> vectors[2 * count];
  for (int i = 0; i < count; i++) {
    vectors[2 * i] = pairs[i].first;
    vectors[2 * i + 1] = pairs[i].second;
  }
  return halved<count>(vectors, join);
}

// join of f(begin), ... f(end - 1): element j goes to lane j - begin modulo their number, and lanes are joined
// pairwise.
template <template <class> class Lanes, class C, class Join, class F, int... v>
ELEMENTWISE_INLINE C
block(int64_t begin, int64_t end, C identity, const Join& join, const F& f, std::integer_sequence<int, v...>) {
  constexpr int n = Lanes<C>::kSize, kLanes = n * sizeof...(v);
  Lanes<C> vectors[sizeof...(v)];
  (vectors[v].fill(identity), ...);
  int64_t j = begin;
  const auto join_vector = [&](Lanes<C>& vector) ELEMENTWISE_LAMBDA {
    update(vector, [&](C x, int k) ELEMENTWISE_LAMBDA { return join(x, f(j + k)); });
    j += n;
  };
  if constexpr (kRowVector >= 32) {
    while (j + kLanes <= end) (join_vector(vectors[v]), ...);
    ((j + n <= end ? join_vector(vectors[v]) : void()), ...);
  } else { // the compiler would need minutes if it copied f for each of the eight vectors
    while (j + kLanes <= end)
      for (Lanes<C>& vector : vectors) join_vector(vector);
    int i = 0;
    while (j + n <= end) join_vector(vectors[i++]);
  }
  if (j < end) {
    Numbers<C, kLanes> all;
    (vectors[v].store(all, v * n), ...);
    for (int k = (j - begin) % kLanes; j < end; j++, k++) all.set(k, join(all[k], f(j)));
    (vectors[v].load(all, v * n), ...);
  }
  return halved<sizeof...(v) / 2>(vectors, join);
}

// Joins blocks pairwise.
template <class C>
struct Tree {
  using Level = std::conditional_t<std::is_same_v<C, float>, double, C>;
  Level levels[64]; // level d has 2^d blocks, joined, if bit d of `count` is set
  int64_t count = 0;

  ELEMENTWISE_INLINE void add(C block, const auto& join) {
    Level all = block;
    int level = 0;
    for (int64_t bits = count++; bits & 1; bits >>= 1) all = join(levels[level++], all);
    levels[level] = all;
  }
  ELEMENTWISE_INLINE C total(C identity, const auto& join) const {
    Level all = identity;
    bool is_first = true;
    for (int level = 0; count >> level; level++)
      if (count >> level & 1) {
        all = is_first ? levels[level] : join(levels[level], all);
        is_first = false;
      }
    return static_cast<C>(all);
  }
};
// Returns the result of a reduction whose blocks are known. It is computed once, and then stands in the place of the
// first block.
template <class C>
ELEMENTWISE_OF_SHARE C joined_blocks(const Part& part, int64_t size, C identity, const auto& join) {
  C* const blocks = static_cast<C*>(part.blocks);
  if (part.begin == part.end && part.is_new) {
    Tree<C> tree;
    for (int64_t i = 0; i < cpu::count_of_blocks(size); i++) tree.add(blocks[i], join);
    blocks[0] = tree.total(identity, join);
  }
  return blocks[0];
}

// Joins f(0), ... f(n - 1) in the order that the head of this file describes.
template <class S, class C>
ELEMENTWISE_INLINE C joined(const Extent<S>& n, C identity, const auto& join, const auto& f) {
  constexpr int64_t kBlock = cpu::kRowBlock;
  constexpr int kLanes = 128 / kRowVector * Vector<C>::kSize;
  constexpr std::make_integer_sequence<int, kLanes / Extent<S>::template Lanes<C>::kSize> vectors; // hold the lanes
  static_assert(sizeof(C) <= cpu::kBytesOfBlock);
  const Part part = n.reduction();
  C* const blocks = static_cast<C*>(part.blocks);
  if (part.is_known) return joined_blocks(part, n, identity, join);
  if (blocks && part.begin == part.end) end_phase();
  Tree<C> tree;
  for (int64_t j = part.begin; j == 0 || j < part.end; j += kBlock) {
    const C one = block<Extent<S>::template Lanes>(j, std::min<int64_t>(n, j + kBlock), identity, join, f, vectors);
    if (n <= kBlock) return one;
    if (blocks)
      blocks[j / kBlock] = one;
    else
      tree.add(one, join);
  }
  if (blocks) end_phase();
  return tree.total(identity, join);
}

// The first j for which is(j) is true, or 0. Threads that share the row search their own elements.
ELEMENTWISE_INLINE int64_t first_of(const auto& n, const auto& is) {
  const Part part = n.reduction();
  int64_t* const blocks = static_cast<int64_t*>(part.blocks);
  int64_t first = part.begin;
  if (part.is_known) {
    const auto least = [](int64_t a, int64_t b) ELEMENTWISE_LAMBDA { return b < a ? b : a; };
    first = joined_blocks(part, n, int64_t{n}, least);
  } else {
    while (first < part.end && !is(first)) first++;
    if (blocks) {
      const int64_t found = first < part.end ? first : int64_t{n};
      std::fill(blocks + cpu::count_of_blocks(part.begin), blocks + cpu::count_of_blocks(part.end), found);
      end_phase();
    }
  }
  return first < n ? first : 0;
}

// to[j] = f(j) for the elements of a part. It computes two vectors at a time, whose steps the compiler interleaves
// (cpu/kernels.h). clang interleaves the plain loop by itself, and so does GCC if elements are stored as bfloat16.
template <class S>
ELEMENTWISE_INLINE void write_part(const auto& to, const Part& part, const auto& f) {
  using T = std::decay_t<decltype(f(int64_t{0}))>;
  constexpr int kSize = kRowVector / sizeof(math::primal_t<T>);
  int64_t j = part.begin;
  const int64_t end = part.end;
#if !defined(__clang__)
  if constexpr (!std::is_same_v<S, bfloat16>)
    for (; j + 2 * kSize <= end; j += 2 * kSize) {
      Numbers<T, kSize> first, second;
      ELEMENTWISE_VECTORS(kSize, 1)
      for (int k = 0; k < kSize; k++) first.set(k, f(j + k));
      ELEMENTWISE_VECTORS(kSize, 1)
      for (int k = 0; k < kSize; k++) second.set(k, f(j + kSize + k));
      first.copy_to(to + j);
      second.copy_to(to + j + kSize);
    }
#endif
  ELEMENTWISE_VECTORS(kSize, 2)
  for (; j < end; j++) set(to + j, f(j));
}
// to[j] = f(j) for all j.
template <class S>
ELEMENTWISE_INLINE void keep_row(const auto& to, const Extent<S>& n, const auto& f) {
  write_part<S>(to, n.kept(), f);
}
template <class S>
ELEMENTWISE_INLINE void write_row(const auto& to, const Extent<S>& n, const auto& f) {
  write_part<S>(to, n.written(), f);
}

// Computes row i of several rows as to[i][j] = f(j)[i], for all j. A row that is null is left out. If bit i of `added`
// is set, the numbers are added to those that are there. Otherwise they are stored as elements. f computes as many
// numbers at a time as Lanes has, then one vector, and then one number.
template <class S, int n, class F>
ELEMENTWISE_INLINE void write_rows(void* const (&to)[n], uint32_t added, const Extent<S>& size, const F& f) {
  using Stored = math::primal_t<S>;
  using T = compute_t<Stored>;
  const auto write = [&](int64_t j, const auto& numbers) ELEMENTWISE_LAMBDA {
    for (int i = 0; i < n; i++) {
      if (!to[i]) continue;
      if (added >> i & 1)
        numbers.each[i].add_to(static_cast<T*>(to[i]) + j);
      else
        numbers.each[i].write_to(static_cast<Stored*>(to[i]) + j);
    }
  };
  const Part part = size.written();
  int64_t j = part.begin;
  const int64_t end = part.end;
  constexpr int kSize = Extent<S>::template Lanes<T>::kSize;
  const auto compute = [&](int64_t j)
                           ELEMENTWISE_LAMBDA { return f.template operator()<Extent<S>::template Lanes>(j); };
  if constexpr (n == 1) // there are enough registers for two vectors, whose steps the compiler interleaves
    for (; j + 2 * kSize <= end; j += 2 * kSize) {
      const auto first = compute(j), second = compute(j + kSize);
      write(j, first);
      write(j + kSize, second);
    }
  for (; j + kSize <= end; j += kSize) write(j, compute(j));
  if constexpr (kSize > Vector<T>::kSize)
    for (; j + kSize / 2 <= end; j += kSize / 2) write(j, f.template operator()<Vector>(j));
  for (; j < end; j++) write(j, f.template operator()<One>(j));
}

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET
