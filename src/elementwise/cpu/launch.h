// Runs a task on the CPU. torch and ExecuTorch pass different thread pools.
#pragma once

#include "run.h"
#include "sums.h"

namespace elementwise::cpu {

// parallel_for(end, grain, body) splits [0, end) into parts of at least `grain`, and calls body(first, last) for each.
template <class ParallelFor>
void launch(const Task& task, const ParallelFor& parallel_for) {
  // For fewer elements, a second thread costs more than it saves (measured).
  constexpr int64_t kGrain = 32 * 1024;
  const Computer computer = isa().computer(task.index)(task.dtype);
  const int64_t numel = task.plan.numel();
  if (numel <= kGrain && task.plan.contiguous()) { // planning tiles would take as long as computing
    const DefaultFloatEnvironment environment;
    return computer.row(numel, task.data, task.numbers);
  }
  const Tiles tiles(task.plan, computer);
  const bool stream = tiles.bytes > last_level_cache() && tiles.can_stream(computer, task.data, task.plan.operands);
  const auto part = [&](int64_t begin, int64_t end) {
    const DefaultFloatEnvironment environment;
    Run(task, computer, tiles, stream)(begin, end);
  };
  if (numel <= kGrain) return part(0, tiles.total);
  const int64_t elements_per_tile = std::max<int64_t>(1, numel / tiles.total);
  parallel_for(tiles.total, kGrain / elements_per_tile, part);
}

} // namespace elementwise::cpu
