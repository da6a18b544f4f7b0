// Decides whether two strided tensors share an element, and whether one tensor has the same element at two indices.
// Comparing address ranges is not enough: x[::2] and x[1::2] interleave and share nothing.
//
// Both questions ask whether sum(stride[i] * k[i]) == target has a solution with 0 <= k[i] < size[i]. The search begins
// with the largest stride, so that for ordinary views only a few values of each k can still reach the target. If it
// takes too long, the answer is yes. NumPy's `np.shares_memory` uses the same method
// (numpy/_core/src/common/mem_overlap.c).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace elementwise {

// The most steps of one search: about a millisecond.
constexpr int64_t kOverlapBudget = 100'000;

class StrideSum {
 public:
  void add(int64_t stride, int64_t size) {
    if (size <= 1 || stride == 0) return;
    reach_.clear();
    // Terms with the same stride are merged, or the search would try every way to split their sum.
    for (Term& term : terms_) {
      if (term.stride == stride) {
        term.most += size - 1;
        return;
      }
    }
    terms_.push_back({stride, size - 1});
  }

  // Whether the sum can be `target`. Each step reduces the budget; when it is used up, the answer is yes.
  bool reaches(int64_t target, int64_t& budget) {
    if (reach_.empty()) prepare();
    return search(0, target, budget);
  }

 private:
  struct Term {
    int64_t stride;
    int64_t most;
  };

  void prepare() {
    std::sort(terms_.begin(), terms_.end(), [](auto& x, auto& y) { return x.stride > y.stride; });
    reach_.assign(terms_.size() + 1, 0);
    gcd_.assign(terms_.size() + 1, 0);
    for (size_t i = terms_.size(); i-- > 0;) {
      reach_[i] = reach_[i + 1] + terms_[i].stride * terms_[i].most;
      gcd_[i] = std::gcd(gcd_[i + 1], terms_[i].stride);
    }
  }

  bool search(size_t i, int64_t target, int64_t& budget) {
    if (target < 0 || target > reach_[i]) return false;
    if (target == 0) return true;
    if (target % gcd_[i] != 0) return false;
    const auto [stride, most] = terms_[i];
    for (int64_t k = std::min(most, target / stride); k >= 0; k--) {
      if (--budget < 0) return true;
      if (target - stride * k > reach_[i + 1]) return false; // a smaller k would leave even more
      if (search(i + 1, target - stride * k, budget)) return true;
    }
    return false;
  }

  std::vector<Term> terms_;
  std::vector<int64_t> reach_, gcd_; // the largest sum, and the gcd of the strides, of the terms from i on
};

// Whether a tensor with these sizes and strides has the same element at two indices.
inline bool overlaps_itself(int64_t dim, const int64_t* sizes, const int64_t* strides) {
  struct Dim {
    int64_t stride, size;
  };
  std::vector<Dim> dims;
  for (int64_t d = 0; d < dim; d++) {
    if (sizes[d] == 0) return false;
    if (sizes[d] > 1) dims.push_back({strides[d], sizes[d]});
  }
  std::sort(dims.begin(), dims.end(), [](auto& x, auto& y) { return x.stride < y.stride; });
  int64_t extent = 1; // the extent of the tensor with only the dimensions so far
  int64_t budget = kOverlapBudget;
  for (size_t i = 0; i < dims.size(); i++) {
    const auto [stride, size] = dims[i];
    if (stride == 0) return true;
    if (stride < extent) {
      // Two indices that differ by `step` here are the same element if the inner dimensions can make up for it: with
      // index differences from -(size - 1) to size - 1 each.
      StrideSum inner;
      int64_t middle = 0;
      for (size_t j = 0; j < i; j++) {
        inner.add(dims[j].stride, 2 * dims[j].size - 1);
        middle += dims[j].stride * (dims[j].size - 1);
      }
      for (int64_t step = 1; step < size && step * stride <= middle; step++)
        if (--budget < 0 || inner.reaches(middle + step * stride, budget)) return true;
    }
    extent += stride * (size - 1);
  }
  return false;
}

// The layout of a tensor. Strides count elements, each of which has so many `units`, such as bytes.
struct Strided {
  int64_t dim;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t units;
};

// Whether two tensors x and y share a unit. y begins `distance` units after x.
inline bool overlaps(const Strided& x, const Strided& y, int64_t distance) {
  // We look for indices i, j with x + sum(xs * i) == y + sum(ys * j). Counting j from its last index makes it one sum.
  StrideSum sum;
  sum.add(1, x.units);
  sum.add(1, y.units);
  for (int64_t d = 0; d < x.dim; d++) {
    if (x.sizes[d] == 0) return false;
    sum.add(x.strides[d] * x.units, x.sizes[d]);
  }
  int64_t y_extent = y.units - 1;
  for (int64_t d = 0; d < y.dim; d++) {
    if (y.sizes[d] == 0) return false;
    sum.add(y.strides[d] * y.units, y.sizes[d]);
    y_extent += y.strides[d] * y.units * (y.sizes[d] - 1);
  }
  int64_t budget = kOverlapBudget;
  return sum.reaches(distance + y_extent, budget);
}

} // namespace elementwise
