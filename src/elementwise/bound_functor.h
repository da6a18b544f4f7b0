// Binds a functor to the dtype and the numbers of a call. The bound functor is called with one element of each tensor,
// on the CPU and on CUDA.
#pragma once

#include "operator.h"

namespace elementwise {

// Calls body(T{}) with the type of the list that has this ordinal.
template <class... T>
void with_dtype(List<T...>, int32_t ordinal, const auto& body) {
  (void)((ordinal == kOrdinal<T> && (body(T{}), true)) || ...);
}

// A functor with its numbers. C is the type that it computes in.
template <class C, class Kernel>
struct Bound;

template <class C, class F, Kind... kKind>
struct Bound<C, Kernel<F, kKind...>> {
  using Arguments = typename Kernel<F, kKind...>::Parameters::Arguments;

  explicit Bound(const Number* from) {
    int number = 0;
    for (const Kind kind : {kKind...}) {
      if (kind == Kind::real) reals[number] = static_cast<Stored>(from[number].real);
      if (kind == Kind::integer || kind == Kind::boolean) integers[number] = from[number].integer;
      number += !is_tensor(kind);
    }
  }

  ELEMENTWISE_FUNCTION auto operator()(auto... elements) const {
    return call(std::make_index_sequence<sizeof...(kKind)>{}, elements...);
  }

 private:
  template <size_t... I, class... X>
  ELEMENTWISE_FUNCTION auto call(std::index_sequence<I...>, X... elements) const {
    ELEMENTWISE_REQUIRE(F, (std::is_invocable_v<F, decltype(argument<I>(elements...))...>), ELEMENTWISE_MUST_TAKE);
    return F{}(argument<I>(elements...)...);
  }

  // Returns the I-th argument: a number, or the element of a tensor.
  template <size_t I, class... X>
  ELEMENTWISE_FUNCTION auto argument(X... elements) const {
    constexpr Kind kinds[] = {kKind...};
    constexpr int index = kIndexAmong<I, kKind...>;
    if constexpr (kinds[I] == Kind::tensor) {
      return element<index>(elements...);
    } else if constexpr (kinds[I] == Kind::optional) {
      const auto x = element<index>(elements...);
      return Optional<std::remove_const_t<decltype(x)>>{true, x};
    } else if constexpr (kinds[I] == Kind::absent) {
      return parameters::With<parameters::At<I, Arguments>, C>{};
    } else if constexpr (kinds[I] >= Kind::chosen) {
      using Choice = parameters::At<I, Arguments>;
      constexpr auto value = static_cast<typename Choice::Value>(
          Choice::kValues[static_cast<int>(kinds[I]) - static_cast<int>(Kind::chosen)]);
      return Choice(value);
    } else if constexpr (kinds[I] == Kind::real) {
      return static_cast<number_t<C, parameters::At<I, Arguments>>>(reals[index]);
    } else if constexpr (kinds[I] == Kind::integer) {
      return integers[index];
    } else {
      return integers[index] != 0;
    }
  }

  template <size_t index, class First, class... Rest>
  ELEMENTWISE_FUNCTION static auto element(First first, Rest... rest) {
    if constexpr (index == 0) {
      return first;
    } else {
      return element<index - 1>(rest...);
    }
  }

  // All numbers are stored as double if any parameter of the functor is a double.
  template <class... P>
  static std::conditional_t<(std::is_same_v<P, double> || ...), double, number_t<C>> stored(List<P...>);
  using Stored = decltype(stored(Arguments{}));

  // + 1, because C++ has no empty arrays.
  Stored reals[Kernel<F, kKind...>::kNumbers + 1] = {};
  int64_t integers[Kernel<F, kKind...>::kNumbers + 1] = {};
};

} // namespace elementwise
