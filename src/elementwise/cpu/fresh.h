// What to do about large new memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../environment.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace elementwise::cpu {

// A large new output is bound by page faults: one per 4 KiB. In huge pages it is written three times
// as fast (benchmarks/throughput.py, "fresh"). <LIBRARY>_HUGEPAGES=0 turns the hint off.
inline void on_fresh_output(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr size_t kWorthwhile = 4 << 20;
  if (bytes < kWorthwhile) return;
  static const bool wanted = [] {
    const char* const value = environment("HUGEPAGES");
    return !value || std::strcmp(value, "0") != 0;
  }();
  if (!wanted) return;
  static const uintptr_t page = sysconf(_SC_PAGESIZE);
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE); // a hint: failure changes nothing
#endif
}

} // namespace elementwise::cpu
