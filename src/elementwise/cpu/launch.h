// Cuts the work of a CPU kernel and hands it out. torch and ExecuTorch differ only in whose threads do it.
#pragma once

#include <cstdint>

#include "cache.h"
#include "float_environment.h"
#include "isa.h"

namespace elementwise::cpu {

// parallel_for(end, grain, body) calls body(first, last) for parts of [0, end), of `grain` or more.
template <class ParallelFor>
void launch(const Task& task, const ParallelFor& parallel_for) {
  const Tiles tiles(task.plan);
  const int64_t numel = task.plan.numel();
  const bool stream = task.plan.operands * numel * task.element_bytes > last_level_cache() &&
                      reinterpret_cast<uintptr_t>(task.data[0]) % task.element_bytes == 0;
  const Work work{task, tiles, stream};
  const auto compute = [&work, kernel = isa().kernels[task.kernel]](int64_t begin, int64_t end) {
    const DefaultFloatEnvironment environment;
    kernel(work, begin, end);
  };
  // Below this, handing work to another thread costs more than it saves (benchmarks/throughput.py).
  constexpr int64_t kGrain = 32 * 1024;
  if (numel <= kGrain) return compute(0, tiles.total);
  const int64_t elements_per_tile = std::max<int64_t>(1, numel / tiles.total);
  parallel_for(tiles.total, kGrain / elements_per_tile, compute);
}

} // namespace elementwise::cpu
