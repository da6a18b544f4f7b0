// The operators of the namespace my_ops: every schema, and nothing else.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(my_ops, m) {
  m.def("mymul(Tensor a, Tensor b) -> Tensor");
}
