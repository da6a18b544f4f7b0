// The CPU backend: which instruction set, how many threads, what to do about large memory; and the
// registration of the CPU kernels.
#include <cstdlib>
#include <cstring>
#include <string>

#include "../operators.h"
#include "cache.h"
#include "kernels.h"
#include "simd.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace muladd_nb::cpu {
namespace {

struct Isa {
  const char* name;
  Kernel kernel;
  bool runs_here;
};

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

const Isa& isa() {
  static const Isa chosen = choose_isa();
  return chosen;
}

struct Cpu {
  // A large new output is bound by page faults: one per 4 KiB. In huge pages it is written three times
  // as fast (benchmarks/throughput.py, "fresh"). MULADD_NB_HUGEPAGES=0 turns the hint off.
  static void on_fresh_output(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
    constexpr size_t kWorthwhile = 4 << 20;
    if (bytes < kWorthwhile) return;
    static const bool wanted = [] {
      const char* const value = std::getenv("MULADD_NB_HUGEPAGES");
      return !value || std::strcmp(value, "0") != 0;
    }();
    if (!wanted) return;
    static const uintptr_t page = sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE); // a hint: failure changes nothing
#endif
  }

  static void launch(
      const char*, Function function, double c, Dtype dtype, const Plan& plan, void* out, const void* a, const void* b,
      int32_t) {
    const Tiles tiles(plan);
    const int64_t numel = plan.numel();
    const int64_t element = element_size(dtype);
    const bool stream =
        kOperands * numel * element > last_level_cache() && reinterpret_cast<uintptr_t>(out) % element == 0;
    const Work work{function, c, dtype, plan, tiles, out, a, b, stream};
    const Kernel kernel = isa().kernel;
    // Below this, handing work to another thread costs more than it saves (benchmarks/throughput.py).
    constexpr int64_t kGrain = 32 * 1024;
    if (numel <= kGrain) return kernel(work, 0, tiles.total);
    const int64_t elements_per_tile = std::max<int64_t>(1, numel / tiles.total);
    torch::stable::parallel_for(
        0, tiles.total, kGrain / elements_per_tile, [&](int64_t begin, int64_t end) { kernel(work, begin, end); });
  }
};

} // namespace

const char* simd_level() {
  return isa().name;
}

} // namespace muladd_nb::cpu

MULADD_NB_REGISTER(CPU, muladd_nb::cpu::Cpu)
