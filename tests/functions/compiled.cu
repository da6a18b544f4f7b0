// Every function in a CUDA kernel, for float and double. `nox -s cuda` compiles it; nothing runs it.
#include "elementwise/math.h"
#include "functions.h"

namespace {

#define FUNCTION(name, arguments, ...)                               \
  template <class C>                                                 \
  __global__ void name##_kernel(const C* x, C* result) {             \
    const C first = x[3 * threadIdx.x];                              \
    const C second = x[3 * threadIdx.x + 1];                         \
    const C third = x[3 * threadIdx.x + 2];                          \
    if constexpr (arguments == 1)                                    \
      result[threadIdx.x] = elementwise::name(first);                \
    else if constexpr (arguments == 2)                               \
      result[threadIdx.x] = elementwise::name(first, second);        \
    else                                                             \
      result[threadIdx.x] = elementwise::name(first, second, third); \
  }                                                                  \
  template __global__ void name##_kernel(const float*, float*);      \
  template __global__ void name##_kernel(const double*, double*);
EACH_FUNCTION(FUNCTION)
#undef FUNCTION

} // namespace
