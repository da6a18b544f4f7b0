// Compiles a kernel that is not element-wise. The kernel's file is compiled once for each instruction set of the CPU,
// and once more for the rest of the file.
//
//   ELEMENTWISE_KERNEL(my_ops, row_norm, RowNorm)
//
// defines the loop over the functor RowNorm when the file is compiled for an instruction set. Otherwise it declares all
// these loops, and row_norm_on_cuda, so that elementwise::launch can call one of them.
#pragma once

#ifdef ELEMENTWISE_ISA
#include "element.h"

// Three macros, so that ELEMENTWISE_ISA is replaced by the name of the instruction set before it is part of a name.
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
