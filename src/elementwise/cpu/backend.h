// The CPU backend: torch's threads, and what to do about large memory.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <cstring>

#include "../contract.h"
#include "../environment.h"
#include "launch.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace elementwise::cpu {

struct Backend {
  // A large new output is bound by page faults: one per 4 KiB. In huge pages it is written three times
  // as fast (benchmarks/throughput.py, "fresh"). <LIBRARY>_HUGEPAGES=0 turns the hint off.
  static void on_fresh_output(void* data, size_t bytes) {
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

  static void launch(const contract::Caller&, const Task& task, int32_t) {
    cpu::launch(
        task, [](int64_t end, int64_t grain, const auto& body) { torch::stable::parallel_for(0, end, grain, body); });
  }
};

} // namespace elementwise::cpu
