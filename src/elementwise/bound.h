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
  ELEMENTWISE_FUNCTION C operator()(X... elements) const {
    const C in_order[] = {elements...};
    return call(in_order, std::make_index_sequence<sizeof...(kIsTensor)>{});
  }

 private:
  template <size_t... I>
  ELEMENTWISE_FUNCTION C call(const C* elements, std::index_sequence<I...>) const {
    static_assert(
        std::is_invocable_v<F, decltype(argument<I>(elements))...>, "the functor must take what its declaration says");
    return static_cast<C>(F{}(argument<I>(elements)...));
  }

  template <size_t I>
  ELEMENTWISE_FUNCTION auto argument(const C* elements) const {
    constexpr bool is_tensor[] = {kIsTensor...};
    constexpr int tensors_before = [&] {
      int n = 0;
      for (size_t i = 0; i != I; i++) n += is_tensor[i];
      return n;
    }();
    if constexpr (is_tensor[I]) {
      return elements[tensors_before];
    } else {
      return numbers[I - tensors_before];
    }
  }

  number_t<C> numbers[Kernel<F, kIsTensor...>::kNumbers + 1] = {}; // one more, because there may be none
};

} // namespace elementwise
