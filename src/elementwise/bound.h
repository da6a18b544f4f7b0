// A functor with its numbers: what is left to give are the elements of the tensors. The same on the CPU and on CUDA.
#pragma once

#include "operator.h"

namespace elementwise {

template <class C, class Kernel>
struct Bound;

template <class C, class F, Kind... kKind>
struct Bound<C, Kernel<F, kKind...>> {
  explicit Bound(const Number* from) {
    constexpr Kind kinds[] = {kKind...};
    for (int i = 0, number = 0; i < static_cast<int>(sizeof...(kKind)); i++) {
      if (kinds[i] == Kind::tensor) continue;
      if (kinds[i] == Kind::real) {
        reals[number] = static_cast<number_t<C>>(from[number].real);
      } else {
        integers[number] = from[number].integer;
      }
      number++;
    }
  }

  template <class... X>
  ELEMENTWISE_FUNCTION auto operator()(X... elements) const {
    return call(std::make_index_sequence<sizeof...(kKind)>{}, elements...);
  }

 private:
  template <size_t... I, class... X>
  ELEMENTWISE_FUNCTION auto call(std::index_sequence<I...>, X... elements) const {
    static_assert(
        std::is_invocable_v<F, decltype(argument<I>(elements...))...>,
        "the functor must take what its declaration says, in its order: a C for each Tensor and float, an int64_t for "
        "each int");
    return F{}(argument<I>(elements...)...);
  }

  // The I-th argument: a number, or the element of a tensor, of which each tensor before has taken one.
  template <size_t I, class... X>
  ELEMENTWISE_FUNCTION auto argument(X... elements) const {
    constexpr Kind kinds[] = {kKind...};
    constexpr size_t tensors_before = [&] {
      size_t n = 0;
      for (size_t i = 0; i != I; i++) n += kinds[i] == Kind::tensor;
      return n;
    }();
    if constexpr (kinds[I] == Kind::tensor) {
      return element<tensors_before>(elements...);
    } else if constexpr (kinds[I] == Kind::real) {
      return reals[I - tensors_before];
    } else if constexpr (kinds[I] == Kind::integer) {
      return integers[I - tensors_before];
    } else {
      return integers[I - tensors_before] != 0;
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

  // One more, because there may be none.
  number_t<C> reals[Kernel<F, kKind...>::kNumbers + 1] = {};
  int64_t integers[Kernel<F, kKind...>::kNumbers + 1] = {};
};

} // namespace elementwise
