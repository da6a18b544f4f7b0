// The instruction sets the CPU kernels are compiled for, and the one in use.
#pragma once

#include "work.h"

#ifdef __x86_64__
#define ELEMENTWISE_EACH_ISA(prefix) prefix##avx512, prefix##avx2, prefix##baseline
#else
#define ELEMENTWISE_EACH_ISA(prefix) prefix##baseline
#endif

namespace elementwise::cpu {

// An instruction set. In the list of them, the best comes first, and the last one has every kernel.
struct Isa {
  const char* name; // "avx512", "avx2" or "baseline"
  const Choose* computers;
  const Mover* movers;
  const Summer* summers;
  const RowMover* row_mover;
  bool runs_here;
  int place = 0; // in the list

  // The computer of this instruction set or, if it has none, of the best one that has it.
  Choose computer(size_t kernel) const;
  const Summer& summer(int32_t dtype) const;
};

// The best one this machine runs, or the one that the environment variable <LIBRARY>_SIMD names. Throws
// std::runtime_error if it names one that cannot run here.
const Isa& isa();

} // namespace elementwise::cpu
