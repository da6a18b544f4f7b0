// Which instruction set: the best one that this machine runs, unless the environment says another.
#include "simd.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace muladd_nb::cpu {
namespace {

Isa choose_isa() {
#ifdef __x86_64__
  // GCC before 12 does not know the names of the levels; these features stand for the whole of each.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#endif
  const Isa all[] = {
#ifdef __x86_64__
      {"avx512", avx512::kernel, v4},
      {"avx2", avx2::kernel, v3},
#endif
      {"baseline", baseline::kernel, true},
  };
  const char* const wanted = std::getenv("MULADD_NB_SIMD");
  std::string known;
  for (const Isa& isa : all) {
    if (!isa.runs_here) continue;
    if (!wanted || !*wanted || std::strcmp(wanted, isa.name) == 0) return isa;
    known += known.empty() ? isa.name : std::string(", ") + isa.name;
  }
  throw std::runtime_error("muladd_nb: MULADD_NB_SIMD must be one of " + known + " on this machine, got " + wanted);
}

} // namespace

const Isa& isa() {
  static const Isa chosen = choose_isa();
  return chosen;
}

} // namespace muladd_nb::cpu
