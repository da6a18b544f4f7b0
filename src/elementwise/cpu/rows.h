// Runs a task over rows on the CPU. A row is computed in place if its elements are adjacent and have the type that the
// kernel computes in. Otherwise it is copied into a buffer that stays in the cache. No operand is copied as a whole.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "../rows/task.h"
#include "float_environment.h"
#include "isa.h"

namespace elementwise::cpu {

// The rows from `begin` to `end` of a task.
class RowsRun {
 public:
  RowsRun(const rows::Task& task, const Computer& computer, const RowMover& mover, int64_t begin, int64_t end)
      : task_(task), computer_(computer), mover_(mover), row_(begin), end_(end) {
    for (int d = task.dims - 1; d >= 0 && begin < end; d--) { // without rows, a size may be 0
      digit_[d] = begin % task.sizes[d];
      begin /= task.sizes[d];
      for (int k = 0; k < task.operands; k++) offset_[k] += digit_[d] * task.stride[d][k];
    }
  }

  // Computes the rows. `sums` has the memory of each result that is summed.
  void compute(std::byte* const* sums) {
    for (int k = 0; k < task_.operands; k++)
      if (const int64_t size = buffer_bytes(k); size > 0) buffer_[k].reset(new std::byte[size]);
    void* data[kMaxOperands];
    for (; row_ < end_; advance()) {
      for (int k = task_.results; k < task_.operands; k++) data[k] = fetch(k);
      for (int k = 0; k < task_.results; k++) data[k] = is_direct(k) ? memory(k) : buffer_[k].get();
      computer_.one_row({task_.size, row_ % task_.last, data, task_.numbers, scratch, this});
      for (int k = 0; k < task_.results; k++)
        if (task_.unwanted >> k & 1)
          continue;
        else if (task_.summed >> k & 1)
          add(k, data[k], sums[k]);
        else if (!is_direct(k))
          put(k, data[k]);
    }
  }

  // Whether every place that the functor reads with row.at lies in its row.
  bool is_inside() {
    void* data[kMaxOperands] = {};
    for (int k = task_.results; k < task_.operands; k++)
      if (task_.of_row >> k & 1) buffer_[k].reset(new std::byte[8]);
    bool all = true;
    for (; row_ < end_; advance()) {
      for (int k = task_.results; k < task_.operands; k++)
        if (task_.of_row >> k & 1) data[k] = fetch(k);
      all &= computer_.is_inside({task_.size, row_ % task_.last, data, task_.numbers, nullptr, nullptr});
    }
    return all;
  }

 private:
  static void* scratch(void* run, int k) {
    auto& rows = static_cast<RowsRun*>(run)->scratch_;
    while (static_cast<int>(rows.size()) <= k)
      rows.emplace_back(new std::byte[16 * static_cast<RowsRun*>(run)->task_.size]);
    return rows[k].get();
  }
  bool is_16_bits(int k) const {
    return task_.dtypes[k] == kOrdinal<float16> || task_.dtypes[k] == kOrdinal<bfloat16>;
  }
  int64_t elements(int k) const {
    return task_.of_row >> k & 1 ? 1 : task_.size;
  }
  std::byte* memory(int k) const {
    return static_cast<std::byte*>(task_.data[k]) + offset_[k] * task_.bytes[k];
  }
  // Whether each row of an operand is computed where it is.
  bool is_direct(int k) const {
    if (task_.summed >> k & 1 || is_16_bits(k)) return false;
    if (k < task_.results && !task_.is_apart) return false;
    const bool is_aligned = reinterpret_cast<uintptr_t>(task_.data[k]) % task_.bytes[k] == 0;
    return is_aligned && (elements(k) == 1 || task_.step[k] == 1);
  }
  // 8 bytes for each element, and of 16-bit ones as many again where they are put side by side before.
  int64_t buffer_bytes(int k) const {
    return is_direct(k) ? 0 : 16 * elements(k) + 16;
  }
  std::byte* packed(int k) const {
    return buffer_[k].get() + 8 * elements(k) + 8;
  }
  const Mover& of_bytes(int k) const {
    return isa().movers[std::countr_zero(static_cast<uint64_t>(task_.bytes[k]))];
  }

  void* fetch(int k) {
    std::byte* const from = memory(k);
    if (is_direct(k)) return from;
    void* const to = buffer_[k].get();
    if (from == fetched_[k]) return to;
    fetched_[k] = task_.is_apart ? from : nullptr;
    const int64_t n = elements(k), step = n == 1 ? 1 : task_.step[k];
    const void* adjacent = from;
    if (step != 1 || !is_16_bits(k)) {
      void* const side_by_side = is_16_bits(k) ? packed(k) : to;
      if (step == 1)
        std::memcpy(side_by_side, from, n * task_.bytes[k]);
      else
        (step == 0 ? of_bytes(k).repeat : of_bytes(k).gather)(from, step, n, side_by_side);
      adjacent = side_by_side;
    }
    if (is_16_bits(k))
      (task_.dtypes[k] == kOrdinal<float16> ? mover_.widen_float16 : mover_.widen_bfloat16)(
          adjacent, n, static_cast<float*>(to));
    return to;
  }

  void put(int k, const void* from) const {
    const int64_t n = elements(k), step = n == 1 ? 1 : task_.step[k];
    if (is_16_bits(k)) {
      void* const to = step == 1 ? memory(k) : packed(k);
      narrow(k, from, n, to);
      from = to;
    }
    if (step != 1)
      of_bytes(k).scatter(from, step, n, memory(k));
    else if (from != memory(k))
      std::memcpy(memory(k), from, n * task_.bytes[k]);
  }
  void narrow(int k, const void* from, int64_t n, void* to) const {
    (task_.dtypes[k] == kOrdinal<float16> ? mover_.narrow_float16 : mover_.narrow_bfloat16)(
        static_cast<const float*>(from), n, to);
  }

  void add(int k, const void* from, std::byte* sums) const {
    const bool is_double = task_.dtypes[k] == kOrdinal<double>;
    std::byte* const to = sums + offset_[k] * (is_double ? 8 : 4);
    const int64_t step = elements(k) == 1 ? 1 : task_.step[k];
    if (step == 0 || step == 1)
      (step == 0 ? mover_.sum : mover_.add)[is_double](from, elements(k), to);
    else if (is_double)
      add_apart(static_cast<const double*>(from), elements(k), step, to);
    else
      add_apart(static_cast<const float*>(from), elements(k), step, to);
  }
  // Adds to elements that are `step` apart, where an `int dim` is not the last one.
  template <class T>
  static void add_apart(const T* from, int64_t n, int64_t step, std::byte* to) {
    for (int64_t j = 0; j < n; j++) reinterpret_cast<T*>(to)[j * step] += from[j];
  }

  void advance() {
    row_++;
    for (int d = task_.dims - 1; d >= 0; d--) {
      const bool is_over = ++digit_[d] == task_.sizes[d];
      const int64_t steps = is_over ? 1 - task_.sizes[d] : 1;
      if (is_over) digit_[d] = 0;
      for (int k = 0; k < task_.operands; k++) offset_[k] += steps * task_.stride[d][k];
      if (!is_over) return;
    }
  }

  const rows::Task& task_;
  const Computer& computer_;
  const RowMover& mover_;
  int64_t row_;
  const int64_t end_;
  int64_t digit_[kMaxDims] = {}, offset_[kMaxOperands] = {};
  std::unique_ptr<std::byte[]> buffer_[kMaxOperands];
  const void* fetched_[kMaxOperands] = {};
  std::vector<std::unique_ptr<std::byte[]>> scratch_;
};

// Returns false, and writes nothing, if a place that the functor reads is outside of its row. Results that are summed
// over rows are added up in parts, as many as the shape says, and these in their order.
template <class ParallelFor>
bool launch_rows(const rows::Task& task, const ParallelFor& parallel_for) {
  constexpr int64_t kGrain = 32 * 1024;
  const Computer computer = isa().computer(task.index)(task.dtype);
  const RowMover& mover = *isa().row_mover;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, task.size));
  const auto for_rows = [&](int64_t end, int64_t rows_of_one, const auto& body) {
    const auto part = [&](int64_t from, int64_t to) {
      const DefaultFloatEnvironment environment;
      body(from, to);
    };
    if (end * rows_of_one <= grain)
      part(0, end);
    else
      parallel_for(end, std::max<int64_t>(1, grain / rows_of_one), part);
  };
  if (computer.is_inside) {
    int64_t zero = 0;
    void* none[kMaxOperands];
    std::fill_n(none, kMaxOperands, &zero);
    if (!computer.is_inside({0, 0, none, task.numbers, nullptr, nullptr}) &&
        !RowsRun(task, computer, mover, 0, task.count).is_inside())
      return false;
  }
  if (!task.summed) {
    for_rows(task.count, 1, [&](int64_t begin, int64_t end) {
      std::byte* none[kMaxOperands] = {};
      RowsRun(task, computer, mover, begin, end).compute(none);
    });
    return true;
  }
  const int64_t parts = task.parts();
  std::vector<std::unique_ptr<std::byte[]>> memory(parts * task.results);
  const auto bytes_of = [&](int k) { return task.numel[k] * (task.dtypes[k] == kOrdinal<double> ? 8 : 4); };
  for_rows(parts, (task.count + parts - 1) / parts, [&](int64_t from, int64_t to) {
    for (int64_t part = from; part < to; part++) {
      std::byte* sums[kMaxOperands] = {};
      for (int k = 0; k < task.results; k++)
        if (task.summed >> k & 1) {
          auto& own = memory[part * task.results + k];
          own.reset(new std::byte[bytes_of(k)]());
          sums[k] = own.get();
        }
      RowsRun(task, computer, mover, task.count * part / parts, task.count * (part + 1) / parts).compute(sums);
    }
  });
  for (int k = 0; k < task.results; k++) {
    if (!(task.summed >> k & 1)) continue;
    const bool is_double = task.dtypes[k] == kOrdinal<double>;
    for (int64_t width = 1; width < parts; width *= 2) // pairwise
      for (int64_t part = 0; part + width < parts; part += 2 * width)
        mover.add[is_double](
            memory[(part + width) * task.results + k].get(), task.numel[k], memory[part * task.results + k].get());
    const void* const total = memory[k].get();
    if (task.dtypes[k] == kOrdinal<float16>)
      mover.narrow_float16(static_cast<const float*>(total), task.numel[k], task.data[k]);
    else if (task.dtypes[k] == kOrdinal<bfloat16>)
      mover.narrow_bfloat16(static_cast<const float*>(total), task.numel[k], task.data[k]);
    else
      std::memcpy(task.data[k], total, bytes_of(k));
  }
  return true;
}

} // namespace elementwise::cpu
