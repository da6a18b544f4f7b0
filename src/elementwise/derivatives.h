// Makes the derivatives of an operator f(x, y) from its functor, as operators:
//
//   _f_by_x(Tensor x, Tensor y, Tensor grad__0)    grad * df/dx; _f_by_y likewise
//   _f_gradients(Tensor x, Tensor y, Tensor grad__0, int needs__)
//                                                  both in one pass; a gradient whose bit of `needs__` is not set is
//                                                  not written, and has the shape [0]
//   _f_second(Tensor x, Tensor y, Tensor grad__0, int by__0, int by__1)
//                                                  grad times a second derivative, by two arguments
//   _f_third(Tensor x, Tensor y, Tensor grad__0, int by__0, int by__1, int by__2)
//   _f_jvp(Tensor x, Tensor y, Tensor tangent__0, Tensor tangent__1)
//                                                  the value and its tangent in one pass, for forward mode
//
// _f_gradients returns gradients in the shapes of x and y: if one was broadcast, its gradient is summed in the same
// pass. If f has many tensors, it computes the gradients of the first ones, as many as there may be results. If f has
// several results of type C, each has a gradient, grad__0, grad__1 and so on, and their products are added. _f_jvp
// exists only if f has one result and no optional tensor.
//
// Derivatives of these operators are operators of the same list: the derivative of grad * df/dx by grad is df/dx, and
// by y it is grad * d2f/dxdy. So they serve every mode and nested transforms, up to the third order.
#pragma once

#include <array>

#include "math/basic.h"
#include "operator.h"
#include "rows/family.h"

namespace elementwise {
namespace derivatives {

using parameters::With;

// A dual number of dual numbers, `depth` deep.
template <class C, int depth>
struct NestedOf {
  using type = Dual<typename NestedOf<C, depth - 1>::type>;
};
template <class C>
struct NestedOf<C, 0> {
  using type = C;
};

// The indices of the arguments with respect to which a derivative is taken. An index may occur more than once.
template <int order>
struct Places {
  int64_t by[order];
};

// x, the argument with the index `place`, as a nested dual number. At each level the derivative is 1 if that level
// differentiates by this argument, else 0. If the indices are constants, the compiler drops products with 0.
template <class C, int level, int order>
ELEMENTWISE_INLINE auto lifted(C x, int64_t place, const Places<order>& places) {
  if constexpr (level == 0) {
    return x;
  } else {
    using Below = typename NestedOf<C, level - 1>::type;
    const C distance = static_cast<C>(place - places.by[level - 1]);
    // We do not compare integers, because GCC would compile that to branches in the loop.
    return Dual<Below>{lifted<C, level - 1>(x, place, places), {max(1 - distance * distance, C(0))}};
  }
}

// Returns the derivative of the highest order.
template <int level, class D>
ELEMENTWISE_INLINE auto innermost(const D& x) {
  if constexpr (level == 0) {
    return x;
  } else {
    return innermost<level - 1>(x.derivative);
  }
}

template <class P, class C, int order>
ELEMENTWISE_INLINE auto argument(With<P, C> x, int64_t place, const Places<order>& places) {
  if constexpr (std::is_same_v<P, parameters::AnyC>) {
    return lifted<C, order>(x, place, places);
  } else if constexpr (std::is_same_v<P, Optional<parameters::AnyC>>) {
    return Optional<typename NestedOf<C, order>::type>{x.is_given, lifted<C, order>(x.value, place, places)};
  } else {
    return x;
  }
}

template <int order, class C, class D>
ELEMENTWISE_INLINE C contracted(const C* grad, const D& result) {
  return *grad * innermost<order>(result);
}
// If nobody used one of several results, its gradient is 0. It adds nothing, even if a derivative is infinite.
template <int order, class C, class First, class... Rest>
ELEMENTWISE_INLINE C contracted(const C* grad, const Results<First, Rest...>& results) {
  constexpr bool is_of_c = std::is_same_v<First, typename NestedOf<C, order>::type>;
  C sum = 0;
  if constexpr (is_of_c) sum = scaled(*grad, innermost<order>(results.first));
  if constexpr (sizeof...(Rest) > 0) sum = sum + contracted<order>(grad + is_of_c, results.rest);
  return sum;
}

// Calls the functor with dual numbers: returns grad times its partial derivative. P are the types of its arguments.
template <class F, class... P, class C, int order, size_t count, size_t... I>
ELEMENTWISE_INLINE C partial(
    List<P...>, std::index_sequence<I...>, const Places<order>& places, const Array<C, count>& grads,
    With<P, C>... arguments) {
  return contracted<order>(grads.each, F{}(argument<P, C>(arguments, I, places)...));
}

// First derivatives are compiled for the floating-point dtypes of an operator. Higher orders and forward mode are
// compiled only for the types that these are computed in, float for 16-bit dtypes.
template <class Dtypes>
struct ComputedOf;
template <class... T>
struct ComputedOf<List<T...>> {
  template <class U>
  using If = ListIf<(std::is_same_v<compute_t<T>, U> || ...), List<U>>;
  using type = Joined<If<float>, If<double>>;
};

// The functor of first derivatives, by one argument or by several in one pass. It takes the arguments of F, and then at
// least one gradient, from which C is deduced. With several it also takes `needs__`, which says which derivatives are
// written; it computes all of them.
template <class F, class Arguments, class MoreGrads, class Needs, int... places>
struct Gradients;
template <class F, class... P, size_t... more, size_t... needs, int... places>
struct Gradients<F, List<P...>, std::index_sequence<more...>, std::index_sequence<needs...>, places...> {
  using dtypes = FloatsOf<typename DtypesOf<F>::type>;

  template <class C>
  ELEMENTWISE_FUNCTION Results<Repeat<places, C>...> operator()(
      With<P, C>... arguments, C grad, Repeat<more, C>... grads, Repeat<needs, int64_t>...) const {
    return of_each<Results<Repeat<places, C>...>, places...>(
        Array<C, 1 + sizeof...(more)>{{grad, grads...}}, arguments...);
  }

 private:
  template <class R, int first, int... rest, class C>
  ELEMENTWISE_FUNCTION static R of_each(const Array<C, 1 + sizeof...(more)>& grads, With<P, C>... arguments) {
    const C one = partial<F>(List<P...>{}, std::index_sequence_for<P...>{}, Places<1>{{first}}, grads, arguments...);
    if constexpr (sizeof...(rest) == 0)
      return {one};
    else
      return {one, of_each<decltype(R::rest), rest...>(grads, arguments...)};
  }
};

// Derivatives of a higher order are rarely called, so their kernels are not compiled for each value of a OneOf.
template <class P, class C>
struct AtRunTime {
  using type = With<P, C>;
};
template <auto... values, class C>
struct AtRunTime<OneOf<values...>, C> {
  using type = typename OneOf<values...>::Value;
};

// The functor of a derivative of higher order. Its last arguments are the indices of the arguments that it
// differentiates by.
template <class F, class Arguments, class MoreGrads, class Levels>
struct Higher;
template <class F, class... P, size_t... more, size_t... level>
struct Higher<F, List<P...>, std::index_sequence<more...>, std::index_sequence<level...>> {
  static constexpr int order = sizeof...(level);
  using dtypes = typename ComputedOf<typename DtypesOf<F>::type>::type;

  template <class C>
  ELEMENTWISE_FUNCTION C operator()(
      typename AtRunTime<P, C>::type... arguments, C grad, Repeat<more, C>... grads,
      Repeat<level, int64_t>... by) const {
    return partial<F>(
        List<P...>{}, std::index_sequence_for<P...>{}, Places<order>{{by...}},
        Array<C, 1 + sizeof...(more)>{{grad, grads...}}, static_cast<With<P, C>>(arguments)...);
  }
};

// The functor that computes value and tangent. `places` are the indices of the arguments that have tangents.
template <class F, class Arguments, class Index, class MoreTangents, int... places>
struct Forward;
template <class F, class... P, size_t... I, size_t... more, int... places>
struct Forward<F, List<P...>, std::index_sequence<I...>, std::index_sequence<more...>, places...> {
  using dtypes = typename ComputedOf<typename DtypesOf<F>::type>::type;

  template <class C>
  ELEMENTWISE_FUNCTION Results<C, C> operator()(With<P, C>... arguments, C tangent, Repeat<more, C>... tangents) const {
    const auto result = F{}(dual<P, I>(arguments, Array<C, 1 + sizeof...(more)>{{tangent, tangents...}})...);
    return {result.value, {result.derivative}};
  }

 private:
  template <class Parameter, int place, class C>
  ELEMENTWISE_FUNCTION static auto dual(With<Parameter, C> x, const Array<C, sizeof...(places)>& tangents) {
    if constexpr (std::is_same_v<Parameter, parameters::AnyC>) {
      constexpr int before = (0 + ... + (places < place)); // arguments with a tangent before this one
      if constexpr (((place == places) || ...))
        return Dual<C>{x, tangents.each[before]};
      else
        return Dual<C>{x, 0};
    } else {
      return x;
    }
  }
};

// The order of a functor's derivative; 0 for a functor that is not a derivative. Over rows, derivatives that take
// tangents count as 3, so that they are compiled only once (cpu/kernels.h).
template <class F>
constexpr int order = 0;
template <class F, class Arguments, class Index, class MoreTangents, int... places>
constexpr int order<Forward<F, Arguments, Index, MoreTangents, places...>> = 1;
template <class F, class Arguments, class MoreGrads, class Needs, int... places>
constexpr int order<Gradients<F, Arguments, MoreGrads, Needs, places...>> = 1;
template <class F, class Arguments, class MoreGrads, size_t... level>
constexpr int order<Higher<F, Arguments, MoreGrads, std::index_sequence<level...>>> = sizeof...(level);
template <class Original, rows::Role role>
constexpr int order<rows::Derived<Original, role>> = rows::takes_tangents(role) ? 3 : 1;

// Writes the declaration of a derivative of `of`, with its gradients or tangents, and returns the length.
constexpr size_t write(
    char* to, const Signature& of, std::string_view what, std::string_view by, int grads, int order) {
  DeclarationWriter declaration{to};
  declaration.begin(of, what, by);
  declaration.add_each(order < 0 ? "Tensor tangent__" : "Tensor grad__", grads);
  declaration.add_each("int by__", order > 1 ? order : 0);
  declaration.append(order == 0 ? ", int needs__)" : ")");
  return declaration.size;
}
template <const Signature& of, int grads, int order, int by = -1>
constexpr auto declaration() {
  constexpr std::string_view whats[] = {"_jvp", "_gradients", "_by_", "_second", "_third"}, what = whats[order + 1];
  constexpr std::string_view name = by < 0 ? std::string_view() : of.arguments[by < 0 ? 0 : by].name;
  Literal<write(nullptr, of, what, name, grads, order) + 1> to;
  write(to.text, of, what, name, grads, order);
  return to;
}

template <class Op>
using ArgumentsOf = typename Op::Kernel::Parameters::Arguments;
template <class Op>
constexpr unsigned kForms = functional | (Op::broadcasts ? 0 : same_shape);

template <class Op, int32_t own>
constexpr int kResultsOf = std::ranges::count(Op::Kernel::OfResults::own, own);
// The number of results of type C. Each of them has a gradient.
template <class Op>
constexpr int kGrads = kResultsOf<Op, kOfC>;
template <class Op>
constexpr bool has_own_float = kResultsOf<Op, kOrdinal<float>> + kResultsOf<Op, kOrdinal<double>> > 0;
template <class Op>
using MoreGradsOf = std::make_index_sequence<std::max(0, kGrads<Op> - 1)>;

// A derivative of the operator `Of` with respect to the arguments whose indices are in `by` (-1: the call passes the
// index, or, for ForwardMode, there is none). SeveralGradients has a result for each. bindings.h passes `by` to Python.
template <class Op, int place>
struct FirstDerivative
    : Operator<
          declaration<Op::signature, kGrads<Op>, 1, place>(),
          Gradients<typename Op::Functor, ArgumentsOf<Op>, MoreGradsOf<Op>, std::index_sequence<>, place>, kForms<Op>> {
  using Of = Op;
  static constexpr std::array<int, 1> by{place};
};
template <class Op, int order>
struct HigherDerivative
    : Operator<
          declaration<Op::signature, kGrads<Op>, order>(),
          Higher<typename Op::Functor, ArgumentsOf<Op>, MoreGradsOf<Op>, std::make_index_sequence<order>>, kForms<Op>> {
  using Of = Op;
  static constexpr auto by = [] {
    std::array<int, order> places{};
    places.fill(-1);
    return places;
  }();
};
template <class Op, int... places>
struct SeveralGradients
    : Operator<
          declaration<Op::signature, kGrads<Op>, 0>(),
          Gradients<typename Op::Functor, ArgumentsOf<Op>, MoreGradsOf<Op>, std::index_sequence<0>, places...>,
          kForms<Op>> {
  using Of = Op;
  static constexpr std::array<int, sizeof...(places)> by{places...};
  static constexpr int like[] = {places...};
};

template <class Op, int... places>
struct ForwardMode : Operator<
                         declaration<Op::signature, sizeof...(places), -1>(),
                         Forward<
                             typename Op::Functor, ArgumentsOf<Op>, std::make_index_sequence<Op::signature.count>,
                             std::make_index_sequence<sizeof...(places) - 1>, places...>,
                         kForms<Op>> {
  using Of = Op;
  static constexpr std::array<int, 1> by{-1};
};

// Whether an operator has a derivative by an argument, which must be a tensor of type C.
template <class Op, size_t place>
constexpr bool has_derivative() {
  using P = parameters::At<place, typename Op::Kernel::Parameters::Arguments>;
  return Op::signature.arguments[place].is_tensor() && parameters::is_of_c<P>;
}

// Lists the first derivatives by one argument each.
template <class Op, size_t... place>
auto first_order(std::index_sequence<place...>) {
  return Joined<ListIf<has_derivative<Op, place>(), List<FirstDerivative<Op, place>>>...>{};
}
// Lists the operator that computes several gradients, if there are several.
template <class Op, int... place>
auto several_gradients(List<FirstDerivative<Op, place>...>) {
  constexpr int gradients = std::min<int>(sizeof...(place), kMaxOperands - Op::signature.tensors - kGrads<Op>);
  if constexpr (gradients > 1)
    return []<size_t... I>(std::index_sequence<I...>) {
      constexpr int places[] = {place...};
      return List<SeveralGradients<Op, places[I]...>>{};
    }(std::make_index_sequence<gradients>{});
  else
    return List<>{};
}
// Lists the operator for value and tangent, unless there would be too many tensors.
template <class Op, int... place>
auto forward_mode(List<FirstDerivative<Op, place>...>) {
  constexpr int count = sizeof...(place), inputs = count + Op::signature.tensors;
  constexpr bool can = count > 0 && Op::signature.optional == 0 && Op::Kernel::kResults == 1 && inputs <= kMaxInputs &&
                       inputs + 2 <= kMaxOperands;
  return ListIf<can, List<ForwardMode<Op, place...>>>{};
}

// Whether an operator has derivatives: not if C or all results are integers.
template <class Op>
constexpr bool is_differentiable() {
  constexpr bool of_floats = !std::is_same_v<FloatsOf<typename Op::Kernel::Dtypes>, List<>>;
  return Op::is_differentiable && of_floats && (kGrads<Op> > 0 || has_own_float<Op>);
}

// Lists all derivatives of an operator. `All` are the operators of its list.
template <class Op, class... All>
auto family() {
  ELEMENTWISE_REQUIRE(
      Op,
      ((0 + ... + (Op::signature.name == All::signature.name && Op::signature.overload == All::signature.overload)) <=
       1),
      "src/operators.h has two operators of this name and overload");
  static_assert(!Op::signature.has_reserved_name(), "the name of an argument must not have two underscores in a row");
  if constexpr (Op::is_over_rows) {
    return rows::family<Op>();
  } else if constexpr (is_differentiable<Op>()) {
    static_assert(
        !has_own_float<Op>,
        "the floating-point results of a `differentiable` operator must be of type C: leave `differentiable` out of "
        "its entry in src/operators.h");
    static_assert(
        Op::signature.tensors + kGrads<Op> <= kMaxInputs,
        "a `differentiable` operator has at most 16 tensors, counting its results of type C: leave `differentiable` "
        "out of its entry in src/operators.h");
    using First = decltype(first_order<Op>(std::make_index_sequence<Op::signature.count>{}));
    return Joined<
        First, decltype(several_gradients<Op>(First{})), decltype(forward_mode<Op>(First{})),
        List<HigherDerivative<Op, 2>, HigherDerivative<Op, 3>>>{};
  } else {
    return List<>{};
  }
}

template <class... Op>
Joined<List<Op...>, decltype(family<Op, Op...>())...> extended(List<Op...>);

} // namespace derivatives

// A list of operators, followed by their derivatives.
template <class Operators>
using WithDerivatives = decltype(derivatives::extended(Operators{}));

} // namespace elementwise
