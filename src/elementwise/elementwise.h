// Turns the list of operators into code. The file that holds the list is compiled for several targets: for each
// instruction set of the CPU, for CUDA, for the registration with torch, and twice for ExecuTorch (its registration and
// its out variants). There,
//
//   ELEMENTWISE_OPERATORS(my_ops, my_ops::Operators)
//
// expands to the kernels, or to the schemas and the table by which the dispatcher finds the kernels.
//
// This folder names no operator: `muladd-nb new` copies it unchanged, and `muladd-nb update` renews it.
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
