// The instruction sets the CPU kernels are compiled for, and the one in use.
#pragma once

namespace muladd_nb::cpu {

// "avx512", "avx2" or "baseline": the best one this machine runs, or the one that the environment
// variable MULADD_NB_SIMD names. Throws std::runtime_error if it names one that cannot run here.
const char* simd_level();

} // namespace muladd_nb::cpu
