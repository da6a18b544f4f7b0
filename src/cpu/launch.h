// Cuts the work of a CPU kernel and hands it out. torch and ExecuTorch differ only in whose threads do it.
#pragma once

#include <cstdint>

#include "cache.h"
#include "kernels.h"
#include "simd.h"

namespace muladd_nb::cpu {

// parallel_for(end, grain, body) calls body(first, last) for parts of [0, end), of `grain` or more.
template <class ParallelFor>
void launch(
    Function function, double c, Dtype dtype, const Plan& plan, void* out, const void* a, const void* b,
    const ParallelFor& parallel_for) {
  const Tiles tiles(plan);
  const int64_t numel = plan.numel();
  const int64_t element = element_size(dtype);
  const bool stream =
      kOperands * numel * element > last_level_cache() && reinterpret_cast<uintptr_t>(out) % element == 0;
  const Work work{function, c, dtype, plan, tiles, out, a, b, stream};
  const Kernel kernel = isa().kernel;
  // Below this, handing work to another thread costs more than it saves (benchmarks/throughput.py).
  constexpr int64_t kGrain = 32 * 1024;
  if (numel <= kGrain) return kernel(work, 0, tiles.total);
  const int64_t elements_per_tile = std::max<int64_t>(1, numel / tiles.total);
  parallel_for(tiles.total, kGrain / elements_per_tile, [&](int64_t begin, int64_t end) { kernel(work, begin, end); });
}

} // namespace muladd_nb::cpu
