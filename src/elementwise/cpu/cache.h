// The size of the last-level cache that this process can use.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace elementwise::cpu {

// sysconf alone is a trap: on AMD it adds up the caches of all core complexes (384 MiB where one core
// sees 32), and on aarch64 it answers 0. The kernel's own table says what one core sees.
inline int64_t last_level_cache() {
  static const int64_t bytes = [] {
    for (const char* level : {"3", "2"}) {
      std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/index") + level + "/size");
      int64_t kib = 0;
      char unit = 0;
      if (file >> kib >> unit && kib > 0) return unit == 'M' ? kib << 20 : kib << 10;
    }
    if (const int64_t size = sysconf(_SC_LEVEL3_CACHE_SIZE); size > 0) return size;
    return int64_t{32} << 20;
  }();
  return bytes;
}

} // namespace elementwise::cpu
