// Functions that ask the machine or set it up for the kernels: they choose the instruction set, find the size of the
// last-level cache, request huge pages and set the rounding mode. This file needs neither torch nor ExecuTorch.
#pragma once

#include <unistd.h>

#include "../settings.h"
#include "../system.h"
#include "work.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#if defined(__x86_64__) && !defined(ELEMENTWISE_NATIVE)
#define ELEMENTWISE_HAS_LEVELS
#define ELEMENTWISE_EACH_ISA(prefix) prefix##avx512, prefix##avx2, prefix##baseline
#else
#define ELEMENTWISE_EACH_ISA(prefix) prefix##baseline
#endif

namespace elementwise::cpu {

// An instruction set. In the list of them, the best comes first, and the last one has every kernel.
struct Isa {
  const char* name; // "avx512", "avx2" or "baseline"
  const ComputerOf* computers[kParts];
  const Mover* movers;
  const Summer* summers;
  const RowMover* row_mover;
  bool runs_here;
  int place = 0; // in the list

  // Returns the computer of this instruction set or, if it has none, of the best one that has it.
  ComputerOf computer(size_t kernel) const {
    const Isa* of = this;
    const size_t part = kernel % kParts;
    while (!of->computers[part][kernel]) of++;
    return of->computers[part][kernel];
  }
  const Summer& summer(int32_t dtype) const {
    const Summer* of = summers;
    while (of->dtype != dtype) of++;
    return *of;
  }
};

// Finds the best instruction set that this machine runs, or the one that the environment variable <LIBRARY>_SIMD names.
// Throws std::runtime_error if the variable names one that cannot run here.
const Isa& choose_isa();

// Returns the instruction set in use.
inline const Isa& isa() {
  static const Isa& chosen = choose_isa();
  return chosen;
}

// Returns the size in bytes of the last-level cache that this process can use.
inline int64_t last_level_cache() {
  static const int64_t bytes = [] {
    const int64_t reported = system::last_level_cache();
    return reported ? reported : int64_t{32} << 20;
  }();
  return bytes;
}

inline bool wants_huge_pages() {
  static const bool wanted = is_on("HUGEPAGES");
  return wanted;
}

// Writing new memory causes a page fault for every 4 KiB, which limits the speed of large results. With huge pages they
// are written three times as fast (measured). <LIBRARY>_HUGEPAGES=0 turns this off.
inline void on_fresh_output(void* data, size_t bytes) {
  constexpr size_t kWorthwhile = 4 << 20;
  if (bytes < kWorthwhile || !wants_huge_pages()) return;
  static const uintptr_t page = sysconf(_SC_PAGESIZE);
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  system::hint_huge_pages(reinterpret_cast<void*>(begin), end - begin);
}

// While an object of this class lives, its thread rounds to nearest and keeps subnormals. Kernels use it, so that their
// bits do not depend on the caller's settings: torch.set_flush_denormal, for example, changes the calling thread only.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : callers_(get()) {
    if (callers_ != kDefault) set(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if (callers_ != kDefault) set(callers_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;

  // Returns whether the calling thread rounds to nearest and keeps subnormals already, so that nothing would change.
  static bool is_active() {
    return get() == kDefault;
  }

 private:
#if defined(__SSE2__)
  using Control = unsigned;
  static constexpr Control kDefault = 0x1f80; // every exception masked
  static Control get() {
    return _mm_getcsr() & ~0x3fu; // without the flags of past exceptions
  }
  static void set(Control control) {
    _mm_setcsr(control);
  }
#elif defined(__aarch64__)
  using Control = uint64_t;
  static constexpr Control kDefault = 0;
  static Control get() {
    Control control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set(Control control) {
    asm volatile("msr fpcr, %0" : : "r"(control));
  }
#else
  using Control = int;
  static constexpr Control kDefault = 0;
  static Control get() {
    return 0;
  }
  static void set(Control) {}
#endif

  const Control callers_;
};

} // namespace elementwise::cpu
