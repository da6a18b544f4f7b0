// What a CPU kernel is, seen from the outside. The body is in kernels.cpp, compiled once for each
// instruction set into a namespace of its own; `Tiles` cuts the work and `backend.cpp` hands it out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../elementwise.h"
#include "../strided.h"

namespace muladd_nb::cpu {

// The two innermost dimensions are cut into tiles, which the threads share out.
struct Tiles {
  static constexpr int64_t kAdjacent = 16 * 1024; // elements of a tile that is read and written directly
  static constexpr int64_t kGathered = 1024;      // of one that goes through buffers in the first-level cache
  static constexpr int64_t kTransposed = 32;      // rows of one with an input that runs along the other dimension
  static constexpr int64_t kNarrow = 16;          // rows shorter than this are packed, through the buffers too

  explicit Tiles(const Plan& plan) {
    size[0] = plan.dims > 0 ? plan.size[0] : 1;
    size[1] = plan.dims > 1 ? plan.size[1] : 1;
    bool gathered = size[0] < kNarrow, transposed = false;
    for (int operand = 0; operand < kOperands && plan.dims > 0; operand++) {
      const int64_t inner = plan.stride[operand][0], outer = plan.dims > 1 ? plan.stride[operand][1] : 0;
      gathered |= inner != 1;
      transposed |= outer != 0 && outer < inner;
    }
    const int64_t most = gathered ? kGathered : kAdjacent;
    // A transposed input is read as many elements at a time in its own direction as there are rows, so that
    // each of its cache lines is fetched once.
    extent[0] = std::min(size[0], transposed ? most / std::min(size[1], kTransposed) : most);
    extent[1] = std::min(size[1], most / extent[0]);
    count[0] = (size[0] + extent[0] - 1) / extent[0];
    count[1] = (size[1] + extent[1] - 1) / extent[1];
    total = count[0] * count[1];
    for (int d = 2; d < plan.dims; d++) total *= plan.size[d];
  }

  int64_t size[2];
  int64_t extent[2];
  int64_t count[2];
  int64_t total;
};

struct Work {
  Function function;
  double c;
  Dtype dtype;
  const Plan& plan;
  const Tiles& tiles;
  void* out;
  const void* a;
  const void* b;
  bool stream; // write past the cache
};

// Computes the tiles from begin to end.
using Kernel = void (*)(const Work& work, int64_t begin, int64_t end);

namespace avx512 {
void kernel(const Work&, int64_t begin, int64_t end);
}
namespace avx2 {
void kernel(const Work&, int64_t begin, int64_t end);
}
namespace baseline {
void kernel(const Work&, int64_t begin, int64_t end);
}

} // namespace muladd_nb::cpu
