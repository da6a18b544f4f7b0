// Chooses the instruction set: the best one that this machine runs, unless an environment variable names another.
#include "machine.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace elementwise::cpu {

namespace {

// All instruction sets that were compiled.
template <int... part>
std::vector<Isa> all_isas(std::integer_sequence<int, part...>) {
#ifdef ELEMENTWISE_HAS_LEVELS
  // GCC before 12 does not know the names of the levels; we test features that a processor of each level has.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#endif
  return {
#ifdef ELEMENTWISE_HAS_LEVELS
      {"avx512", {avx512::computers<part>()...}, avx512::movers, avx512::summers, &avx512::row_mover, v4},
      {"avx2", {avx2::computers<part>()...}, avx2::movers, avx2::summers, &avx2::row_mover, v3},
#endif
      {"baseline", {baseline::computers<part>()...}, baseline::movers, baseline::summers, &baseline::row_mover, true},
  };
}

} // namespace

const Isa& choose_isa() {
  static std::vector<Isa> all = all_isas(std::make_integer_sequence<int, kParts>());
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
