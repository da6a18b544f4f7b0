// The derivative operators of an operator over rows. They are made from its functor. For f(x, w):
//
//   _f_recorded(x, w)
//       returns f(x, w), and the results of the first two reductions of each row. A recorded call computes this.
//   _f_gradients(x, w, grad__0, reduced__0, reduced__1, needs__)
//       returns the gradients of x and w, each with the shape of its tensor. It does not compute the two reductions
//       again. A gradient whose bit of `needs__` is not set has the shape [0].
//   _f_tangent(x, w, tangent__0, tangent__1)
//       returns the tangent of the result.
//   _f_second(x, w, grad__0, tangent__0, tangent__1, grad_tangent__0)
//       returns the tangents of the gradients.
//
// There is a grad__k for each result of type C, and a tangent__k for each tensor of type C. If a result is
// Probabilities, _f_gradients takes that result in place of the reductions: softmax__k, if it is the k-th. There is no
// _f_recorded then, nor if it would have too many tensors.
//
// _f_second computes every second derivative. The gradients are those of the number <grad, f(x)>, whose second
// derivatives are symmetric, so the tangent of the gradients in one direction is also their vector-Jacobian product
// with that direction.
#pragma once

#include <array>
#include <bit>

#include "../operator.h"

namespace elementwise {
namespace rows {

enum class Role { recorded, gradients, tangent, second };
constexpr std::string_view kRoles[] = {"recorded", "gradients", "tangent", "second"};

constexpr bool takes_grads(Role role) { // its results are then gradients, or their tangents
  return role == Role::gradients || role == Role::second;
}
constexpr bool takes_tangents(Role role) {
  return role == Role::tangent || role == Role::second;
}

// For each row, the results of this many reductions are kept for the backward pass: a norm and a softmax have two.
// The results of row.at, row.argmax and row.argmin are not. The type is double, which can hold every type of a row.
constexpr int kMostReduced = 2;

// The functor of an operator, and which of its arguments are tensors: bit i stands for the i-th. The type does not
// depend on the declaration, because nvcc cannot put that into the name of a kernel.
template <class F, uint32_t kIsTensor>
struct Original {
  using Functor = F;
  using Read = parameters::Of<F, 0>;
  template <size_t argument, class P>
  static constexpr bool has_derivative = kIsTensor >> argument & 1 && parameters::is_of_c<P>;
  template <class P> // a tensor of C, as a parameter or a result
  using TensorOf = std::conditional_t<parameters::is_of_row<P>, parameters::AnyC, Elements<parameters::AnyC>>;
  template <class... P>
  static constexpr int count(List<P...>) {
    return sizeof...(P);
  }
  static constexpr int kArguments = count(typename Read::Arguments{});
  static constexpr int kNumbers = kArguments - std::popcount(kIsTensor);

  template <size_t... I, class... P>
  static Joined<ListIf<has_derivative<I, P>, List<TensorOf<P>>>...> tensors_of(std::index_sequence<I...>, List<P...>);
  template <class... P>
  static Joined<ListIf<parameters::is_of_c<P>, List<P>>...> of_c(List<P...>);
  template <class... P>
  static Joined<ListIf<parameters::is_a<P, Probabilities>, List<P>>...> softmaxes_of(List<P...>);

  using Tensors = decltype(tensors_of(std::make_index_sequence<kArguments>{}, typename Read::Arguments{}));
  using Results = decltype(of_c(typename Read::Results{}));
  using Softmaxes = decltype(softmaxes_of(typename Read::Results{}));
  static constexpr int kTensors = count(Tensors{}), kGrads = count(Results{}), kSoftmaxes = count(Softmaxes{});
  static constexpr int kInputs = std::popcount(kIsTensor), kAllResults = count(typename Read::Results{});
  static constexpr bool fits(int inputs, int results) {
    return inputs <= kMaxInputs && inputs + results <= kMaxOperands;
  }
  static constexpr bool keeps_reduced =
      !kSoftmaxes && fits(kInputs, kAllResults + kMostReduced) && fits(kInputs + kGrads + kMostReduced, kTensors);
  static constexpr int kReduced = keeps_reduced ? kMostReduced : 0;
  static_assert(kSoftmaxes <= 1, "a functor returns Probabilities once");
  static constexpr int kSoftmax = []<class... P>(List<P...>) { // which of the results it is
    int index = 0;
    (void)((parameters::is_a<P, Probabilities> || (index++, false)) || ...);
    return index;
  }(typename Read::Results{});

  // Where the tensors that have a derivative stand among the arguments. The array has one element more, because an
  // array must not be empty.
  static constexpr auto arguments = [] {
    std::array<int, kTensors + 1> arguments{};
    int found = 0;
    [&]<size_t... I, class... P>(std::index_sequence<I...>, List<P...>) {
      ((has_derivative<I, P> ? void(arguments[found++] = I) : void()), ...);
    }(std::make_index_sequence<kArguments>{}, typename Read::Arguments{});
    return arguments;
  }();
};

// Stands in for a functor where a kernel needs one. The kernel (kernels.h) runs the functor of Original.
template <class Original, Role role>
struct Derived {
  using dtypes = FloatsOf<typename DtypesOf<typename Original::Functor>::type>;
};

template <class Op>
constexpr uint32_t is_tensor_of() {
  uint32_t is_tensor = 0;
  for (int i = 0; i < Op::signature.count; i++) is_tensor |= uint32_t{Op::signature.arguments[i].is_tensor()} << i;
  return is_tensor;
}
template <class Op>
using OriginalOf = Original<typename Op::Functor, is_tensor_of<Op>()>;

// Writes the declaration of a derivative operator, and returns its length. layout.h, _layer/rows.py and
// _layer/row_derivatives.py recognise its arguments by these names.
template <class Original>
constexpr size_t write(char* to, const Signature& of, Role role) {
  DeclarationWriter declaration{to};
  declaration.begin(of, "_", kRoles[static_cast<int>(role)]);
  declaration.add_each("Tensor grad__", takes_grads(role) ? Original::kGrads : 0);
  declaration.add_each("Tensor reduced__", role == Role::gradients ? Original::kReduced : 0);
  if (role == Role::gradients && Original::kSoftmaxes) declaration.add("Tensor softmax__", Original::kSoftmax);
  declaration.add_each("Tensor tangent__", takes_tangents(role) ? Original::kTensors : 0);
  declaration.add_each("Tensor grad_tangent__", role == Role::second ? Original::kGrads : 0);
  if (role == Role::gradients) declaration.append(", int needs__");
  declaration.append(")");
  return declaration.size;
}
template <class Original, const Signature& of, Role role>
constexpr auto declaration() {
  Literal<write<Original>(nullptr, of, role) + 1> to;
  write<Original>(to.text, of, role);
  return to;
}

template <class Op, Role kRole>
struct DerivedOperator
    : Operator<declaration<OriginalOf<Op>, Op::signature, kRole>(), Derived<OriginalOf<Op>, kRole>, functional> {
  using Of = Op;
  static constexpr Role role = kRole;
  static constexpr const Signature& in_errors =
      kRole == Role::recorded ? Op::signature : DerivedOperator::Operator::signature;
  // For each gradient, the index of the argument whose shape it has.
  static constexpr auto arguments = OriginalOf<Op>::arguments;
  static constexpr const int* like = takes_grads(kRole) ? arguments.data() : nullptr;
};

template <class Op, Role role>
auto if_it_fits() {
  using P = OriginalOf<Op>;
  using Read = parameters::Of<Derived<P, role>, 0>;
  constexpr int more = P::count(typename Read::Arguments{}) - P::kArguments - (role == Role::gradients); // needs__
  constexpr bool fits =
      (role != Role::recorded || P::kReduced > 0) && P::fits(P::kInputs + more, P::count(typename Read::Results{}));
  return ListIf<fits, List<DerivedOperator<Op, role>>>{};
}

// The derivatives of an operator over rows, if it has any.
template <class Op>
auto family() {
  if constexpr (
      Op::is_differentiable && !std::is_same_v<FloatsOf<typename Op::Kernel::Dtypes>, List<>> &&
      OriginalOf<Op>::kGrads > 0 && OriginalOf<Op>::kTensors > 0) {
    using Gradients = decltype(if_it_fits<Op, Role::gradients>());
    using Tangent = decltype(if_it_fits<Op, Role::tangent>());
    static_assert(
        !std::is_same_v<Gradients, List<>> && !std::is_same_v<Tangent, List<>>,
        "a `differentiable` operator over rows has at most 16 tensors if those of type C count twice, at most 16 "
        "with its results of type C, and at most 17 with both: leave `differentiable` out of its entry in "
        "src/operators.h");
    return Joined<
        decltype(if_it_fits<Op, Role::recorded>()), Gradients, Tangent, decltype(if_it_fits<Op, Role::second>())>{};
  } else {
    return List<>{};
  }
}

} // namespace rows

namespace parameters {

template <class Original, rows::Role role>
constexpr bool is_of_rows<rows::Derived<Original, role>> = true;

template <class Original, rows::Role role, size_t kArguments>
struct Of<rows::Derived<Original, role>, kArguments> {
  static constexpr bool kAreRead = true;
  using Reduced = Repeated<double, Original::kReduced>;
  using Arguments = Joined<
      typename Original::Read::Arguments, ListIf<rows::takes_grads(role), typename Original::Results>,
      ListIf<role == rows::Role::gradients, Joined<Reduced, typename Original::Softmaxes, List<int64_t>>>,
      ListIf<rows::takes_tangents(role), typename Original::Tensors>,
      ListIf<role == rows::Role::second, typename Original::Results>>;
  using Results = Joined<
      ListIf<role == rows::Role::recorded, Joined<typename Original::Read::Results, Reduced>>,
      ListIf<role == rows::Role::tangent, typename Original::Results>,
      ListIf<rows::takes_grads(role), typename Original::Tensors>>;
};

} // namespace parameters
} // namespace elementwise
