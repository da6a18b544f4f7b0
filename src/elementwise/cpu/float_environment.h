// The floating-point environment that every thread computes in, so that the bits of a result do not depend on who asks
// for it: rounding to nearest, subnormals kept. torch.set_flush_denormal, for one, changes the calling thread alone.
#pragma once

#include <cstdint>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace elementwise::cpu {

class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : of_caller_(get()) {
    if (of_caller_ != kDefault) set(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if (of_caller_ != kDefault) set(of_caller_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__SSE2__)
  using Control = unsigned;
  static constexpr Control kDefault = 0x1f80; // every exception masked
  static Control get() {
    return _mm_getcsr() & ~0x3fu; // without the flags of what has happened
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

  const Control of_caller_;
};

} // namespace elementwise::cpu
