// The instruction sets the CPU kernels are compiled for, and the one in use.
#pragma once

#include "work.h"

namespace elementwise::cpu {

struct Isa {
  const char* name; // "avx512", "avx2" or "baseline"
  const Choose* computers;
  const Mover* movers;
  bool runs_here;
};

// The best one this machine runs, or the one that the environment variable <LIBRARY>_SIMD names. Throws
// std::runtime_error if it names one that cannot run here.
const Isa& isa();

} // namespace elementwise::cpu
