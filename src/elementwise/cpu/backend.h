// The CPU backend: torch's threads, and what to do about large memory.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <chrono>
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
  // as fast (benchmarks/throughput.py, "fresh"), unless none is ready: where the system has to compact memory for it,
  // or a virtual machine to ask its host, one page takes milliseconds. So the first is tried, and where it came slowly
  // the next outputs do without. <LIBRARY>_HUGEPAGES=0 turns the hint off.
  static void on_fresh_output(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
    constexpr size_t kWorthwhile = 4 << 20, kHuge = 2 << 20;
    constexpr std::chrono::microseconds kSlow{500}; // as long as 512 faults of small pages take
    constexpr int kWithout = 64;
    if (bytes < kWorthwhile) return;
    static const bool wanted = [] {
      const char* const value = environment("HUGEPAGES");
      return !value || std::strcmp(value, "0") != 0;
    }();
    static std::atomic<int> without{0};
    if (!wanted || (without > 0 && without-- > 0)) return;
    static const uintptr_t page = sysconf(_SC_PAGESIZE);
    const uintptr_t first = reinterpret_cast<uintptr_t>(data), end = (first + bytes) / page * page;
    const auto advise = [](uintptr_t from, size_t size) { // a hint: failure changes nothing
      madvise(reinterpret_cast<void*>(from), size, MADV_HUGEPAGE);
    };
    const uintptr_t huge = (first + kHuge - 1) / kHuge * kHuge, begin = (first + page - 1) / page * page;
    advise(huge, kHuge);
    const auto start = std::chrono::steady_clock::now();
    *reinterpret_cast<volatile char*>(huge) = 0;
    if (std::chrono::steady_clock::now() - start > kSlow) {
      without = kWithout;
    } else {
      advise(begin, end - begin);
    }
#endif
  }

  static void launch(const contract::Caller&, const Task& task, int32_t) {
    cpu::launch(
        task, [](int64_t end, int64_t grain, const auto& body) { torch::stable::parallel_for(0, end, grain, body); });
  }
};

} // namespace elementwise::cpu
