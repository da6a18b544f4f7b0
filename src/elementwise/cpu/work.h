// What a CPU kernel is, seen from the outside. Their bodies are in kernels.h, compiled once for each instruction
// set; `Tiles` cuts the work and launch.h hands it out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../task.h"

namespace elementwise::cpu {

// The two innermost dimensions are cut into tiles, which the threads share out.
struct Tiles {
  static constexpr int64_t kElements = 4096; // of a tile
  static constexpr int64_t kAcross = 32;     // rows of one with an input that runs across it
  static constexpr int64_t kShort = 32;      // rows shorter than this are computed together
  static constexpr int64_t kNarrow = 16;     // and those of what is not adjacent either are packed

  // Whether the elements of neighbouring rows are nearer to each other than those of one: a transposed input.
  static bool runs_across(const int64_t stride[2]) {
    return stride[1] != 0 && stride[1] < stride[0];
  }

  explicit Tiles(const Plan& plan) {
    size[0] = plan.dims > 0 ? plan.size[0] : 1;
    size[1] = plan.dims > 1 ? plan.size[1] : 1;
    bool across = false;
    for (int k = 0; k < plan.operands && plan.dims > 1; k++) {
      const int64_t stride[] = {plan.stride[0][k], plan.stride[1][k]};
      across |= runs_across(stride);
    }
    apart = across || size[0] < kShort;
    // A transposed input is read as many elements at a time in its own direction as there are rows, so that
    // each of its cache lines is fetched once.
    extent[0] = std::min(size[0], across ? kElements / std::min(size[1], kAcross) : kElements);
    extent[1] = std::min(size[1], kElements / extent[0]);
    count[0] = (size[0] + extent[0] - 1) / extent[0];
    count[1] = (size[1] + extent[1] - 1) / extent[1];
    total = count[0] * count[1];
    for (int d = 2; d < plan.dims; d++) total *= plan.size[d];
  }

  int64_t size[2];
  int64_t extent[2];
  int64_t count[2];
  int64_t total;
  bool apart; // each is computed by itself, for its lines are to stay in the cache
};

struct Work {
  const Task& task;
  const Tiles& tiles;
  bool stream; // write past the cache
};

// Computes the tiles from begin to end.
using Compute = void (*)(const Work& work, int64_t begin, int64_t end);

// The kernels for one instruction set, in the order of the list of operators.
namespace avx512 {
extern const Compute* const kernels;
}
namespace avx2 {
extern const Compute* const kernels;
}
namespace baseline {
extern const Compute* const kernels;
}

} // namespace elementwise::cpu
