// The interfaces between the parts of the CPU backend. A Computer knows a functor and its dtypes, and computes rows of
// adjacent elements. A Mover knows the size and the strides of elements, and no functor. launch.h connects the two.
// Both are compiled once for each instruction set.
#pragma once

#include "../strided.h"

// Goes before a loop whose steps do not depend on each other, even if pointers may alias. Without it, clang does not
// vectorise a function that reads a table.
#if defined(__clang__)
#define ELEMENTWISE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Goes before such a loop too, to compute `count` vectors of n elements at a time. Without it, a compiler unrolls a
// short loop before it vectorises, and clang chooses shorter vectors if a functor uses double. (It vectorises two steps
// only if they are unrolled.)
#if defined(__clang__)
#define ELEMENTWISE_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define ELEMENTWISE_VECTORS(n, count)                                                \
  ELEMENTWISE_PRAGMA(                                                                \
      clang loop vectorize(assume_safety) vectorize_width(n) interleave_count(count) \
          unroll_count((n) == 2 && (count) == 1 ? 2 : 1))
#else
#define ELEMENTWISE_VECTORS(n, count) ELEMENTWISE_INDEPENDENT _Pragma("GCC unroll 1")
#endif

namespace elementwise::cpu {

constexpr int64_t kLine = 64; // bytes of a cache line

// Rows of adjacent elements of each operand, the results first.
struct Rows {
  int64_t count;
  int64_t length;
  void* data[kMaxOperands];
  int64_t pitch[kMaxOperands]; // from one row to the next, in elements
};

constexpr int64_t kRowBlock = 1024;                   // elements of a row that are added up first (row_loops.h)
constexpr int64_t kBytesOfBlock = 2 * sizeof(double); // enough for the result of a block, a dual number or any other
[[gnu::always_inline]] constexpr int64_t count_of_blocks(int64_t elements) {
  return (elements + kRowBlock - 1) / kRowBlock;
}

// Several threads compute a long row together, a few blocks at a time, and this is one such share. In phase k, the
// results of the first k reductions are known. The functor runs for each share: it computes the elements from `begin`
// to `end` for the next reduction, and for the rows that it keeps before that, and stops. In the last phase it runs to
// its end, and writes the results. Each phase begins with a run for no elements, which joins the blocks of the
// reduction of the phase before.
struct Share {
  int64_t begin, end; // whole blocks
  int phase;
  bool is_last;          // whether it is the last phase
  bool has_whole_result; // whether the memory of the result is that of the whole row, so that it can hold a kept row
  void* const* blocks;   // for each reduction until this phase, the memory for the results of its blocks
  int reductions = 0;    // how many of them this run of the functor has begun
  uint32_t read = 0;     // bit k: the phase reads elements of the k-th input
  uint32_t always = 0;   // bit k: every phase may read them
  struct EndOfPhase {    // thrown to stop the functor
    int64_t place = -1;  // the only element that the phase reads; -1 if it reads all
  };
  struct NeedsWholeRow {}; // thrown if a function of elements reads any other element

  // A loop may have several reductions, so the last one that begins before the phase may belong to it, too.
  void begin_loop(uint32_t inputs) {
    read = reductions < phase ? inputs : read | inputs;
  }
};

// Thrown where a functor reads a place outside of its row, or makes a mistake that the compiler cannot detect.
// launch_rows (rows.h) makes it the caller's error.
struct RowError {
  int64_t place;
  const char* mistake = nullptr;
};

// One row of an operator over rows: where the elements of each operand are, side by side, the results first.
struct OneRow {
  int64_t size, index;
  void* const* data;
  const Number* numbers;
  // Returns memory for the k-th row that the functor keeps.
  void* (*scratch)(void* run, int k, int64_t bytes);
  void* run;
  uint32_t added = 0;     // bit k: the k-th result is added to what is in its memory
  Share* share = nullptr; // null: one thread computes the row
};

// A row that has a length, but no memory for elements: each operand is the same number everywhere. The number is not 0,
// because a functor may divide by it.
struct UniformRow : OneRow {
  UniformRow(int64_t size, const Number* numbers) : OneRow{size, 0, each, numbers, nullptr, nullptr} {
    for (void*& x : each) x = &number;
  }
  UniformRow(const UniformRow&) = delete; // `each` points into it
  int64_t number = 0x0101010101010101;
  void* each[kMaxOperands];
};

// Rows for one call of a kernel: the next row of each operand is `pitch` bytes further on. After the row with the index
// `last` comes one with the index 0.
struct SeveralRows {
  OneRow first;
  int64_t count, last;
  const int64_t* pitch;
};

// The compiler knows this much about what a functor over rows reads.
struct RowReads {
  bool no_place;   // it reads no single place
  uint32_t inputs; // bit k: it may read elements of the k-th input
};

// Computes a functor in one dtype.
struct Computer {
  // Computes n adjacent elements of each operand.
  using Row = void (*)(int64_t n, void* const* data, const Number* numbers);
  Row row;
  void (*short_rows)(const Rows& rows, const Number* numbers); // null: the caller packs short rows into one long row
  int results;
  const int* bytes;     // the size of an element of each operand
  int64_t shortest = 0; // shorter rows are packed even if there is a short_rows, or converted from bfloat16
  // For a functor over rows: rows computes them, rows_of_bfloat16 if their elements have not been converted to float.
  // (It may be null.) check_places throws RowError if a row reads a place outside of it, unless elements decide which.
  void (*rows)(const SeveralRows&) = nullptr;
  void (*rows_of_bfloat16)(const SeveralRows&) = nullptr;
  void (*check_places)(const SeveralRows&) = nullptr;
  RowReads (*reads)(const OneRow& any) = nullptr;
};

// The computer of an operator for a dtype.
using ComputerOf = Computer (*)(int32_t dtype);

// Moves elements of one size.
struct Mover {
  // Moves a row of n elements that are `step` elements apart on one side, and adjacent on the other.
  using Row = void (*)(const void* from, int64_t step, int64_t n, void* to);
  Row gather;          // packs elements with any step
  Row scatter, stream; // writes with any step; writes with step 1, past the cache
  // Moves a box of n[0] x n[1] elements. On the packed side, the strides are 1 and n[0].
  using Box = void (*)(const void* from, const int64_t stride[2], const int64_t n[2], void* to);
  Box gather_box, scatter_box;
};

// Sums elements of a floating-point type.
struct Summer {
  int32_t dtype;
  // Adds rows of n adjacent elements to sums: each row to one sum (`along`), or each column to its own. The sums of
  // neighbouring rows are `pitch` apart.
  void (*add)(const void* from, int64_t n, int64_t rows, double* sums, bool along, int64_t pitch);
  void (*round)(const double* sums, int64_t n, int64_t step, void* to); // writes elements that are `step` apart
};

// Converts and adds up rows.
struct RowMover {
  // Convert bfloat16 ([0]) and float16 ([1]) to float, and float to them.
  void (*widen[2])(const void* from, int64_t n, float* to);
  void (*narrow[2])(const float* from, int64_t n, void* to);
  void (*widen_bools)(const void* from, int64_t n, int32_t* to);
  // Add the elements of a row to numbers that are `step` apart, or all to one number if `step` is 0: float ([0]) or
  // double ([1]).
  void (*add[2])(const void* from, int64_t n, int64_t step, void* to);
};

// Whether an element is closer to the same element of the next row than to the next one of its own row, as in a
// transposed input.
[[gnu::always_inline]] inline bool runs_across(const int64_t stride[2]) {
  return stride[1] != 0 && stride[1] < stride[0];
}

// A long list of operators is compiled in several parts (meson.build), so that a compiler needs less memory and all
// processors are busy. Part p has the kernels p, p + kParts, p + 2 * kParts and so on.
#if defined(ELEMENTWISE_PARTS)
constexpr int kParts = ELEMENTWISE_PARTS;
#else
constexpr int kParts = 1;
#endif

// For each instruction set: the computers of each part, in the order of the list of operators; the movers of elements
// of 1, 2, 4 and 8 bytes; and the summers of all types that have one.
#define ELEMENTWISE_COMPILED_FOR(isa) \
  namespace isa {                     \
  template <int part>                 \
  const ComputerOf* computers();      \
  extern const Mover movers[4];       \
  extern const Summer summers[4];     \
  extern const RowMover row_mover;    \
  }
ELEMENTWISE_COMPILED_FOR(avx512)
ELEMENTWISE_COMPILED_FOR(avx2)
ELEMENTWISE_COMPILED_FOR(baseline)
#undef ELEMENTWISE_COMPILED_FOR

} // namespace elementwise::cpu
