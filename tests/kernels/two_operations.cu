// A product and a sum, each rounded, which nvcc must not fuse. tools/audit_cuda.py compiles it with the flags of the
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
