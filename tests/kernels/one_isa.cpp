// Replaces cpu/machine.cpp in tests of kernels that are compiled for one instruction set.
#include "elementwise/cpu/machine.h"

namespace elementwise::cpu {

const Isa& choose_isa() {
  static const Isa one{"baseline",        {baseline::computers<0>()}, baseline::movers,
                       baseline::summers, &baseline::row_mover,       true};
  return one;
}

} // namespace elementwise::cpu
