// A functor that reads an array at an index that the compiler does not know, so the array is in local memory.
// tools/audit_cuda.py must detect that.
#include "elementwise/elementwise.h"
#include "elementwise/rows/row.h"

namespace probe {

struct Spill {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, elementwise::Elements<C> x, int64_t place) const {
    C first[8];
    for (int k = 0; k < 8; k++) first[k] = row.at(x, k);
    return first[place & 7];
  }
};

using Operators =
    elementwise::List<elementwise::Operator<"spill(Tensor x, int place)", Spill, elementwise::functional>>;

} // namespace probe

ELEMENTWISE_OPERATORS(probe, probe::Operators)
