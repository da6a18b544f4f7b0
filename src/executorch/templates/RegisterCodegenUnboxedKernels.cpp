// ${generated_comment}
//
// Registers the selected kernels with the ExecuTorch runtime when the library is opened. The generator turns each
// entry of custom_ops.yaml into a Kernel: the operator's name, and a function that unboxes the arguments.
#include <executorch/runtime/core/event_tracer_hooks.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/profiler.h>

#include "kernels.h"

namespace {

using namespace ::executorch::runtime;

const Kernel kernels[] = {
    ${unboxed_kernels} // One for each selected operator.
};

// It ends the process if an operator is registered already.
[[maybe_unused]] const Error registered = register_kernels({kernels, std::size(kernels)});

} // namespace
