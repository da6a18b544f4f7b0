// The gradients of an operator over rows, found by running its functor with dual numbers (dual.h). A row has the
// reductions s_0, s_1, ..., each computed from the elements and from the reductions before it, and results computed
// from the elements and from all reductions. As an example, rms_norm of a row x with the weights w:
//
//   s_0 = sum of x[j]^2        f = rsqrt(s_0 / n + eps)        y[j] = x[j] f w[j]
//
// Let h be the gradient that arrives for y. While the row is in the cache, we compute
//
//   1. the reductions, unless the forward pass has kept them, and the rows that the functor keeps. The functor runs
//      once;
//   2. the gradient g of each reduction, the last one first. The reduction is the variable and all else is constant, so
//      g_0 = sum of h[j] dy[j]/ds_0 = sum of h[j] x[j] w[j] df/ds_0. A later reduction that depends on this one adds
//      its own gradient times its derivative. A tensor with one value for each row is such a variable too, and comes
//      last;
//   3. the gradients of the elements. The reductions are constant, and each loop of the functor has its share:
//      gx[j] = g_0 ds_0/dx[j] + h[j] dy[j]/dx[j] = g_0 2 x[j] + h[j] f w[j], and gw[j] = h[j] dy[j]/dw[j].
//
// Step 3 is a single loop over j, however many loops the functor has, so that each element is read and written once.
// The functor runs once for each vector of elements, and each of its loops visits only these elements. Numbers such as
// f do not depend on j, so the compiler computes them before the loop.
//
// S is the type in which tensors store numbers, and B the type in which we compute. Both are a Dual in derivatives
// of the second order: then the result is the derivative of the gradients in one direction (family.h).
#pragma once

#include "row.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

// A run of the functor differentiates by one of these. With `nothing` it computes the reductions. `number` is a
// reduction, or a tensor with a value for each row. `elements` are some adjacent elements of the other tensors.
enum class By { nothing, number, elements };

// The index j, where the functor is differentiated with respect to element j of the i-th tensor.
template <int i>
struct Variable {
  int64_t j;
  ELEMENTWISE_INLINE operator int64_t() const {
    return j;
  }
};

// The factors of a product. If B is dual, the sum of those that are 0 has their tangents.
template <class B>
struct Factors {
  B nonzero; // the product of those that are not 0
  math::primal_t<B> zeros;
  B sum_of_zeros;
};

// Holds the values from which the gradient of a row is computed.
template <class S>
struct Given {
  const Source<S> source;
  const cpu::OneRow& row;
  const void* const* grads; // one for each result of type C
  const void* const* grad_tangents;
  const void* softmax;        // the result of row.softmax, if the functor returns it
  const void* const* reduced; // the results of the first reductions in the forward pass
  const int reduced_count;    // how many of these results have been kept
};

// The same, and what the runs of the functor have found so far.
template <class S, int tensors>
struct Known : Given<S> {
  using B = compute_t<S>;
  B value[kMost], gradient[kMost];             // of each reduction
  math::primal_t<B> ties[kMost], range[kMost]; // how many elements equal the maximum; results of row.range
  Factors<B> factors[kMost];                   // of a product
  int64_t place[kMost];                        // results of row.argmax
  struct Kept {
    B *value, *derivative[tensors + 1]; // the elements, and their derivatives with respect to each tensor's elements
  } kept[kMost];                        // rows that the functor keeps

  ELEMENTWISE_INLINE explicit Known(const Given<S>& given) : Given<S>(given) {}
};

// A kept row: the function that computes an element, the tensors that the function reads, and where the row lies.
template <class S, int tensors, class F>
struct KeptRow {
  F element;
  uint32_t reads;
  typename Known<S, tensors>::Kept at;
};

// The softmax p = exp(x - z) that the forward pass returned. z is a reduction, the logarithm of the sum of exp(x), and
// its derivative is the sum of p dx. So the derivative of p is p (dx - dz).
template <class Pass, class X>
struct KnownSoftmax {
  Pass* pass;
  X exponent;
  uint32_t reads;
  int reduction; // the index of z
  template <class P>
  ELEMENTWISE_INLINE operator Probabilities<P>() const {
    pass->write_softmax(*this);
    return {};
  }
};

template <class X> // a kept row, or the softmax
  requires requires(const X& x) { x.reads; }
ELEMENTWISE_INLINE uint32_t reads(const X& x) {
  return x.reads;
}

// A tensor of the functor, by its index, as a type.
template <int k>
using TensorAt = std::integral_constant<int, k>;

// One run of the functor. `Tensors` lists the indices of tensors that have a value for each element and a derivative.
// By::elements has as many elements at a time as `Lanes` has.
template <class S, class Returned, class Tensors, By kBy, template <class> class Lanes = One>
struct Pass;
template <class S, class... R, int... kTensor, By kBy, template <class> class Lanes>
struct Pass<S, List<R...>, List<TensorAt<kTensor>...>, kBy, Lanes>
    : Row<Pass<S, List<R...>, List<TensorAt<kTensor>...>, kBy, Lanes>, Dual<compute_t<S>>, R...> {
  using B = compute_t<S>;
  using C = Dual<B>;
  using P = math::primal_t<B>;
  static constexpr bool derives = true;
  static constexpr bool has_softmax = !kIsDual<B> && (parameters::is_a<R, Probabilities> || ...);
  static constexpr int kTensors = sizeof...(kTensor);

  Known<S, kTensors>& known;
  const Source<S>& source = known.source;
  const int number; // the variable of By::number: a reduction's index, or kMost + a tensor's index
  const int64_t j;  // the first element of By::elements
  B gradient = 0;   // of the number
  P divisor = 1;    // of the gradient: a mean is a sum divided by the size
  // The gradients of the elements. Sums begin with 0 and are never -0, so the compiler may leave out shares of 0.
  Array<Lanes<B>, kTensors ? kTensors : 1> gradients = {};
  int reductions = 0, ranges = 0, places = 0, results = 0, kept_rows = 0, found = 0;
  bool is_read = false; // whether the functor has called row.softmax

  ELEMENTWISE_INLINE explicit Pass(Known<S, kTensors>& known, int number = -1, int64_t j = 0)
      : known(known), number(number), j(j) {}

  template <int i>
  ELEMENTWISE_INLINE static constexpr int tensor() { // the index of the i-th of `Tensors`
    const int indices[] = {kTensor...};
    return indices[i];
  }
  ELEMENTWISE_INLINE static void for_tensors(const auto& f) {
    [&]<int... i>(std::integer_sequence<int, i...>)
        ELEMENTWISE_LAMBDA { (f.template operator()<i>(), ...); }(std::make_integer_sequence<int, kTensors>{});
  }

  // ---- Elements.
  using Row<Pass, C, R...>::load;
  ELEMENTWISE_INLINE C load(Elements<C> x, int64_t j) const {
    return {passes::element<S>(source.tangents, x.index, x.data, j), B(0)};
  }
  template <int i>
  ELEMENTWISE_INLINE C load(Elements<C> x, Variable<i> at) const {
    return {passes::element<S>(source.tangents, x.index, x.data, at.j), B(x.index == tensor<i>() ? 1 : 0)};
  }
  template <class F>
  ELEMENTWISE_INLINE C load(const KeptRow<S, kTensors, F>& x, int64_t j) const {
    if constexpr (kBy == By::number)
      return {x.at.value[j], x.element(j).derivative};
    else
      return {x.at.value[j], B(0)};
  }
  template <class F, int i>
  ELEMENTWISE_INLINE C load(const KeptRow<S, kTensors, F>& x, Variable<i> at) const {
    return {x.at.value[at.j], x.reads >> tensor<i>() & 1 ? x.at.derivative[i][at.j] : B(0)};
  }
  // The value of a tensor that has one for each row.
  ELEMENTWISE_INLINE C number_of(int index, const void* data) const {
    return {passes::element<B>(source.tangents, index, data, 0), B(kMost + index == number)};
  }

  ELEMENTWISE_INLINE auto keep_terms(const auto& element, auto... x) {
    const uint32_t read = (0 | ... | reads(x));
    auto& at = known.kept[at_most(kept_rows)];
    if constexpr (kBy == By::nothing) {
      at.value = buffer(0);
      for (int i = 0; i < kTensors; i++) at.derivative[i] = buffer(i + 1);
      bool is_found = false;
      for_tensors([&]<int i>() ELEMENTWISE_LAMBDA {
        if (!(read >> tensor<i>() & 1)) return;
        const DualRow<B> to{at.value, at.derivative[i]};
        keep_row(to, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return element(Variable<i>{j}); });
        is_found = true;
      });
      if (!is_found) keep_row(at.value, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return element(j).value; });
    }
    kept_rows++;
    return KeptRow<S, kTensors, std::remove_cvref_t<decltype(element)>>{element, read, at};
  }

  // Each vector of By::elements runs all loops, and reads what they read.
  ELEMENTWISE_INLINE void begin_loop(const auto&... x) {
    if constexpr (kBy != By::elements) Row<Pass, C, R...>::begin_loop(x...);
  }

  // ---- The softmax that the functor returns.
  ELEMENTWISE_INLINE auto read_softmax(const auto& f, auto... x) {
    begin_loop(x...);
    if (is_read) stop("a functor that returns Probabilities must call row.softmax once");
    is_read = true;
    const auto exponent = this->terms(f, x...);
    const KnownSoftmax<Pass, std::remove_cv_t<decltype(exponent)>> softmax{
        this, exponent, (0 | ... | reads(x)), reductions};
    if constexpr (kBy == By::number)
      add_to_gradient(
          [&](int64_t j) ELEMENTWISE_LAMBDA { return C{B(0), scaled(exponent(j).derivative, probability(j))}; }, x...);
    at_most(reductions++);
    return softmax;
  }
  template <class X>
  ELEMENTWISE_INLINE C load(const KnownSoftmax<Pass, X>& x, auto j) const {
    C p{probability(j), B(0)};
    if constexpr (kBy == By::number || !std::is_same_v<decltype(j), int64_t>)
      p.derivative = scaled(x.exponent(j).derivative, p.value);
    if constexpr (kBy == By::number) p.derivative = p.derivative - p.value * B(x.reduction == number);
    return p;
  }
  ELEMENTWISE_INLINE void write_softmax(const auto& x) {
    const auto probability = [&](auto j) ELEMENTWISE_LAMBDA { return load(x, j); };
    if constexpr (kBy == By::elements) // adds the share of z too, because it multiplies the same derivatives
      add(
          probability,
          [this, result = next_result(), g = known.gradient[x.reduction]](int64_t j)
              ELEMENTWISE_LAMBDA { return grad(result, j) + g; },
          x);
    else
      write<C>(probability, x);
  }

  // ---- Reductions.
  template <class Reduction>
  ELEMENTWISE_INLINE C reduce_terms(const Reduction& reduction, const auto& f, auto... x) {
    if constexpr (kBy == By::nothing) {
      const auto value = [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).value; };
      known.value[at_most(reductions)] = kept_or<B>([&] { return reduction(source.size, value); });
    }
    if constexpr (std::is_same_v<Reduction, Max>)
      add_by_maximum(f, x...);
    else if constexpr (std::is_same_v<Reduction, Product>)
      add_by_product(f, x...);
    else
      add_to_gradient(f, x...);
    if constexpr (std::is_same_v<Reduction, Mean>)
      if (reductions == number) divisor = P(int64_t{source.size});
    return next_reduction();
  }
  ELEMENTWISE_INLINE P reduce_terms(Range, const auto& f, auto...) {
    if constexpr (kBy == By::nothing) known.range[at_most(ranges)] = kept_or<P>([&] { return Max{}(source.size, f); });
    return known.range[ranges++];
  }
  ELEMENTWISE_INLINE C element(Elements<C> x, int64_t place) {
    if constexpr (kBy == By::nothing) {
      check_computed_place(place, source.size);
      known.value[at_most(reductions)] = read_one<B>(
          source.size, place, kept_rows > 0, [&](int64_t j) ELEMENTWISE_LAMBDA { return this->load(x, j).value; });
    }
    if constexpr (kBy == By::elements) {
      const int64_t lane = place - j;
      if (lane >= 0 && lane < Lanes<B>::kSize)
        for_tensors([&]<int i>() ELEMENTWISE_LAMBDA {
          if (x.index != tensor<i>()) return;
          update(gradients.each[i], [lane, g = known.gradient[reductions]](B sum, int k) ELEMENTWISE_LAMBDA {
            return sum + math::choose(k == lane, g, B(0));
          });
        });
    }
    return next_reduction();
  }
  ELEMENTWISE_INLINE int64_t argmax_of(const auto& f, auto...) {
    if constexpr (kBy == By::nothing) known.place[at_most(places)] = place_of_max(source.size, f);
    return known.place[places++];
  }

  // ---- Results.
  template <class To>
  ELEMENTWISE_INLINE int write([[maybe_unused]] const auto& f, [[maybe_unused]] auto... x) {
    [[maybe_unused]] const int result = next_result();
    if constexpr (kIsDual<To> && kBy != By::nothing)
      add(f, [this, result](int64_t j) ELEMENTWISE_LAMBDA { return grad(result, j); }, x...);
    return 0; // the forward pass has checked what the functor returns
  }
  // Adds the shares of the results that have one value for each row. The functor returned these.
  ELEMENTWISE_INLINE void finish(const auto& returned) {
    for_each_result(List<R...>{}, returned, [&]<int index, class Result>(const auto& value) ELEMENTWISE_LAMBDA {
      if constexpr (std::is_same_v<Result, parameters::AnyC>)
        gradient = gradient + weighted(C(value).derivative, grad<B>(ResultIndex<R...>::among_c(index), 0));
    });
  }

 private:
  ELEMENTWISE_INLINE B* buffer(int k) {
    return static_cast<B*>(known.row.scratch(known.row.run, kept_rows * (1 + kTensors) + k, source.size * sizeof(B)));
  }
  ELEMENTWISE_INLINE B probability(int64_t j) const {
    return passes::element<S>(nullptr, 0, known.softmax, j);
  }
  // An author's first test hits this limit, because the number of reductions is the same in every call.
  ELEMENTWISE_INLINE static int at_most(int count) {
    if (kBy == By::nothing && count >= kMost)
      stop(
          "a functor over rows with derivatives has more than six reductions and calls of row.at, or keeps more than "
          "six rows");
    return count;
  }
  // Returns the result that a reduction had in the forward pass if it has been kept. Otherwise computes it.
  template <class T>
  ELEMENTWISE_INLINE T kept_or(const auto& reduction) {
    const int k = found++;
    return k < known.reduced_count ? static_cast<T>(*static_cast<const double*>(known.reduced[k])) : reduction();
  }
  ELEMENTWISE_INLINE C next_reduction() {
    const int k = reductions++;
    return {known.value[k], B(k == number)};
  }
  ELEMENTWISE_INLINE void add_to_gradient([[maybe_unused]] const auto& f, [[maybe_unused]] auto... x) {
    if (number < kMost && reductions <= number) return;
    const B g = known.gradient[reductions];
    if constexpr (kBy == By::number) // one product for the row
      gradient =
          gradient +
          weighted(sum_of_shares(f, [](const B& derivative, int64_t) ELEMENTWISE_LAMBDA { return derivative; }), g);
    else
      add(f, [g](int64_t) ELEMENTWISE_LAMBDA { return g; }, x...);
  }

  // Elements that tie for the maximum share its derivative.
  ELEMENTWISE_INLINE void add_by_maximum(const auto& f, auto... x) {
    const auto is_most = [&f, this, k = reductions](auto j)
                             ELEMENTWISE_LAMBDA { return math::primal(f(j)) == math::primal(known.value[k]); };
    if constexpr (kBy == By::nothing)
      known.ties[reductions] = Sum{}(source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return P(is_most(j)); });
    const P share = 1 / known.ties[reductions]; // infinite if the maximum is NaN, and then 0 * share is NaN
    add_to_gradient(
        [&](auto j) ELEMENTWISE_LAMBDA { return C{B(0), scaled(f(j).derivative, B(P(is_most(j)) * share))}; }, x...);
  }
  // The derivative by a factor is the product of the others. If two of these are 0, so is the derivative's tangent.
  ELEMENTWISE_INLINE void add_by_product(const auto& f, auto... x) {
    const auto is_zero = [](const B& factor) ELEMENTWISE_LAMBDA { return math::primal(factor) == 0; };
    const auto nonzero = [=](const B& factor)
                             ELEMENTWISE_LAMBDA { return math::choose(is_zero(factor), B(1), factor); };
    auto& factors = known.factors[reductions];
    if constexpr (kBy == By::nothing) {
      const auto each = [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).value; };
      factors.nonzero = Product{}(source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return nonzero(each(j)); });
      factors.zeros = Sum{}(source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return P(is_zero(each(j))); });
      factors.sum_of_zeros = Sum{}(
          source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return math::choose(is_zero(each(j)), each(j), B(0)); });
    }
    add_to_gradient(
        [&](auto j) ELEMENTWISE_LAMBDA {
          const C factor = f(j);
          const B own = math::choose(is_zero(factor.value), factor.value, B(0));
          const P other_zeros = factors.zeros - P(is_zero(factor.value));
          const B zero = math::choose(other_zeros == 1, factors.sum_of_zeros - own, B(0));
          const B others = factors.nonzero / nonzero(factor.value);
          return C{B(0), scaled(factor.derivative, scaled(math::choose(other_zeros == 0, B(1), zero), others))};
        },
        x...);
  }

  // The derivative times a gradient. If nobody used one of several results, its gradient is 0, and so are those of
  // the reductions that only this result reads. They add nothing, even if a derivative is infinite.
  ELEMENTWISE_INLINE static B weighted(const B& derivative, const B& gradient) {
    if constexpr ((parameters::is_of_c<R> + ...) > 1)
      return product_or_zero(derivative, gradient);
    else
      return scaled(derivative, gradient);
  }
  // Adds weight(j) times the derivative of f(j), for all elements or for those of this run.
  ELEMENTWISE_INLINE void add(
      [[maybe_unused]] const auto& f, [[maybe_unused]] const auto& weight, [[maybe_unused]] auto... x) {
    if constexpr (kBy == By::number)
      gradient = gradient + sum_of_shares(f, [&](const B& derivative, int64_t j) ELEMENTWISE_LAMBDA {
                   return weighted(derivative, weight(j));
                 });
    if constexpr (kBy == By::elements)
      for_tensors([&]<int i>() ELEMENTWISE_LAMBDA {
        if (!((0 | ... | reads(x)) >> tensor<i>() & 1) || is_zero(f(Variable<i>{j}).derivative)) return;
        update(gradients.each[i], [&](B sum, int k) ELEMENTWISE_LAMBDA {
          return sum + weighted(f(Variable<i>{j + k}).derivative, weight(j + k));
        });
      });
  }
  // Returns the sum of share(f'(j), j), where f'(j) is the derivative of f(j).
  ELEMENTWISE_INLINE B sum_of_shares(const auto& f, const auto& share) const {
    if (source.size == 0 || is_zero(f(source.size.first()).derivative)) return 0;
    return Sum{}(source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return share(f(j).derivative, j); });
  }
  // Whether the compiler knows that a derivative is 0. Then it has no share.
  ELEMENTWISE_INLINE static bool is_zero([[maybe_unused]] const B& x) {
#if defined(__GNUC__) && !defined(ELEMENTWISE_IS_CUDA)
    if constexpr (!kIsDual<B>) return __builtin_constant_p(x) && x == 0;
#endif
    return false;
  }

  template <class Stored = S>
  ELEMENTWISE_INLINE B grad(int result, int64_t j) const {
    return passes::element<Stored>(known.grad_tangents, result, known.grads[result], j);
  }
  // The index, among the results of type C, of the result that the functor writes next.
  ELEMENTWISE_INLINE int next_result() {
    return ResultIndex<R...>::among_c(ResultIndex<R...>::of_elements(results++));
  }
};

// Returns the gradient of one number.
template <class RowFunctor, class Tensors, class S, int tensors>
ELEMENTWISE_INLINE auto by_number(Known<S, tensors>& known, int number) {
  using B = compute_t<S>;
  Pass<S, typename RowFunctor::Returned, Tensors, By::number> pass(known, number);
  pass.finish(RowFunctor::template call<Dual<B>>(pass));
  return pass.gradient / B(pass.divisor);
}
// `known` is a copy. If another function might keep a pointer to it, the compiler would load all its numbers again
// after each element that is written.
template <class RowFunctor, class Tensors, class S, int tensors>
ELEMENTWISE_CALLED auto by_any_number(Known<S, tensors> known, int number) {
  return by_number<RowFunctor, Tensors>(known, number);
}

// All gradients of a row, by tensors with a value for each element (`kTensor`), and with one for each row (`kNumber`).
// The gradient by tensor k is written to to[k], unless that is null. If bit k of `added` is set, it is added to what is
// there.
template <class RowFunctor, class S, int... kTensor, int... kNumber>
ELEMENTWISE_INLINE void gradients(
    Known<S, sizeof...(kTensor)>& known, List<TensorAt<kTensor>...>, List<TensorAt<kNumber>...>, void* const* to,
    uint32_t added) {
  using B = compute_t<S>;
  using P = math::primal_t<B>;
  using Tensors = List<TensorAt<kTensor>...>;
  Pass<S, typename RowFunctor::Returned, Tensors, By::nothing> found(known);
  RowFunctor::template call<Dual<B>>(found);

  // The functor is compiled once more for each of the first two reductions, and once for all others.
  ELEMENTWISE_UNROLL
  for (int k = kMost - 1; k > 1; k--)
    if (k < found.reductions) known.gradient[k] = by_any_number<RowFunctor, Tensors>(known, k);
  if (1 < found.reductions) known.gradient[1] = by_number<RowFunctor, Tensors>(known, 1);
  if (0 < found.reductions) known.gradient[0] = by_number<RowFunctor, Tensors>(known, 0);
  [[maybe_unused]] const auto set = [&](void* to, int index) {
    if (!to) return;
    const auto gradient = written(by_any_number<RowFunctor, Tensors>(known, kMost + index));
    once(known.source.size, [&] { *static_cast<P*>(to) = gradient; });
  };
  (set(to[kNumber], kNumber), ...);

  if constexpr (sizeof...(kTensor) > 0) {
    void* const rows[] = {to[kTensor]...};
    uint32_t added_rows = 0;
    int i = 0;
    ((added_rows |= (added >> kTensor & 1) << i++), ...);
    const auto functor = RowFunctor::template with_arguments<Dual<B>>(found);
    known.source.size.always_read(~uint32_t{0});
    write_rows(rows, added_rows, known.source.size, [&]<template <class> class Lanes>(int64_t j) ELEMENTWISE_LAMBDA {
      Pass<S, typename RowFunctor::Returned, Tensors, By::elements, Lanes> pass(known, -1, j);
      functor(pass);
      return pass.gradients;
    });
  }
}

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET
