// What becomes of the list of operators. The one file that holds it is compiled for several targets: once for each
// instruction set of the CPU, by nvcc, for the registration with torch, and for that with ExecuTorch.
//
//   ELEMENTWISE_OPERATORS(my_ops, my_ops::Operators)
//
// makes of it the kernels, or the schemas and the table that the dispatcher finds them by.
//
// This folder names no operator: `muladd-nb new` copies it as it is, and `muladd-nb update` renews it.
#pragma once

#include "derivatives.h"
#include "operator.h"

#if defined(__CUDACC__) || defined(ELEMENTWISE_CUDA_ON_HOST)
#include "cuda/kernels.h"
#elif defined(ELEMENTWISE_ISA)
#include "cpu/kernels.h"
#elif defined(ELEMENTWISE_OUT_VARIANTS)
#include "executorch/out_variants.h"
#elif defined(ELEMENTWISE_EXECUTORCH)
#include "executorch/register.h"
#else
#include "torch.h"
#endif
