// The size of the last-level cache that this process can use.
#pragma once

#include "../system.h"

namespace elementwise::cpu {

inline int64_t last_level_cache() {
  static const int64_t bytes = [] {
    const int64_t reported = system::last_level_cache();
    return reported ? reported : int64_t{32} << 20;
  }();
  return bytes;
}

} // namespace elementwise::cpu
