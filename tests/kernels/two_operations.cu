// What nvcc must not fuse: a product and a sum, each rounded. tools/audit_cuda.py compiles it as the build compiles the
// operators.
#include "elementwise/elementwise.h"

namespace probe {

struct TwoOperations {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C a, C b, C c) const {
    return a * b + c;
  }
};

using Operators = elementwise::List<
    elementwise::Operator<"two_operations(Tensor a, Tensor b, Tensor c)", TwoOperations, elementwise::functional>>;

} // namespace probe

ELEMENTWISE_OPERATORS(probe, probe::Operators)
