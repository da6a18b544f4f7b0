// A functor with its numbers: what is left to give are the elements of the tensors. The same on the CPU and on CUDA.
#pragma once

#include "operator.h"

namespace elementwise {

template <class C, class Kernel>
struct Bound;

template <class C, class F, bool... kIsTensor>
struct Bound<C, Kernel<F, kIsTensor...>> {
  explicit Bound(const double* from) {
    for (int i = 0; i < Kernel<F, kIsTensor...>::kNumbers; i++) numbers[i] = static_cast<number_t<C>>(from[i]);
  }

  template <class... X>
  ELEMENTWISE_FUNCTION auto operator()(X... elements) const {
    return call(std::make_index_sequence<sizeof...(kIsTensor)>{}, elements...);
  }

 private:
  template <size_t... I, class... X>
  ELEMENTWISE_FUNCTION auto call(std::index_sequence<I...>, X... elements) const {
    static_assert(
        std::is_invocable_v<F, decltype(argument<I>(elements...))...>,
        "the functor must take what its declaration says, in its order: a C for each Tensor, and for each float");
    return F{}(argument<I>(elements...)...);
  }

  // The I-th argument: a number, or the element of a tensor, of which each tensor before has taken one.
  template <size_t I, class... X>
  ELEMENTWISE_FUNCTION auto argument(X... elements) const {
    constexpr bool is_tensor[] = {kIsTensor...};
    constexpr size_t tensors_before = [&] {
      size_t n = 0;
      for (size_t i = 0; i != I; i++) n += is_tensor[i];
      return n;
    }();
    if constexpr (is_tensor[I]) {
      return element<tensors_before>(elements...);
    } else {
      return numbers[I - tensors_before];
    }
  }

  template <size_t place, class First, class... Rest>
  ELEMENTWISE_FUNCTION static auto element(First first, Rest... rest) {
    if constexpr (place == 0) {
      return first;
    } else {
      return element<place - 1>(rest...);
    }
  }

  number_t<C> numbers[Kernel<F, kIsTensor...>::kNumbers + 1] = {}; // one more, because there may be none
};

} // namespace elementwise
