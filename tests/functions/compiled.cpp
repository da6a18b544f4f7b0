// The functions in a plain loop, as in elementwise/cpu/kernels.h, for one instruction set: ELEMENTWISE_ISA names it,
// and the build passes the matching -march. Compiled with elementwise/tests/host.h, it has the functions of CUDA
// kernels.
#include "elementwise/math.h"
#include "functions.h"

namespace functions::ELEMENTWISE_TARGET {
namespace {

template <class F, class T, int arguments>
void loop(int64_t n, const T* const* x, T* result) {
  const T *const first = x[0], *const second = x[1], *const third = x[2];
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#pragma GCC unroll 1
#elif defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#endif
  for (int64_t i = 0; i < n; i++) {
    if constexpr (arguments == 1)
      result[i] = F()(first[i]);
    else if constexpr (arguments == 2)
      result[i] = F()(first[i], second[i]);
    else
      result[i] = F()(first[i], second[i], third[i]);
  }
}

#define FUNCTION(name, ...)                              \
  struct Call_##name {                                   \
    template <class... C>                                \
    ELEMENTWISE_FUNCTION auto operator()(C... x) const { \
      return elementwise::name(x...);                    \
    }                                                    \
  };
EACH_FUNCTION(FUNCTION)
#undef FUNCTION

} // namespace

extern const Loops loops[];
const Loops loops[] = {
#define FUNCTION(name, arguments, ...) {loop<Call_##name, float, arguments>, loop<Call_##name, double, arguments>},
    EACH_FUNCTION(FUNCTION)
#undef FUNCTION
};

} // namespace functions::ELEMENTWISE_TARGET
