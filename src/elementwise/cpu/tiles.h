// Decides, once for each call, which operands are moved into buffers, and into what tiles the call is cut.
//
// Example: a + b.t() with 1000 x 600 floats. Dimension 0 has 600 columns and dimension 1 has 1000 rows; b has the
// strides {1000, 1}, so its rows run across those of the result. Its elements are packed, and a tile has 128 columns
// and 32 rows:
//
//             0       128      256      384      512   600
//   rows   0  +--------+--------+--------+--------+-----+      count[0] = 5 tiles side by side,
//             | tile 0 | tile 1 | tile 2 | tile 3 |  4  |      count[1] = 32 below each other
//         32  +--------+--------+--------+--------+-----+
//             | tile 5 |  ...                           |
#pragma once

#include <algorithm>

#include "work.h"

namespace elementwise::cpu {

// How operands whose rows are not adjacent elements are moved.
enum class Moves {
  nothing, // there are no such operands
  pieces,  // row by row, a piece of a row at a time
  tiles,   // all rows of a tile at once, because an input runs across the rows, or because rows are short
};

// The two innermost dimensions are cut into tiles, which are distributed to the threads. The sizes were found by
// measuring.
struct Tiles {
  static constexpr int64_t kElements = 4096;     // the most elements of a tile
  static constexpr int64_t kBytes = 32 * 1024;   // the most bytes of one operand in a tile that is packed
  static constexpr int64_t kRowsBytes = 4096;    // the same, if the rows of the tile are computed one by one
  static constexpr int64_t kAcross = 32;         // rows of a tile, if an input runs across them
  static constexpr int64_t kShort = 256;         // of rows with fewer elements, one call computes several
  static constexpr int64_t kNarrow = 16;         // shorter rows are packed one after another, if any operand is moved
  static constexpr int64_t kRagged = 128;        // the same for long functors, unless rows are whole vectors
  static constexpr int64_t kWhole = 32;          // rows whose length is a multiple of this are whole vectors
  static constexpr int64_t kPiece = 512;         // elements of a piece of a row
  static constexpr int64_t kStreamedPiece = 128; // the same, if results are written past the cache
  static constexpr int64_t kStreamedRow = 64;    // results of rows with fewer elements are not written past the cache

  // Elements before the first whole cache line.
  static int64_t before_line(const void* at, int64_t element_bytes) {
    return -reinterpret_cast<uintptr_t>(at) % kLine / element_bytes;
  }

  Tiles(const Plan& plan, const Computer& computer, void* const* data) {
    for (int d = 0; d < 2; d++) {
      size[d] = d < plan.dims ? plan.size[d] : 1;
      // A result without an address has the strides 0, and so is computed into a buffer.
      for (int k = 0; k < plan.operands; k++) stride[k][d] = d < plan.dims ? plan.stride[d][k] : data[k] ? 1 - d : 0;
    }
    bool across = false, any_moved = false;
    int64_t widest = 1;
    for (int k = 0; k < plan.operands; k++) {
      moved[k] = stride[k][0] != 1;
      any_moved |= moved[k];
      across |= size[1] > 1 && runs_across(stride[k]);
      widest = std::max<int64_t>(widest, computer.bytes[k]);
      bytes += computer.bytes[k] * plan.numel();
    }
    const bool packs = !computer.short_rows || size[0] < computer.shortest;
    const bool several = (any_moved || packs) && size[1] > 1;
    const bool few_columns = several && size[0] <= kPiece / 2;
    const bool narrow = few_columns && (packs ? size[0] < kRagged && size[0] % kWhole != 0 : size[0] < kNarrow);
    for (int k = 0; k < plan.operands && narrow; k++) moved[k] |= stride[k][1] != size[0];
    moves = across || few_columns ? Moves::tiles : any_moved ? Moves::pieces : Moves::nothing;
    int64_t elements = kElements;
    if (moves == Moves::tiles) elements = std::min(elements, (across || narrow ? kBytes : kRowsBytes) / widest);
    // An input that runs across the rows is read along its own rows, as many elements as a tile has rows. With kAcross
    // rows these are whole cache lines, and each is fetched once.
    extent[0] = std::min(size[0], across ? elements / std::min(size[1], kAcross) : elements);
    extent[1] = std::min(size[1], elements / extent[0]);
    for (int d = 0; d < 2; d++) count[d] = (size[d] + extent[d] - 1) / extent[d];
    total = count[0] * count[1];
    for (int d = 2; d < plan.dims; d++) total *= plan.size[d];
    apart = moves == Moves::tiles || size[0] < kShort;
  }

  // Whether results can be written past the cache. A result that is also an input is in the cache already.
  bool can_stream(const Computer& computer, void* const* data, int operands) const {
    bool can = size[0] >= kStreamedRow;
    for (int k = 0; k < computer.results; k++) {
      if (!data[k]) continue;
      can &= !moved[k] && reinterpret_cast<uintptr_t>(data[k]) % computer.bytes[k] == 0;
      can &= std::find(data + computer.results, data + operands, data[k]) == data + operands;
    }
    return can;
  }

  Moves moves;
  bool moved[kMaxOperands];
  int64_t size[2];
  int64_t stride[kMaxOperands][2];
  int64_t extent[2];
  int64_t count[2];
  int64_t total;
  int64_t bytes = 0; // the size of all operands
  bool apart;        // tiles must not be merged, because the elements of one have to stay in the cache
};

// A part of the two innermost dimensions: its sizes, and where it begins in each operand.
struct Box {
  int64_t n[2];
  int64_t offset[kMaxOperands];
};

// Walks over the tiles from `begin` to `end`. A tile's number is read like an odometer, whose digits are the tile's
// place in the two inner dimensions and its index in each outer one. Neighbouring tiles become one box, unless `apart`
// is set.
class Walk {
 public:
  Walk(const Plan& plan, const Tiles& tiles, int64_t begin, int64_t end)
      : plan_(plan), tiles_(tiles), along_(tiles.count[0] == 1), left_(end - begin) {
    for (int d = 0; d < digits(); d++) {
      digit_[d] = begin % base(d);
      begin /= base(d);
    }
  }

  bool next(Box& box) {
    if (left_ <= 0) return false;
    const int64_t step = tiles_.apart ? 1 : std::min(left_, tiles_.count[along_] - digit_[along_]);
    int64_t first[2];
    for (int d = 0; d < 2; d++) {
      first[d] = digit_[d] * tiles_.extent[d];
      box.n[d] = std::min((d == along_ ? step : 1) * tiles_.extent[d], tiles_.size[d] - first[d]);
    }
    for (int k = 0; k < plan_.operands; k++) {
      box.offset[k] = first[0] * tiles_.stride[k][0] + first[1] * tiles_.stride[k][1];
      for (int d = 2; d < plan_.dims; d++) box.offset[k] += digit_[d] * plan_.stride[d][k];
    }
    left_ -= step;
    digit_[along_] += step - 1;
    for (int d = 0; d < digits() && ++digit_[d] == base(d); d++) digit_[d] = 0;
    return true;
  }

 private:
  int digits() const {
    return std::max(plan_.dims, 2);
  }
  int64_t base(int d) const {
    return d < 2 ? tiles_.count[d] : plan_.size[d];
  }

  const Plan& plan_;
  const Tiles& tiles_;
  const int along_; // the dimension along which neighbouring tiles are merged
  int64_t left_;
  int64_t digit_[kMaxDims] = {};
};

} // namespace elementwise::cpu
