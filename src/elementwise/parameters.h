// Reads the parameters of a functor: which operands are of type C (the dtype that the tensors of a call share), which
// have another dtype, and how many results there are.
#pragma once

#include <tuple>

#include "functor.h"

namespace elementwise {

constexpr int32_t kOfC = -1; // stands for the shared dtype, in lists of operands' dtypes

namespace parameters {

// Stands for C while parameters are read. Naming operator()<AnyC> only declares it, so its body is not compiled.
struct AnyC {};

// Stands for the row that a functor over rows takes first: rows/row.h.
struct AnyRow {};

template <class P>
struct ElementOf {
  using type = P;
};
template <template <class> class Of, class P> // Optional<P>, Elements<P> or Probabilities<P>
struct ElementOf<Of<P>> : ElementOf<P> {};

template <class P>
constexpr bool is_of_c = std::is_same_v<typename ElementOf<P>::type, AnyC>;

// Tells whether a type is made from a template: is_a<P, Optional>.
template <class P, template <class> class Of>
constexpr bool is_a = false;
template <class P, template <class> class Of>
constexpr bool is_a<Of<P>, Of> = true;

// Whether an operand of a functor over rows has one value for each row.
template <class P>
constexpr bool is_of_row = true;
template <class P>
constexpr bool is_of_row<Optional<P>> = is_of_row<P>;
template <class P>
constexpr bool is_of_row<Elements<P>> = false;
template <class P>
constexpr bool is_of_row<Probabilities<P>> = false;

template <class P>
constexpr bool is_one_of = false;
template <auto... values>
constexpr bool is_one_of<OneOf<values...>> = true;

// The type of a parameter, with C in place of AnyC.
template <class P, class C>
struct WithOf {
  using type = std::conditional_t<std::is_same_v<P, AnyC>, C, P>;
};
template <template <class> class Of, class P, class C> // Elements<P> or Optional<P>
struct WithOf<Of<P>, C> {
  using type = Of<typename WithOf<P, C>::type>;
};
template <class P, class C>
using With = typename WithOf<P, C>::type;

template <class P>
constexpr int32_t own() {
  using Element = typename ElementOf<P>::type;
  static_assert(
      is_of_c<P> || (kOrdinal<Element> >= 0 && !kFloat16Bit<Element>),
      "a tensor is C, or has a dtype of its own: bool, intN_t, uintN_t, float or double");
  return is_of_c<P> ? kOfC : kOrdinal<Element>;
}

template <class R>
struct ResultsOf {
  using type = List<R>;
};
template <class... R>
struct ResultsOf<Results<R...>> {
  using type = List<R...>;
};

template <class R, class... P>
struct ReadTypes {
  static constexpr bool kAreRead = true;
  using Results = typename ResultsOf<R>::type;
  using Arguments = List<std::remove_cvref_t<P>...>;
};

template <class Call>
struct Read;
template <class F, class R, class... P, bool kNoexcept>
struct Read<R (F::*)(P...) const noexcept(kNoexcept)> : ReadTypes<R, P...> {};
template <class F, class R, class... P, bool kNoexcept>
struct Read<R (F::*)(P...) noexcept(kNoexcept)> : Read<R (F::*)(P...) const> {};

template <class Call>
struct ReadOfRows;
template <class F, class R, class... P, bool kNoexcept>
struct ReadOfRows<R (F::*)(AnyRow&, P...) const noexcept(kNoexcept)> : ReadTypes<R, P...> {
  static_assert(
      !kNoexcept, "a functor over rows must not be noexcept: an exception ends some of its runs (cpu/work.h)");
};

// Whether a functor computes a row, and not an element.
template <class F>
constexpr bool is_of_rows = requires { typename ReadOfRows<decltype(&F::template operator()<AnyC, AnyRow>)>::Results; };

// If the functor is not a template of only C, we assume that it has one result, and that all its arguments are C.
// nvcc 13 refuses the address of operator() outside of decltype.
template <class F, size_t kArguments>
struct Of {
  static constexpr bool kAreRead = false;
  using Results = List<AnyC>;
  using Arguments = Repeated<AnyC, kArguments>;
};
template <class F, size_t kArguments>
  requires requires { typename Read<decltype(&F::template operator()<AnyC>)>; }
struct Of<F, kArguments> : Read<decltype(&F::template operator()<AnyC>)> {};
template <class F, size_t kArguments>
  requires is_of_rows<F>
struct Of<F, kArguments> : ReadOfRows<decltype(&F::template operator()<AnyC, AnyRow>)> {};

template <size_t place, class... P>
std::tuple_element_t<place, std::tuple<P...>> at(List<P...>);
template <size_t place, class Arguments>
using At = decltype(at<place>(Arguments{}));

// The arguments that are tensors.
template <bool... kIsTensor, class... P>
Joined<ListIf<kIsTensor, List<P>>...> tensors(List<P...>);

// A list of operands: their types, with T in place of C, and their dtypes as values.
template <class Operands>
struct Each;
template <class... P>
struct Each<List<P...>> {
  template <class T>
  using type = List<With<typename ElementOf<P>::type, T>...>;
  static constexpr int32_t own[sizeof...(P)] = {parameters::own<P>()...};
  static constexpr bool of_row[sizeof...(P)] = {is_of_row<P>...};
};

} // namespace parameters
} // namespace elementwise
