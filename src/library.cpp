// The operators of the namespace muladd_nb: every schema, and nothing else.
#include <torch/csrc/stable/library.h>

#include "copies.h"

// A fragment, which a second copy of the library may open too; it then adds nothing.
STABLE_TORCH_LIBRARY_FRAGMENT(muladd_nb, m) {
  if (muladd_nb::registered_before()) return;

  m.def("mymuladd(Tensor a, Tensor b, float c) -> Tensor");
  m.def("mymul(Tensor a, Tensor b) -> Tensor");

  // Mutating operators that torch.compile, export and AOTInductor accept: they return nothing.
  m.def("myadd_out(Tensor a, Tensor b, Tensor(a!) out) -> ()");
  m.def("mymuladd_out(Tensor a, Tensor b, float c, Tensor(a!) out) -> ()");

  // For a compiled program in which c changes from call to call: torch.compile turns a `float` into a constant of
  // the program, and compiles again for the next one. Here c is a zero-dimensional float64 tensor on the CPU.
  m.def("mymuladd.tensor_c(Tensor a, Tensor b, Tensor c) -> Tensor");
  m.def("mymuladd_out.tensor_c(Tensor a, Tensor b, Tensor c, Tensor(a!) out) -> ()");

  // The out variants ExecuTorch maps the functional operators to: they return `out`.
  m.def("mymuladd.out(Tensor a, Tensor b, float c, *, Tensor(a!) out) -> Tensor(a!)");
  m.def("mymul.out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)");
}
