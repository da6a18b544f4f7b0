// Runs a task on the CPU, tile by tile. Rows of adjacent elements are computed in place; other rows are gathered into a
// buffer first, and results are scattered from one. A result without an address, a gradient that nobody asks for, is
// computed into a buffer and left there. torch and ExecuTorch pass different thread pools.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>

#include "machine.h"
#include "tiles.h"

namespace elementwise::cpu {

// The buffer for the packed elements of one operand. A cache line lies between two operands, so that they do not
// compete for the same sets of the cache.
struct Packed {
  alignas(kLine) std::byte elements[Tiles::kBytes];
  std::byte between[kLine];
};

// Memory that begins with a cache line. If it did not, half of the vectors would lie in two lines.
class Lines {
 public:
  Lines() = default;
  // Aligned by hand: glibc's aligned allocation made calls of one long row slower by up to 30 %, through page faults.
  explicit Lines(int64_t bytes) : memory_(new std::byte[bytes + kLine]) {}
  std::byte* get() const { // null without memory
    return memory_.get() + Tiles::before_line(memory_.get(), 1);
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// Returns the calling thread's memory for all operands. It is not on the stack, because a thread may have too little.
inline Packed* packed_operands() {
  static thread_local const Lines memory(kMaxOperands * sizeof(Packed));
  return reinterpret_cast<Packed*>(memory.get());
}

// The part of a call that one thread computes.
class Run {
 public:
  Run(const Task& task, const Computer& computer, const Tiles& tiles, bool stream)
      : task_(task), computer_(computer), tiles_(tiles), stream_(stream), operands_(task.plan.operands) {
    for (int k = 0; k < operands_; k++)
      mover_[k] = &isa().movers[std::countr_zero(static_cast<unsigned>(computer.bytes[k]))];
  }

  // Computes the tiles from `begin` to `end`.
  void operator()(int64_t begin, int64_t end) {
    Walk walk(task_.plan, tiles_, begin, end);
    for (Box box; walk.next(box);) {
      void* at[kMaxOperands];
      for (int k = 0; k < operands_; k++) at[k] = beyond(task_.data[k], k, box.offset[k]);
      if (tiles_.moves == Moves::pieces) {
        int64_t step[kMaxOperands];
        for (int k = 0; k < operands_; k++) step[k] = tiles_.stride[k][0];
        for (int64_t j = 0; j < box.n[1]; j++) {
          row_in_pieces(box.n[0], at, step);
          for (int k = 0; k < operands_; k++) at[k] = beyond(at[k], k, tiles_.stride[k][1]);
        }
      } else {
        tile(box.n, at);
      }
    }
#ifdef __SSE2__
    if (stream_) _mm_sfence(); // makes streamed lines visible to other threads
#endif
  }

 private:
  // Computes a tile at once: packs the moved inputs as a whole, and then scatters the moved results.
  void tile(const int64_t n[2], void* const* at) {
    Rows rows{n[1], n[0], {}, {}};
    bool one_row = tiles_.moves == Moves::tiles;
    for (int k = 0; k < operands_; k++) {
      rows.data[k] = at[k];
      rows.pitch[k] = tiles_.stride[k][1];
      if (tiles_.moved[k] && (at[k] || !stream_)) {
        rows.data[k] = packed_[k].elements;
        rows.pitch[k] = n[0];
        if (k >= computer_.results) mover_[k]->gather_box(at[k], tiles_.stride[k], n, rows.data[k]);
      }
      one_row &= rows.pitch[k] == n[0] || !rows.data[k];
    }
    void* data[kMaxOperands];
    if (one_row) {
      std::copy_n(rows.data, operands_, data);
      row(n[0] * n[1], data);
    } else if (computer_.short_rows && n[0] >= computer_.shortest && n[0] < Tiles::kShort && n[1] > 1 && !stream_) {
      computer_.short_rows(rows, task_.numbers);
    } else {
      for (int64_t j = 0; j < n[1]; j++) {
        for (int k = 0; k < operands_; k++) data[k] = beyond(rows.data[k], k, j * rows.pitch[k]);
        row(n[0], data);
      }
    }
    for (int k = 0; k < computer_.results; k++)
      if (tiles_.moved[k] && at[k]) mover_[k]->scatter_box(rows.data[k], tiles_.stride[k], n, at[k]);
  }

  // Computes n adjacent elements.
  void row(int64_t n, void* const* data) {
    if (!stream_) return computer_.row(n, data, task_.numbers);
    int64_t step[kMaxOperands];
    for (int k = 0; k < operands_; k++) step[k] = data[k] ? 1 : 0;
    row_in_pieces(n, data, step);
  }

  // Computes a row piece by piece. Pieces are short, so that moved elements are still in the nearest cache when they
  // are computed. If results are written past the cache, every piece but the first begins with a cache line.
  void row_in_pieces(int64_t left, void* const* begin, const int64_t* step) {
    const int64_t most = stream_ ? Tiles::kStreamedPiece : Tiles::kPiece;
    int first = 0; // the first result that is written
    while (!begin[first]) first++;
    const int64_t before = stream_ ? Tiles::before_line(begin[first], computer_.bytes[first]) : 0;
    void* at[kMaxOperands];
    void* data[kMaxOperands];
    Mover::Row move[kMaxOperands]; // null if the operand is not moved, or is the same for all pieces
    for (int k = 0; k < operands_; k++) {
      const Mover& mover = *mover_[k];
      const bool is_result = k < computer_.results, moves = step[k] != 1 || (is_result && stream_);
      at[k] = begin[k];
      data[k] = moves ? packed_[k].elements : at[k];
      move[k] = !moves || !at[k] ? nullptr
                : is_result      ? (stream_ ? mover.stream : mover.scatter)
                : step[k] == 0   ? nullptr // repeated once, below
                                 : mover.gather;
      if (step[k] == 0 && at[k]) mover.gather(at[k], 0, std::min(left, most), data[k]);
    }
    for (int64_t n = std::min(left, before > 0 ? before : most); n > 0; n = std::min(left, most)) {
      for (int k = computer_.results; k < operands_; k++)
        if (move[k]) move[k](at[k], step[k], n, data[k]);
      computer_.row(n, data, task_.numbers);
      for (int k = 0; k < computer_.results; k++)
        if (move[k]) move[k](data[k], step[k], n, at[k]);
      for (int k = 0; k < operands_; k++) {
        at[k] = beyond(at[k], k, n * step[k]);
        if (step[k] == 1 && !move[k]) data[k] = at[k];
      }
      left -= n;
    }
  }

  // Returns the address of the operand's element that is `elements` after the one at `at`.
  void* beyond(void* at, int operand, int64_t elements) const {
    return static_cast<std::byte*>(at) + elements * computer_.bytes[operand];
  }

  const Task& task_;
  const Computer& computer_;
  const Tiles& tiles_;
  const bool stream_;
  const int operands_;
  const Mover* mover_[kMaxOperands];
  Packed* const packed_ = packed_operands();
};

// Calls run(caught), where caught(first, last) does what body(first, last) does in a thread of a pool, in the default
// floating-point environment. If that throws, the thread goes on, and in_pool throws the exception later: a pool would
// end the process, or lose the exception. (GCC 12's std::exception_ptr would need symbols of a new libstdc++.)
void in_pool(const auto& body, const auto& run) {
  std::atomic<bool> lacks_memory = false, has_error = false;
  std::atomic<int64_t> place = 0;
  std::atomic<const char*> mistake = nullptr;
  run([&](int64_t first, int64_t last) {
    const DefaultFloatEnvironment environment;
    try {
      body(first, last);
    } catch (const std::bad_alloc&) {
      lacks_memory = true;
    } catch (const RowError& found) {
      place = found.place;
      mistake = found.mistake;
      has_error = true;
    }
  });
  if (lacks_memory) throw std::bad_alloc();
  if (has_error) throw RowError{place, mistake};
}

// parallel_for(end, grain, body) splits [0, end) into parts of at least `grain`, and calls body(first, last) for each,
// as in_pool does.
void launch(const Task& task, const auto& parallel_for) {
  // For fewer elements, a second thread costs more than it saves (measured).
  constexpr int64_t kGrain = 32 * 1024;
  const DefaultFloatEnvironment environment;
  const Computer computer = isa().computer(task.index)(task.dtype);
  const int64_t numel = task.plan.numel();
  void* const* const end = task.data + computer.results;
  const bool writes_all = std::find(task.data, end, nullptr) == end;
  // Planning tiles would take as long as computing.
  if (numel <= kGrain && writes_all && task.plan.contiguous(task.data))
    return computer.row(numel, task.data, task.numbers);
  const Tiles tiles(task.plan, computer, task.data);
  const bool stream = tiles.bytes > last_level_cache() && tiles.can_stream(computer, task.data, task.plan.operands);
  const auto part = [&](int64_t begin, int64_t end) { Run(task, computer, tiles, stream)(begin, end); };
  if (numel <= kGrain) return part(0, tiles.total);
  const int64_t elements_per_tile = std::max<int64_t>(1, numel / tiles.total);
  parallel_for(tiles.total, kGrain / elements_per_tile, part);
}

} // namespace elementwise::cpu
