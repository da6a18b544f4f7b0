// Runs a task with results that are summed, such as the gradient of a tensor that was broadcast. In the plan such a
// result has a stride of 0 along the dimensions that it is summed over. The pass that computes its elements also adds
// them up.
//
// The call is cut into parts. Each part adds the elements that it computes to sums of its own, and then the sums of the
// parts are added, in the order of the parts. Parts and order depend only on the sizes, even those of gradients that
// nobody asks for. So the bits are the same for any number of threads, for every instruction set, and whichever
// of the gradients a call writes. Sums are doubles, and are rounded at the end.
//
// Example: the gradient of a bias with 64 elements, in a call of 1000 x 64. Dimension 0 has 64 columns, and the
// gradient has stride 1 there; dimension 1 has 1000 rows, and the gradient has stride 0. There are two parts of 500
// rows:
//
//                  columns 0 .. 63
//   rows   0..499  |    part 0   |  ->  64 sums  --.
//   rows 500..999  |    part 1   |  ->  64 sums  --+-> added, rounded, written to the 64 elements of the gradient
#pragma once

#include <algorithm>

#include "launch.h"

namespace elementwise::cpu {

class Sums {
 public:
  Sums(const Task& task, uint32_t summed)
      : task_(task),
        computer_(isa().computer(task.index)(task.dtype)),
        summer_(isa().summer(task.dtype)),
        summed_(summed),
        plan_(task.plan) {
    for (; plan_.dims < 2; plan_.dims++) {
      plan_.size[plan_.dims] = 1;
      std::fill_n(plan_.stride[plan_.dims], plan_.operands, 0);
    }
    cut();
    for (int k = 0; k < computer_.results; k++) {
      if (!adds(k)) continue;
      int64_t count = 1;
      for (int d = 0; d < plan_.dims; d++) {
        pitch_[k][d] = plan_.stride[d][k] ? count : 0;
        if (plan_.stride[d][k]) count *= extent_[d];
      }
      begin_[k] = sums_of_part_;
      sums_of_part_ += count_[k] = count;
    }
  }

  // The memory for the sums of all parts.
  int64_t bytes() const {
    return sums_of_part_ * parts_ * sizeof(double);
  }

  void operator()(void* memory, const auto& parallel_for) {
    memory_ = static_cast<double*>(memory);
    parallel_for(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; part++) compute(part);
    });
    for (int k = 0; k < computer_.results; k++) {
      if (!adds(k)) continue;
      int64_t boxes = 1; // groups of parts that add to the same elements
      for (int d = 0; d < plan_.dims; d++) boxes *= plan_.stride[d][k] ? parts_along_[d] : 1;
      const int64_t grain = std::max<int64_t>(1, kElements * boxes / (parts_ * count_[k]));
      parallel_for(boxes, grain, [&](int64_t begin, int64_t end) {
        for (int64_t box = begin; box < end; box++) finish(k, box);
      });
    }
  }

 private:
  static constexpr int64_t kElements = 32 * 1024; // elements of a part
  static constexpr int64_t kSums = 512;           // sums of a part, unless it would have too few elements
  static constexpr int64_t kTogether = 4096; // elements that are computed and then added while they are in the cache

  bool is_summed(int result) const {
    return summed_ >> result & 1;
  }
  bool adds(int result) const { // a result without an address is not computed
    return is_summed(result) && task_.data[result];
  }

  // Chooses the size of a part along each dimension (extent_). Parts extend along inner dimensions first, because the
  // processor reads ahead in the order of memory, and along summed dimensions, so that a part has few sums.
  void cut() {
    bool is_summed_along[kMaxDims] = {};
    for (int d = 0; d < plan_.dims; d++)
      for (int k = 0; k < computer_.results; k++) is_summed_along[d] |= is_summed(k) && plan_.stride[d][k] == 0;
    std::fill_n(extent_, plan_.dims, 1);
    int64_t left = kElements;
    const auto extend = [&](int d, int64_t most) {
      int64_t to = std::min(plan_.size[d], extent_[d] * std::min(left, most));
      const int64_t n = (plan_.size[d] + to - 1) / to;
      to = (plan_.size[d] + n - 1) / n; // parts of nearly the same size
      left = left * extent_[d] / to;
      extent_[d] = to;
    };
    int64_t sums = 1;
    for (int d = 0; d < plan_.dims; d++) {
      extend(d, is_summed_along[d] ? kTogether : std::max<int64_t>(1, kSums / sums));
      if (!is_summed_along[d]) sums *= extent_[d];
    }
    for (int d = 0; d < plan_.dims; d++) extend(d, left);
    for (int d = 0; d < plan_.dims; d++) parts_ *= parts_along_[d] = (plan_.size[d] + extent_[d] - 1) / extent_[d];
  }

  double* sums(int k, int64_t part) const {
    return memory_ + part * sums_of_part_ + begin_[k];
  }

  // Computes a part, at most kTogether elements of its two inner dimensions at a time.
  void compute(int64_t part) const {
    int64_t first[kMaxDims], n[kMaxDims], at[kMaxDims] = {};
    for (int64_t d = 0, rest = part; d < plan_.dims; rest /= parts_along_[d++]) {
      first[d] = rest % parts_along_[d] * extent_[d];
      n[d] = std::min(extent_[d], plan_.size[d] - first[d]);
    }
    std::fill_n(memory_ + part * sums_of_part_, sums_of_part_, 0.0);
    const int64_t columns = std::min(n[0], kTogether), rows = kTogether / columns;
    do {
      for (at[1] = 0; at[1] < n[1]; at[1] += rows)
        for (at[0] = 0; at[0] < n[0]; at[0] += columns)
          together(part, first, at, std::min(columns, n[0] - at[0]), std::min(rows, n[1] - at[1]));
    } while (advance(at, 2, n));
  }

  // Moves `at` to the next place in the dimensions from `first` on; false if there is none.
  bool advance(int64_t* at, int first, const int64_t* n) const {
    int d = first;
    while (d < plan_.dims && ++at[d] == n[d]) at[d++] = 0;
    return d < plan_.dims;
  }

  // Computes rows x columns elements into a buffer, and adds those of the summed results to the sums of the part.
  void together(int64_t part, const int64_t* first, const int64_t* at, int64_t columns, int64_t rows) const {
    // A summed result is computed into the memory for its packed elements, and so is not packed itself.
    static_assert(kTogether * sizeof(double) <= Tiles::kBytes);
    Packed* const computed = packed_operands();
    Plan plan;
    plan.operands = plan_.operands;
    plan.dims = 2;
    plan.size[0] = columns;
    plan.size[1] = rows;
    void* data[kMaxOperands];
    for (int k = 0; k < plan_.operands; k++) {
      const bool is_added = k < computer_.results && adds(k);
      const bool is_elsewhere = is_added || !task_.data[k];
      int64_t offset = 0;
      for (int d = 0; d < plan_.dims && !is_elsewhere; d++) offset += (first[d] + at[d]) * plan_.stride[d][k];
      data[k] = is_added ? computed[k].elements : static_cast<std::byte*>(task_.data[k]) + offset * computer_.bytes[k];
      for (int d = 0; d < 2; d++)
        plan.stride[d][k] = is_added ? (d ? columns : 1) : is_elsewhere ? 0 : plan_.stride[d][k];
    }
    const Task task{task_.index, task_.dtype, task_.numbers, plan, data};
    const Tiles tiles(plan, computer_, data);
    Run(task, computer_, tiles, false)(0, tiles.total);
    for (int k = 0; k < computer_.results; k++) {
      if (!adds(k)) continue;
      int64_t offset = 0;
      for (int d = 0; d < plan_.dims; d++) offset += at[d] * pitch_[k][d];
      summer_.add(computed[k].elements, columns, rows, sums(k, part) + offset, pitch_[k][0] == 0, pitch_[k][1]);
    }
  }

  // Adds the sums of all parts that contribute to the same elements of result k, and writes these elements.
  void finish(int k, int64_t box) const {
    // `part` is the first of these parts, `step` the distance between parts that are neighbours along a dimension, and
    // `offset` is where the elements begin.
    int64_t part = 0, step[kMaxDims], parts[kMaxDims], n[kMaxDims], at[kMaxDims] = {}, offset = 0;
    for (int64_t d = 0, stride = 1; d < plan_.dims; stride *= parts_along_[d++]) {
      step[d] = stride;
      parts[d] = plan_.stride[d][k] ? 1 : parts_along_[d];
      n[d] = 1;
      if (!plan_.stride[d][k]) continue;
      const int64_t place = box % parts_along_[d];
      box /= parts_along_[d];
      part += place * stride;
      n[d] = std::min(extent_[d], plan_.size[d] - place * extent_[d]);
      offset += place * extent_[d] * plan_.stride[d][k];
    }
    // The other parts differ from the first one only along summed dimensions.
    double* const total = sums(k, part);
    while (advance(at, 0, parts)) {
      int64_t other = part;
      for (int d = 0; d < plan_.dims; d++) other += at[d] * step[d];
      isa().row_mover->add[true](sums(k, other), count_[k], 1, total);
    }
    do {
      int64_t from = 0, to = offset;
      for (int d = 1; d < plan_.dims; d++) {
        from += at[d] * pitch_[k][d];
        to += at[d] * plan_.stride[d][k];
      }
      summer_.round(
          total + from, n[0], plan_.stride[0][k], static_cast<std::byte*>(task_.data[k]) + to * computer_.bytes[k]);
    } while (advance(at, 1, n));
  }

  const Task& task_;
  const Computer computer_;
  const Summer& summer_;
  const uint32_t summed_;                                        // bit k: result k is summed
  Plan plan_;                                                    // with at least two dimensions
  int64_t extent_[kMaxDims], parts_along_[kMaxDims], parts_ = 1; // elements of a part, and parts, along each dimension
  int64_t pitch_[kMaxInputs][kMaxDims]; // distance between neighbouring sums of a part, for each result and dimension
  int64_t count_[kMaxInputs], begin_[kMaxInputs], sums_of_part_ = 0; // a part's sums of each result, and of all
  double* memory_ = nullptr;
};

} // namespace elementwise::cpu
