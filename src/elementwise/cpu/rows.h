// Runs a task over rows on the CPU. A row is computed in place if its elements are adjacent and have a type that the
// kernel reads. Otherwise it is copied into a buffer, one row or a few short ones at a time. One call of the kernel
// computes several short rows, because a call for each would take as long as the row itself.
//
// Example: a softmax of 4096 x 64 elements of float16. One call computes 32 rows, which are 2048 elements:
//
//   x, float16                  buffer, float                  buffer, float                  out, float16
//   32 rows     -- widened -->  32 rows       -- computed -->  32 rows       -- rounded -->   32 rows
//
// Kernels read and write most rows of bfloat16 themselves (rows/kernels.h), which saves up to half of the time. (GCC
// does not vectorise the conversions of float16.)
//
// If threads share a row, each copies its own elements, a part of them at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "../contract.h"
#include "../rows/task.h"
#include "launch.h"

namespace elementwise::cpu {

// The memory for the sums over rows of a result.
struct SumsOf {
  Lines few; // of the last rows, in the type that the kernel computes in
  std::unique_ptr<double[]> all;
};

// The rows from `begin` to `end` of a task. With a `parallel_for`, several threads share each row (Share).
template <class ParallelFor>
class RowsRun {
 public:
  RowsRun(
      const rows::Task& task, const Computer& computer, uint32_t reads, int64_t begin, int64_t end,
      const ParallelFor* parallel_for)
      : task_(task),
        computer_(computer),
        is_of_bfloat16_(computer.rows_of_bfloat16 && task.size >= computer.shortest && !has_elements_of_float()),
        parallel_for_(parallel_for),
        row_(begin),
        end_(end),
        reads_(reads),
        most_(parallel_for ? 1 : std::numeric_limits<int64_t>::max()) {
    for (int d = task.dims - 1; d >= 0 && begin < end; d--) { // without rows, a size may be 0
      digit_[d] = begin % task.sizes[d];
      begin /= task.sizes[d];
      for (int k = 0; k < task.operands; k++) offset_[k] += digit_[d] * task.stride[d][k];
    }
  }

  // Computes the rows. `sums` belongs to each result that is summed.
  void compute(const SumsOf* sums) {
    for (int k = 0; k < task_.operands; k++) prepare(k);
    allocate_all();
    const int64_t begin = row_;
    for (int64_t count; row_ < end_; advance(count)) {
      count = together();
      if (task_.summed) count = std::min(count, rows::kAtOnce - (row_ - begin) % rows::kAtOnce);
      for (int k = 0; k < task_.results; k++)
        if (added_ >> k & 1 && !places_[k].is_direct)
          std::memset(buffers_.of[k].get(), 0, count * places_[k].elements * places_[k].width);
      if (parallel_for_) {
        share_row(sums);
      } else {
        call_kernel(rows(fetch_all(buffers_, count, sums), count));
        put_all(buffers_, count);
      }
      for (int k = 0; k < task_.results; k++)
        if (task_.is_summed(k) && !places_[k].is_direct) add(k, count, sums[k].few.get());
      const int64_t done = row_ + count - begin;
      for (int k = 0; k < task_.results && row_ + count < end_; k++)
        if (task_.is_summed(k) && done % task_.rows_at_once(k) == 0) {
          add_few(k, done, sums[k]);
          std::memset(sums[k].few.get(), 0, task_.numel[k] * places_[k].width);
        }
    }
    for (int k = 0; k < task_.results; k++)
      if (task_.is_summed(k)) add_few(k, end_ - begin, sums[k]);
  }

  // Throws RowError if the functor reads a place outside of its row, unless the elements decide which. This reads
  // only the operands that have one value for each row.
  void check_places() {
    for (int k = task_.results; k < task_.operands; k++)
      if (task_.is_of_row(k)) prepare(k);
    allocate_all();
    for (int64_t count; row_ < end_; advance(count)) {
      count = together();
      Data data{};
      for (int k = task_.results; k < task_.operands; k++)
        if (task_.is_of_row(k)) data[k] = fetch(buffers_, k, count);
      computer_.check_places(rows(data, count));
    }
  }

 private:
  using Data = std::array<void*, kMaxOperands>;
  // Where the kernel finds the rows of an operand: in its memory, or in a buffer.
  struct Place {
    bool is_direct = true, is_converted = false, is_mask = false;
    int64_t elements = 0, step = 1;     // of a row
    int64_t next = 0;                   // bytes from a row in memory to the next one
    int64_t width = 0;                  // bytes of an element in the buffer
    const std::byte* fetched = nullptr; // the rows that the buffer has, and their number
    int64_t fetched_rows = 0;
  };
  // The buffers for the elements from `begin` to `end` of rows. If threads share a row, each has its own.
  struct Buffers {
    int64_t begin, end;
    Lines of[kMaxOperands] = {}, side_by_side[kMaxOperands] = {};
  };

  // A tensor of C may be float where the others have 16 bits.
  bool has_elements_of_float() const {
    for (int k = 0; k < task_.operands; k++)
      if (task_.dtypes[k] == kOrdinal<float> && !task_.is_of_row(k) && !task_.is_summed(k)) return true;
    return false;
  }
  bool is_float16(int k) const {
    return task_.dtypes[k] == kOrdinal<float16>;
  }

  void prepare(int k) {
    Place& x = places_[k];
    const bool is_result = k < task_.results, is_summed = task_.is_summed(k), is_of_row = task_.is_of_row(k);
    x.elements = task_.elements(k);
    x.step = x.elements <= 1 ? 1 : task_.step[k]; // without elements, there is no memory to read
    x.next = task_.dims ? task_.stride[task_.dims - 1][k] * task_.bytes[k] : 0;
    // The kernel reads it as RowBool.
    x.is_mask = !is_result && !is_of_row && task_.dtypes[k] == kOrdinal<bool>;
    const bool has_other_bits = has_16_bits(task_.dtypes[k]) && (!is_of_bfloat16_ || is_of_row || is_summed);
    x.is_converted = x.is_mask || has_other_bits;
    x.width = x.is_converted ? 4 : task_.bytes[k];
    const bool is_aligned = reinterpret_cast<uintptr_t>(task_.data[k]) % task_.bytes[k] == 0;
    const bool is_unread = !is_result && !is_of_row && !(reads_ >> (k - task_.results) & 1);
    x.is_direct = task_.is_unwanted(k) || is_unread ||
                  (!is_summed && !x.is_converted && !(is_result && !task_.is_apart) && is_aligned && x.step == 1);
    if (is_summed && !is_of_row) added_ |= uint32_t{1} << k;
    if (is_summed && !is_of_row && x.step == 1) { // the kernel adds to the sums
      x.is_direct = true;
      pitch_[k] = x.next / task_.bytes[k] * x.width;
      return;
    }
    pitch_[k] = x.is_direct || (!is_result && x.next == 0) ? x.next : x.elements * x.width;
    if (!x.is_direct) bytes_of_row_ += x.elements * (x.width + task_.bytes[k]);
  }
  // Allocates the buffers of as many rows as stay in the nearest cache, together with what is copied.
  void allocate_all() {
    constexpr int64_t kNear = 24 * 1024;
    if (bytes_of_row_ > 0) most_ = std::clamp<int64_t>(kNear / bytes_of_row_, 1, most_);
    for (int k = 0; k < task_.operands; k++)
      if (!places_[k].is_direct && (task_.is_summed(k) || task_.is_of_row(k) || !parallel_for_))
        allocate(buffers_, k, most_, places_[k].elements);
  }
  void allocate(Buffers& buffers, int k, int64_t rows, int64_t elements) const {
    const Place& x = places_[k];
    buffers.of[k] = allocated(rows * elements * x.width);
    if (x.is_converted && x.step != 1) buffers.side_by_side[k] = allocated(elements * task_.bytes[k]);
  }
  static Lines allocated(int64_t bytes) {
    Lines memory(bytes);
    on_fresh_output(memory.get(), bytes);
    return memory;
  }
  static void* scratch(void* run, int k, int64_t bytes) {
    RowsRun& self = *static_cast<RowsRun*>(run);
    std::unique_lock lock(self.mutex_, std::defer_lock);
    if (self.parallel_for_) lock.lock();
    auto& memory = self.scratch_;
    if (memory.size() <= static_cast<size_t>(k)) memory.resize(k + 1);
    if (!memory[k].get()) memory[k] = allocated(bytes);
    return memory[k].get();
  }

  // Whether an operand has a buffer of some of a row's elements.
  bool is_buffered(int k) const {
    return !places_[k].is_direct && !task_.is_summed(k);
  }

  // Computes one row with all threads. Each goes over its elements in steps, because its buffers for all of them would
  // not stay in the cache. The steps are not smaller, because the exception that ends one takes several microseconds.
  // If a function of elements reads any other element, this thread computes the row.
  void share_row(const SumsOf* sums) {
    constexpr int64_t kGrain = 32, kStep = 256; // blocks
    std::vector<Lines> memory;
    std::vector<void*> blocks;
    bool has_buffers = false, is_last = false;
    std::atomic<bool> needs_whole_row = false;
    for (int k = 0; k < task_.operands; k++) has_buffers |= is_buffered(k) && !task_.is_of_row(k);
    // Fetches the inputs of `read`. Returns what ended the phase, or nothing if the functor ran to its end, and which
    // inputs the phase reads.
    struct Ran {
      std::optional<Share::EndOfPhase> end;
      uint32_t read;
    };
    const auto run = [&](const Buffers& buffers, uint32_t read) -> Ran {
      const auto data = fetch_all(buffers, 1, sums, read);
      const int phase = static_cast<int>(blocks.size()) - 1;
      Share share{buffers.begin, buffers.end, phase, is_last, places_[0].is_direct, blocks.data()};
      SeveralRows one = rows(data, 1);
      one.first.share = &share;
      try {
        call_kernel(one);
      } catch (const Share::EndOfPhase& end) {
        return {end, share.read | share.always};
      } catch (const Share::NeedsWholeRow&) {
        needs_whole_row = true;
      }
      return {{}, share.read | share.always};
    };
    Buffers few = buffers_of(kRowBlock);
    while (!is_last) {
      memory.push_back(allocated(count_of_blocks(task_.size) * kBytesOfBlock));
      blocks.push_back(memory.back().get());
      few.begin = few.end = 0;
      const Ran phase = run(few, 0);
      is_last = !phase.end;
      if (phase.end && phase.end->place >= 0) {
        few.begin = phase.end->place / kRowBlock * kRowBlock;
        few.end = std::min(task_.size, few.begin + kRowBlock);
        run(few, ~uint32_t{0});
        continue;
      }
      (*parallel_for_)(count_of_blocks(task_.size), kGrain, [&](int64_t first, int64_t last) {
        const int64_t step = has_buffers ? kStep : last - first;
        Buffers buffers = buffers_of(std::min(step, last - first) * kRowBlock);
        for (; first < last; first += step) {
          buffers.begin = first * kRowBlock;
          buffers.end = std::min(task_.size, std::min(last, first + step) * kRowBlock);
          run(buffers, phase.read);
          if (is_last) put_all(buffers, 1);
        }
      });
      if (needs_whole_row) return RowsRun(task_, computer_, reads_, row_, row_ + 1, nullptr).compute(sums);
    }
  }
  Buffers buffers_of(int64_t elements) const {
    Buffers buffers{0, 0};
    for (int k = 0; k < task_.operands; k++)
      if (is_buffered(k)) allocate(buffers, k, 1, task_.is_of_row(k) ? 1 : elements);
    return buffers;
  }

  // Returns how many rows the kernel can compute at once: they lie the same distance apart, and buffers are small.
  int64_t together() const {
    const int inner = task_.dims - 1;
    return inner < 0 ? 1 : std::min({most_, end_ - row_, task_.sizes[inner] - digit_[inner]});
  }
  void call_kernel(const SeveralRows& rows) const {
    (is_of_bfloat16_ ? computer_.rows_of_bfloat16 : computer_.rows)(rows);
  }
  SeveralRows rows(const Data& data, int64_t count) {
    return {
        {task_.size, row_ % task_.last_size, data.data(), task_.numbers, scratch, this, added_},
        count,
        task_.last_size - 1,
        pitch_};
  }
  std::byte* memory(int k) const {
    return static_cast<std::byte*>(task_.data[k]) + offset_[k] * task_.bytes[k];
  }
  void* buffer(const Buffers& buffers, int k) const {
    if (task_.is_summed(k)) return buffers_.of[k].get();
    return buffers.of[k].get() - (task_.is_of_row(k) ? 0 : buffers.begin * places_[k].width);
  }
  void* target(const Buffers& buffers, int k, const SumsOf* sums) const {
    if (!places_[k].is_direct) return buffer(buffers, k);
    return task_.is_summed(k) ? sums[k].few.get() + offset_[k] * places_[k].width : memory(k);
  }
  const Mover& of_bytes(int k) const {
    return isa().movers[std::countr_zero(static_cast<uint64_t>(task_.bytes[k]))];
  }

  // Calls move(address in memory, number of elements, address in the buffer, and in `side_by_side`) for each row, or
  // once if rows are adjacent.
  void for_each(const Buffers& buffers, int k, int64_t count, const auto& move) const {
    const Place& x = places_[k];
    const int64_t begin = task_.is_of_row(k) ? 0 : buffers.begin;
    const int64_t elements = task_.is_of_row(k) ? 1 : buffers.end - begin;
    const bool is_one = x.step == 1 && x.next == elements * task_.bytes[k];
    for (int64_t i = 0; i < (is_one ? 1 : count); i++)
      move(
          memory(k) + i * x.next + begin * x.step * task_.bytes[k], is_one ? elements * count : elements,
          buffers.of[k].get() + i * elements * x.width, buffers.side_by_side[k].get());
  }

  // Returns the addresses of the operands for the kernel. Bit k of `read` tells whether elements of the k-th input are
  // read.
  Data fetch_all(const Buffers& buffers, int64_t count, const SumsOf* sums, uint32_t read = ~uint32_t{0}) {
    Data data;
    for (int k = 0; k < task_.operands; k++) {
      const bool is_needed = k >= task_.results && (task_.is_of_row(k) || read >> (k - task_.results) & 1);
      data[k] = is_needed ? fetch(buffers, k, count) : target(buffers, k, sums);
    }
    return data;
  }
  void* fetch(const Buffers& buffers, int k, int64_t count) {
    Place& x = places_[k];
    if (x.is_direct) return memory(k);
    if (x.next == 0) count = 1;
    if (!parallel_for_) {
      if (task_.is_apart && x.fetched == memory(k) && x.fetched_rows == count) return buffer(buffers, k);
      x.fetched = memory(k);
      x.fetched_rows = count;
    }
    for_each(buffers, k, count, [&](const std::byte* from, int64_t n, std::byte* to, std::byte* side_by_side) {
      if (x.step != 1) {
        std::byte* const adjacent = x.is_converted ? side_by_side : to;
        of_bytes(k).gather(from, x.step, n, adjacent);
        from = adjacent;
      }
      if (x.is_mask)
        mover_.widen_bools(from, n, reinterpret_cast<int32_t*>(to));
      else if (x.is_converted)
        mover_.widen[is_float16(k)](from, n, reinterpret_cast<float*>(to));
      else if (from != to)
        std::memcpy(to, from, n * task_.bytes[k]);
    });
    return buffer(buffers, k);
  }

  void put_all(const Buffers& buffers, int64_t count) {
    for (int k = 0; k < task_.results; k++)
      if (is_buffered(k) && !(task_.is_of_row(k) && buffers.begin > 0)) put(buffers, k, count);
  }
  void put(const Buffers& buffers, int k, int64_t count) {
    const Place& x = places_[k];
    for_each(buffers, k, count, [&](std::byte* to, int64_t n, const std::byte* from, std::byte* side_by_side) {
      if (x.is_converted) {
        std::byte* const adjacent = x.step == 1 ? to : side_by_side;
        mover_.narrow[is_float16(k)](reinterpret_cast<const float*>(from), n, adjacent);
        from = adjacent;
      }
      if (x.step != 1)
        of_bytes(k).scatter(from, x.step, n, to);
      else if (from != to)
        std::memcpy(to, from, n * task_.bytes[k]);
    });
  }

  void add(int k, int64_t count, std::byte* sums) const {
    const Place& x = places_[k];
    const bool is_double = x.width == 8;
    for (int64_t i = 0; i < count; i++) {
      const std::byte* const from = buffers_.of[k].get() + i * x.elements * x.width;
      std::byte* const to = sums + (offset_[k] + i * x.next / task_.bytes[k]) * x.width;
      mover_.add[is_double](from, x.elements, x.step, to);
    }
  }
  // Adds the sums of a few rows to those of all, or copies them there if these are the first, of `done` rows.
  void add_few(int k, int64_t done, const SumsOf& sums) const {
    const bool is_double = places_[k].width == 8;
    const std::byte* const few = sums.few.get();
    if (done > task_.rows_at_once(k))
      isa()
          .summer(is_double ? kOrdinal<double> : kOrdinal<float>)
          .add(few, task_.numel[k], 1, sums.all.get(), false, 0);
    else if (is_double)
      std::memcpy(sums.all.get(), few, task_.numel[k] * 8);
    else
      std::copy_n(reinterpret_cast<const float*>(few), task_.numel[k], sums.all.get());
  }

  // Advances by `rows`, at most to the end of the last dimension.
  void advance(int64_t rows) {
    row_ += rows;
    for (int d = task_.dims - 1; d >= 0; d--) {
      digit_[d] += rows;
      const bool is_over = digit_[d] == task_.sizes[d];
      const int64_t steps = is_over ? rows - task_.sizes[d] : rows;
      if (is_over) digit_[d] = 0;
      for (int k = 0; k < task_.operands; k++) offset_[k] += steps * task_.stride[d][k];
      if (!is_over) return;
      rows = 1;
    }
  }

  const rows::Task& task_;
  const Computer& computer_;
  const bool is_of_bfloat16_; // whether the kernel reads and writes bfloat16
  const RowMover& mover_ = *isa().row_mover;
  const ParallelFor* const parallel_for_;
  int64_t row_;
  const int64_t end_;
  int64_t digit_[kMaxDims] = {}, offset_[kMaxOperands] = {};
  Place places_[kMaxOperands];
  Buffers buffers_{0, task_.size};
  const uint32_t reads_;             // bit k: whether elements of the k-th input may be read
  int64_t bytes_of_row_ = 0;         // of a row, in the operands that have buffers, and in these
  uint32_t added_ = 0;               // the results to which the kernel adds: in `sums`, or in a buffer of zeros
  int64_t most_;                     // rows at once
  int64_t pitch_[kMaxOperands] = {}; // from a row of an operand to its next one, for the kernel
  std::vector<Lines> scratch_;       // OneRow::scratch returns this memory
  std::mutex mutex_;                 // guards scratch_ if several threads share a row
};

// Raises an error if the functor reads a place outside of its row. Nothing is written then, unless the place depends on
// elements. Threads share out the rows, or each row if there are a few long ones. Sums over rows are
// computed in parts, whose number depends only on the shapes, and the parts are then added pairwise.
void launch_rows(const contract::Caller& op, const rows::Task& task, const auto& parallel_for) try {
  constexpr int64_t kGrain = 32 * 1024; // elements for which it pays to use another thread
  constexpr int64_t kLongRow = 128 * 1024, kFewRows = 8;
  const Computer computer = isa().computer(task.index)(task.dtype);
  const RowReads reads = computer.reads(UniformRow(std::max<int64_t>(1, task.size), task.numbers));
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, task.size));
  // A row that is written in place is not shared, because a function of elements may read an element of another thread.
  const bool is_shared = task.size >= kLongRow && task.count < kFewRows && task.is_apart;
  const auto run = [&](int64_t begin, int64_t end) {
    return RowsRun(task, computer, reads.inputs, begin, end, is_shared ? &parallel_for : nullptr);
  };
  const DefaultFloatEnvironment environment; // of this thread, which also adds up sums
  const auto for_rows = [&](int64_t end, int64_t rows_of_one, const auto& body) {
    if (end * rows_of_one <= grain || is_shared)
      body(0, end);
    else
      parallel_for(end, std::max<int64_t>(1, grain / rows_of_one), body);
  };
  if (!reads.no_place) run(0, task.count).check_places();
  if (!task.summed)
    return for_rows(task.count, 1, [&](int64_t begin, int64_t end) { run(begin, end).compute(nullptr); });
  const int64_t parts = task.parts();
  std::vector<SumsOf> sums(parts * task.results);
  for_rows(parts, (task.count + parts - 1) / parts, [&](int64_t from, int64_t to) {
    for (int64_t part = from; part < to; part++) {
      SumsOf* const own = &sums[part * task.results];
      for (int k = 0; k < task.results; k++)
        if (task.is_summed(k)) {
          const int64_t bytes = task.numel[k] * (task.dtypes[k] == kOrdinal<double> ? 8 : 4);
          own[k].few = Lines(bytes);
          std::memset(own[k].few.get(), 0, bytes);
          own[k].all.reset(new double[task.numel[k]]);
        }
      run(task.count * part / parts, task.count * (part + 1) / parts).compute(own);
      for (int k = 0; k < task.results; k++) own[k].few = {};
    }
  });
  for (int k = 0; k < task.results; k++) {
    if (!task.is_summed(k)) continue;
    const auto total = [&](int64_t part) { return sums[part * task.results + k].all.get(); };
    for (int64_t width = 1; width < parts; width *= 2) // pairwise
      for (int64_t part = 0; part + width < parts; part += 2 * width)
        isa().row_mover->add[true](total(part + width), task.numel[k], 1, total(part));
    isa().summer(task.dtypes[k]).round(total(0), task.numel[k], 1, task.data[k]);
  }
} catch (const RowError& found) {
  if (found.mistake) contract::fail(op, found.mistake);
  contract::fail(
      op, "a place that is read lies outside of its row, which has ", task.size, " elements, got ", found.place);
}

} // namespace elementwise::cpu
