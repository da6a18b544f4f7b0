// The two halves of the CPU's engine, as the code between them (run.h) sees them. What computes knows a functor and its
// dtypes, and takes rows of adjacent elements; what moves elements knows their size and their strides, and no functor.
// Both are compiled once for each instruction set.
#pragma once

#include "../task.h"

// Before a loop whose steps do not depend on each other, whatever its pointers are. Without it, clang vectorises no
// function that looks into a table.
#if defined(__clang__)
#define ELEMENTWISE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Before a loop that computes the elements of a vector: GCC would unroll one so short before it makes vectors of loops,
// but copies a vector with an instruction.
#if defined(__GNUC__) && !defined(__clang__)
#define ELEMENTWISE_AS_A_LOOP _Pragma("GCC unroll 1")
#else
#define ELEMENTWISE_AS_A_LOOP
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

// One row of an operator over rows: where the elements of each operand are, side by side, the results first.
struct OneRow {
  int64_t size, index;
  void* const* data;
  const Number* numbers;
  // Memory for the k-th row that is kept while this one is computed.
  void* (*scratch)(void* run, int k, int64_t bytes);
  void* run;
};

// Rows of which each operand's next one is `pitch` bytes further. The index after the last is 0.
struct SeveralRows {
  OneRow first;
  int64_t count, last;
  const int64_t* pitch;
};

// A functor in one dtype.
struct Computer {
  // n adjacent elements of each operand.
  using Row = void (*)(int64_t n, void* const* data, const Number* numbers);
  Row row;
  void (*short_rows)(const Rows& rows, const Number* numbers); // null: short rows are packed, and then are one
  int results;
  const int* bytes; // of an element of each operand
  int shortest = 0; // of short rows: those of fewer elements are packed, too
  // Of a functor over rows: what computes rows, and what asks whether all places that they read lie in them.
  void (*rows)(const SeveralRows&) = nullptr;
  bool (*are_inside)(const SeveralRows&) = nullptr;
};

// The computer of an operator for a dtype.
using Choose = Computer (*)(int32_t dtype);

// What moves elements of one size.
struct Mover {
  // A row of n elements that are `step` elements apart on one side, and adjacent on the other.
  using Row = void (*)(const void* from, int64_t step, int64_t n, void* to);
  Row repeat, even, gather; // from where step is 0, 2, and anything
  Row scatter, stream;      // to where it is anything, and to where it is 1, past the cache
  // A box of n[0] x n[1] elements; where it is packed, stride[0] is 1 and stride[1] is n[0].
  using Box = void (*)(const void* from, const int64_t stride[2], const int64_t n[2], void* to);
  Box gather_box, scatter_box;
};

// What sums elements of a floating-point type.
struct Summer {
  int32_t dtype;
  // Adds rows of n adjacent elements: each to one sum, or each of its elements to one. From the sums of a row to those
  // of the next is `pitch`.
  void (*add)(const void* from, int64_t n, int64_t rows, double* sums, bool along, int64_t pitch);
  void (*add_sums)(const double* from, int64_t n, double* sums);
  void (*round)(const double* sums, int64_t n, int64_t step, void* to); // to elements that are `step` apart
};

// What moves rows of 16-bit types, which are computed with as float, and adds up rows, or the elements of one, of float
// and of double.
struct RowMover {
  void (*widen_float16)(const void* from, int64_t n, float* to);
  void (*widen_bfloat16)(const void* from, int64_t n, float* to);
  void (*narrow_float16)(const float* from, int64_t n, void* to);
  void (*narrow_bfloat16)(const float* from, int64_t n, void* to);
  void (*widen_bool)(const void* from, int64_t n, int32_t* to);
  void (*add[2])(const void* from, int64_t n, void* to);
  void (*sum[2])(const void* from, int64_t n, void* to);
};

// Whether the elements of neighbouring rows are nearer to each other than those of one: a transposed input.
[[gnu::always_inline]] inline bool runs_across(const int64_t stride[2]) {
  return stride[1] != 0 && stride[1] < stride[0];
}

// For each instruction set: the computers in the order of the list of operators, the movers of elements of 1, 2, 4 and
// 8 bytes, and the summers of all types that have one.
#define ELEMENTWISE_COMPILED_FOR(isa)   \
  namespace isa {                       \
  extern const Choose* const computers; \
  extern const Mover movers[4];         \
  extern const Summer summers[4];       \
  extern const RowMover row_mover;      \
  }
ELEMENTWISE_COMPILED_FOR(avx512)
ELEMENTWISE_COMPILED_FOR(avx2)
ELEMENTWISE_COMPILED_FOR(baseline)
#undef ELEMENTWISE_COMPILED_FOR

} // namespace elementwise::cpu
