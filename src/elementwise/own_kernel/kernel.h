// What becomes of a kernel that is not element-wise. Its file is compiled once for each instruction set of the CPU, and
// once more for the rest that it holds.
//
//   ELEMENTWISE_KERNEL(my_ops, row_norm, RowNorm)
//
// makes the loop over the functor RowNorm for an instruction set; else it declares these loops and row_norm_on_cuda, of
// which elementwise::launch calls one.
#pragma once

#ifdef ELEMENTWISE_ISA
#include "element.h"

// ELEMENTWISE_ISA has become the name of an instruction set where the last of these is reached.
#define ELEMENTWISE_KERNEL(library, name, Kernel) ELEMENTWISE_KERNEL_ON(ELEMENTWISE_ISA, library, name, Kernel)
#define ELEMENTWISE_KERNEL_ON(isa, ...) ELEMENTWISE_LOOP(isa, __VA_ARGS__)
#define ELEMENTWISE_LOOP(isa, library, name, Kernel)                                   \
  namespace library {                                                                  \
  void name##_on_##isa(int32_t dtype, const void* given, int64_t begin, int64_t end) { \
    elementwise::with_kernel<Kernel>(dtype, given, [&](const auto& kernel) {           \
      for (int64_t i = begin; i < end; i++) kernel(i);                                 \
    });                                                                                \
  }                                                                                    \
  }
#else
#include "torch.h"

#define ELEMENTWISE_KERNEL(library, name, Kernel)                              \
  namespace library {                                                          \
  elementwise::OnCpu ELEMENTWISE_EACH_ISA(name##_on_);                         \
  elementwise::OnCuda name##_on_cuda;                                          \
  inline elementwise::OnCpu* on_cpu(const Kernel<void>&) {                     \
    constexpr elementwise::OnCpu* each[] = {ELEMENTWISE_EACH_ISA(name##_on_)}; \
    return each[elementwise::cpu::isa().place];                                \
  }                                                                            \
  inline elementwise::OnCuda* on_cuda(const Kernel<void>&) {                   \
    return name##_on_cuda;                                                     \
  }                                                                            \
  }
#endif
