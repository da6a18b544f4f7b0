// The kernels for the ExecuTorch runtime, with the signatures that its code generator derives from the schemas in
// custom_ops.yaml.
#pragma once

#include <executorch/runtime/kernel/kernel_includes.h>

namespace muladd_nb::native {

using ::executorch::aten::Tensor;
using ::executorch::runtime::KernelRuntimeContext;

Tensor& mymuladd_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, double c, Tensor& out);
Tensor& mymul_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, Tensor& out);

} // namespace muladd_nb::native
