// While an object of this class lives, its thread rounds to nearest and keeps subnormals. Kernels use it, so that their
// bits do not depend on the caller's settings: torch.set_flush_denormal, for example, changes the calling thread only.
#pragma once

#include <cstdint>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace elementwise::cpu {

class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : callers_(get()) {
    if (callers_ != kDefault) set(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if (callers_ != kDefault) set(callers_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;

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
