// The kernels of an operator's derivatives, made of its functor. Of f(x, y) they are grad * df/dx, grad * df/dy, both
// in one pass, and grad times the partial derivatives of the second and third order, by the arguments in the places
// that a call gives. Each is an operator like any other:
//
//   _f_by_x(Tensor x, Tensor y, Tensor grad)       _f_second(Tensor x, Tensor y, Tensor grad, int by0, int by1)
//   _f_gradients(Tensor x, Tensor y, Tensor grad)  _f_third(Tensor x, Tensor y, Tensor grad, int by0, int by1, int by2)
//
// The gradients have the shapes of x and y: where one was broadcast, they are summed in the same pass. Where f has
// several results, there is a gradient for each that is of C, grad0, grad1 and so on, and what they make is added up.
//
// In forward mode one gives the value and its tangent, if f has one result and no tensor that may be absent:
//
//   _f_jvp(Tensor x, Tensor y, Tensor tangent0, Tensor tangent1)
//
// The others are closed under differentiation: the derivative of grad * df/dx by grad is that of f by x, and the one by
// y is grad * d2f/dxdy. So they serve every mode and every nesting, up to the third order.
#pragma once

#include <array>

#include "math/basic.h"
#include "operator.h"
#include "rows/family.h"

namespace elementwise {
namespace derivatives {

template <class C, int depth>
struct NestedOf {
  using type = Dual<typename NestedOf<C, depth - 1>::type>;
};
template <class C>
struct NestedOf<C, 0> {
  using type = C;
};

// An argument of a functor with C in the place of AnyC.
template <class P, class C>
struct WithOf {
  using type = parameters::With<P, C>;
};
template <class P, class C>
struct WithOf<Optional<P>, C> {
  using type = Optional<parameters::With<P, C>>;
};
template <class P, class C>
using With = typename WithOf<P, C>::type;

// The arguments that a partial derivative is by, of which one may come several times.
template <int order>
struct Places {
  int64_t by[order];
};

// x as a number that has derivatives: 1 at each level that is by the argument in its place, else 0. Where the places
// are constants, so are these, and what is multiplied by 0 is not computed.
template <class C, int level, int order>
ELEMENTWISE_INLINE auto lifted(C x, int64_t place, const Places<order>& places) {
  if constexpr (level == 0) {
    return x;
  } else {
    using Below = typename NestedOf<C, level - 1>::type;
    const C distance = static_cast<C>(place - places.by[level - 1]);
    // Of a comparison of integers GCC would make branches in the loop.
    return Dual<Below>{lifted<C, level - 1>(x, place, places), {max(1 - distance * distance, C(0))}};
  }
}

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

// A gradient for each result of C.
template <class C, size_t count>
struct OfEach {
  C grad[count];
};

template <int order, class C, class D>
ELEMENTWISE_INLINE C contracted(const C* grad, const D& result) {
  return *grad * innermost<order>(result);
}
// Where one of several results has no gradient, that is 0, and adds nothing even where a derivative is infinite.
template <int order, class C, class First, class... Rest>
ELEMENTWISE_INLINE C contracted(const C* grad, const Results<First, Rest...>& results) {
  constexpr bool is_of_c = std::is_same_v<First, typename NestedOf<C, order>::type>;
  C sum = 0;
  if constexpr (is_of_c) sum = scaled(*grad, innermost<order>(results.first));
  if constexpr (sizeof...(Rest) > 0) sum = sum + contracted<order>(grad + is_of_c, results.rest);
  return sum;
}

// A functor at dual numbers: grad times its partial derivative. P are the types of its arguments.
template <class F, class... P, class C, int order, size_t count, size_t... I>
ELEMENTWISE_INLINE C partial(
    List<P...>, std::index_sequence<I...>, const Places<order>& places, const OfEach<C, count>& grads,
    With<P, C>... arguments) {
  return contracted<order>(grads.grad, F{}(argument<P, C>(arguments, I, places)...));
}

// The dtypes that derivatives of an order are compiled for: the floating-point ones, and of a higher order what these
// are computed in.
template <class Dtypes, int order>
struct Floats;
template <class... T, int order>
struct Floats<List<T...>, order> {
  template <class U>
  static constexpr bool is_computed_in = (std::is_same_v<compute_t<T>, U> || ...);
  using Computed = Joined<
      std::conditional_t<is_computed_in<float>, List<float>, List<>>,
      std::conditional_t<is_computed_in<double>, List<double>, List<>>>;
  using Stored = Joined<std::conditional_t<std::is_floating_point_v<compute_t<T>>, List<T>, List<>>...>;
  using type = std::conditional_t<(order > 1), Computed, Stored>;
};

// The functor of derivatives of the first order, by one argument or by several in one pass. It takes the arguments and
// the gradients, of which there is one at least: from this C is deduced.
template <class F, class Arguments, class MoreGrads, int... places>
struct Gradients;
template <class F, class... P, size_t... more, int... places>
struct Gradients<F, List<P...>, std::index_sequence<more...>, places...> {
  using dtypes = typename Floats<typename DtypesOf<F>::type, 1>::type;

  template <class C>
  ELEMENTWISE_FUNCTION Results<std::enable_if_t<places + 1 != 0, C>...> operator()(
      With<P, C>... arguments, C grad, std::enable_if_t<(more + 1 > 0), C>... grads) const {
    return of_each<Results<std::enable_if_t<places + 1 != 0, C>...>, places...>(
        OfEach<C, 1 + sizeof...(more)>{{grad, grads...}}, arguments...);
  }

 private:
  template <class R, int first, int... rest, class C>
  ELEMENTWISE_FUNCTION static R of_each(const OfEach<C, 1 + sizeof...(more)>& grads, With<P, C>... arguments) {
    const C one = partial<F>(List<P...>{}, std::index_sequence_for<P...>{}, Places<1>{{first}}, grads, arguments...);
    if constexpr (sizeof...(rest) == 0)
      return {one};
    else
      return {one, of_each<decltype(R::rest), rest...>(grads, arguments...)};
  }
};

// The functor of those of a higher order, which takes the places of the arguments that they are by, too.
template <class F, class Arguments, class MoreGrads, class Levels>
struct Higher;
template <class F, class... P, size_t... more, size_t... level>
struct Higher<F, List<P...>, std::index_sequence<more...>, std::index_sequence<level...>> {
  static constexpr int order = sizeof...(level);
  using dtypes = typename Floats<typename DtypesOf<F>::type, order>::type;

  template <class C>
  ELEMENTWISE_FUNCTION C operator()(
      With<P, C>... arguments, C grad, std::enable_if_t<(more + 1 > 0), C>... grads,
      std::enable_if_t<(level < order), int64_t>... by) const {
    return partial<F>(
        List<P...>{}, std::index_sequence_for<P...>{}, Places<order>{{by...}},
        OfEach<C, 1 + sizeof...(more)>{{grad, grads...}}, arguments...);
  }
};

// The functor of value and tangent, by the arguments in these places.
template <class F, class Arguments, class Index, class MoreTangents, int... places>
struct Forward;
template <class F, class... P, size_t... I, size_t... more, int... places>
struct Forward<F, List<P...>, std::index_sequence<I...>, std::index_sequence<more...>, places...> {
  using dtypes = typename Floats<typename DtypesOf<F>::type, 2>::type;

  template <class C>
  ELEMENTWISE_FUNCTION Results<C, C> operator()(
      With<P, C>... arguments, C tangent, std::enable_if_t<(more + 1 > 0), C>... tangents) const {
    const auto result = F{}(dual<P, I>(arguments, OfEach<C, 1 + sizeof...(more)>{{tangent, tangents...}})...);
    return {result.value, {result.derivative}};
  }

 private:
  template <class Parameter, int place, class C>
  ELEMENTWISE_FUNCTION static auto dual(With<Parameter, C> x, const OfEach<C, sizeof...(places)>& tangents) {
    if constexpr (std::is_same_v<Parameter, parameters::AnyC>) {
      constexpr int before = (0 + ... + (places < place)); // of the arguments that have a tangent
      if constexpr (((place == places) || ...))
        return Dual<C>{x, tangents.grad[before]};
      else
        return Dual<C>{x, 0};
    } else {
      return x;
    }
  }
};

// 0 of what is no derivative.
template <class F>
constexpr int order = 0;
template <class F, class Arguments, class Index, class MoreTangents, int... places>
constexpr int order<Forward<F, Arguments, Index, MoreTangents, places...>> = 1;
template <class F, class Arguments, class MoreGrads, int... places>
constexpr int order<Gradients<F, Arguments, MoreGrads, places...>> = 1;
template <class F, class Arguments, class MoreGrads, size_t... level>
constexpr int order<Higher<F, Arguments, MoreGrads, std::index_sequence<level...>>> = sizeof...(level);
template <class Parts, rows::Role role>
constexpr int order<rows::Derived<Parts, role>> = role == rows::Role::gradients ? 1 : 3;

// Writes the declaration of a derivative of f: its arguments, without defaults, and the gradients.
constexpr size_t write(
    char* to, const Signature& of, std::string_view what, std::string_view by, int grads, int order) {
  const std::string_view given = order < 0 ? "tangent" : "grad";
  size_t size = 0;
  const auto append = [&](std::string_view text) {
    for (const char character : text) {
      if (to) to[size] = character;
      size++;
    }
  };
  const auto append_name = [&](std::string_view name, std::string_view number) { // one that no argument of f has
    append(name);
    for (int i = 0; i < of.count; i++)
      if (of.arguments[i].name.starts_with(name)) append("_");
    append(number);
  };
  append("_");
  append(of.name);
  append(what);
  append(by);
  if (!of.overload.empty()) {
    append(".");
    append(of.overload);
  }
  append("(");
  for (int i = 0; i < of.count; i++) {
    append(kKinds[static_cast<int>(of.arguments[i].kind)]);
    append(" ");
    append(of.arguments[i].name);
    append(", ");
  }
  constexpr std::string_view numbers = "012345678";
  for (int i = 0; i < grads; i++) {
    append(i ? ", Tensor " : "Tensor ");
    append_name(given, grads > 1 ? numbers.substr(i, 1) : "");
  }
  for (int i = 0; order > 1 && i < order; i++) {
    append(", int ");
    append_name("by", numbers.substr(i, 1));
  }
  append(")");
  return size;
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

// How many results have a derivative, and so a gradient.
template <class Op>
constexpr int kGrads = std::count(std::begin(Op::Kernel::OfResults::own), std::end(Op::Kernel::OfResults::own), kOfC);
template <class Op>
constexpr bool has_own_float() {
  for (const int32_t own : Op::Kernel::OfResults::own)
    if (own == kOrdinal<float> || own == kOrdinal<double>) return true;
  return false;
}
template <class Op>
using MoreGradsOf = std::make_index_sequence<std::max(0, kGrads<Op> - 1)>;

// Python is told which operator each is a derivative of, and by which arguments: -1 where a call says it. One that is
// by several arguments has a result for each.
template <class Op, int place>
struct FirstDerivative : Operator<
                             declaration<Op::signature, kGrads<Op>, 1, place>(),
                             Gradients<typename Op::Functor, ArgumentsOf<Op>, MoreGradsOf<Op>, place>, kForms<Op>> {
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
struct AllGradients : Operator<
                          declaration<Op::signature, kGrads<Op>, 0>(),
                          Gradients<typename Op::Functor, ArgumentsOf<Op>, MoreGradsOf<Op>, places...>, kForms<Op>> {
  using Of = Op;
  static constexpr std::array<int, sizeof...(places)> by{places...};
  static constexpr int like[] = {Op::signature.tensors_before(places)...};
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

// Whether an operator is differentiated by an argument: a tensor of C.
template <class Op, size_t place>
constexpr bool has_derivative() {
  using P = parameters::At<place, typename Op::Kernel::Parameters::Arguments>;
  return Op::signature.arguments[place].is_tensor() &&
         std::is_same_v<typename parameters::ElementOf<P>::type, parameters::AnyC>;
}

// The derivatives of the first order, and all of them in one pass if there are several and no tensor may be absent.
template <class Op, size_t... place>
auto first_order(std::index_sequence<place...>) {
  return Joined<std::conditional_t<has_derivative<Op, place>(), List<FirstDerivative<Op, place>>, List<>>...>{};
}
template <class Op, int... place>
auto forward_mode(List<FirstDerivative<Op, place>...>) {
  constexpr int count = sizeof...(place), inputs = count + Op::signature.tensors;
  constexpr bool fits = count > 0 && inputs <= kMaxInputs && inputs + 2 <= kMaxOperands;
  if constexpr (fits && Op::signature.optional == 0 && Op::Kernel::kResults == 1)
    return List<ForwardMode<Op, place...>>{};
  else
    return List<>{};
}
template <class Op, int... place>
auto with_gradients(List<FirstDerivative<Op, place>...> derivatives) {
  constexpr int count = sizeof...(place);
  constexpr bool fits = count + Op::signature.tensors + kGrads<Op> <= kMaxOperands;
  if constexpr (count > 1 && fits && Op::signature.optional == 0)
    return List<FirstDerivative<Op, place>..., AllGradients<Op, place...>>{};
  else
    return derivatives;
}

// Whether an operator has a derivative: of integers there is none, and where no result is of floating-point numbers.
template <class Op>
constexpr bool is_differentiable() {
  constexpr bool of_floats = !std::is_same_v<typename Floats<typename Op::Kernel::Dtypes, 1>::type, List<>>;
  return Op::is_differentiable && of_floats && (kGrads<Op> > 0 || has_own_float<Op>());
}

template <class Op>
auto family() {
  if constexpr (Op::is_over_rows) {
    return rows::family<Op>();
  } else if constexpr (is_differentiable<Op>()) {
    static_assert(
        !has_own_float<Op>(),
        "results of floating-point numbers are of C, where an operator is `differentiable`: leave that out of its row "
        "in src/operators.h");
    static_assert(
        Op::signature.tensors + kGrads<Op> <= kMaxInputs,
        "an operator that is `differentiable` has nine tensors at most, those of its results that are of C among them: "
        "leave that out of its row in src/operators.h");
    const auto by_each = first_order<Op>(std::make_index_sequence<Op::signature.count>{});
    using First = decltype(with_gradients<Op>(by_each));
    return Joined<First, decltype(forward_mode<Op>(by_each)), List<HigherDerivative<Op, 2>, HigherDerivative<Op, 3>>>{};
  } else {
    return List<>{};
  }
}

template <class... Op>
Joined<List<Op...>, decltype(family<Op>())...> extended(List<Op...>);

} // namespace derivatives

// The operators of a list, and after them those of their derivatives.
template <class Operators>
using WithDerivatives = decltype(derivatives::extended(Operators{}));

} // namespace elementwise
