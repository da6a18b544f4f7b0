// Chooses the instruction set: the best one that this machine runs, unless an environment variable names another.
#include "machine.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace elementwise::cpu {

const Isa& choose_isa() {
#ifdef ELEMENTWISE_HAS_LEVELS
  // GCC before 12 does not know the names of the levels; we test features that a processor of each level has.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#endif
  static Isa all[] = {
#ifdef ELEMENTWISE_HAS_LEVELS
      {"avx512", avx512::computers, avx512::movers, avx512::summers, &avx512::row_mover, v4},
      {"avx2", avx2::computers, avx2::movers, avx2::summers, &avx2::row_mover, v3},
#endif
      {"baseline", baseline::computers, baseline::movers, baseline::summers, &baseline::row_mover, true},
  };
  const char* const wanted = setting("SIMD");
  std::string known;
  for (int place = 0; Isa& isa : all) {
    isa.place = place++;
    if (!isa.runs_here) continue;
    if (!wanted || !*wanted || std::strcmp(wanted, isa.name) == 0) return isa;
    known += known.empty() ? isa.name : std::string(", ") + isa.name;
  }
  throw std::runtime_error(
      kLibrary + (": " + setting_name("SIMD")) + " must be one of " + known + " on this machine, got " + wanted);
}

} // namespace elementwise::cpu
