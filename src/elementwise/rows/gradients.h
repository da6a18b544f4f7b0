// The gradients of an operator over rows, made of its functor. A row has the reductions s_0 .. s_K, each made of the
// elements and of the reductions before it, and results made of the elements and of all reductions. While the row is in
// the cache, the functor goes over it
//
//   1. once to find the reductions;
//   2. once for each reduction q, with dual numbers whose derivative is by s_q while everything else is fixed: how much
//      each later reduction p depends on it, m[p][q], and how much the results do, weighted with their gradients, v[q].
//      From these follows the gradient of each reduction, the last one first: g[q] = v[q] + sum of g[p] m[p][q], p > q;
//   3. once for each tensor t, with duals whose derivative is by its elements: each gets the gradients of the results
//      and reductions times their derivatives.
//
// B is the number that this is done in: a dual one gives the derivative of the gradients in one direction, which serves
// the second order (family.h).
#pragma once

#include "row.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

// What is written of a gradient: its tangent, if it has one.
template <class B>
ELEMENTWISE_INLINE math::primal_t<B> written(const B& x) {
  if constexpr (kIsDual<B>)
    return x.derivative;
  else
    return x;
}

// What passes 2 and 3 have in common: duals whose derivative is by one thing, and reductions that are known.
template <class Self, class B, class Returned>
struct Linear;
template <class Self, class B, class... R>
struct Linear<Self, B, List<R...>> : Row<Self, Dual<B>> {
  template <class T>
  static constexpr bool makes = (std::is_same_v<With<R, Dual<B>>, Elements<T>> || ...);

  static constexpr bool buffers = false;
  Source source;
  const Kept<B>& kept;
  const void* const* grads; // of each result of C
  const void* const* grad_tangents;
  int reductions = 0, ranges = 0, places = 0, results = 0;

  ELEMENTWISE_INLINE Linear(
      const Source& source, const Kept<B>& kept, const void* const* grads, const void* const* grad_tangents)
      : source(source), kept(kept), grads(grads), grad_tangents(grad_tangents) {}

  template <class F>
  ELEMENTWISE_INLINE auto range_of(const F&) {
    return kept.range[ranges++];
  }
  template <class F>
  ELEMENTWISE_INLINE int64_t argmax_of(const F&) {
    return kept.place[places++];
  }
  // Of a maximum, the elements that are it share its derivative.
  template <class F>
  ELEMENTWISE_INLINE auto of_maximum(const F& f, int k) const {
    using P = math::primal_t<B>;
    const P most = math::primal(kept.value[k]), share = 1 / kept.ties[k];
    return [&f, most, share](int64_t j) {
      const Dual<B> x = f(j);
      return Dual<B>{x.value, scaled(x.derivative, B(math::choose(math::primal(x) == most, share, P(0))))};
    };
  }
  ELEMENTWISE_INLINE B grad(int result, int64_t j) const {
    const Source of_grads{source.size, 0, grads, grad_tangents, nullptr};
    return passes::element<B>(of_grads, result, grads[result], j);
  }

  template <class To, class F, class... X>
  ELEMENTWISE_INLINE void write(const F& f, X... x) {
    if constexpr (kIsDual<To>) this->self_().write_elements(f, place_of_elements(results++), x...);
  }
  template <class Result>
  ELEMENTWISE_INLINE void finish(const Result& returned) {
    take<0, R...>(returned);
  }

 protected:
  ELEMENTWISE_INLINE Self& self_() {
    return static_cast<Self&>(*this);
  }

 private:
  // The place of the k-th result of C that has elements, among all of C.
  ELEMENTWISE_INLINE static constexpr int place_of_elements(int k) {
    constexpr bool of_c[] = {std::is_same_v<typename parameters::ElementOf<R>::type, parameters::AnyC>...};
    constexpr bool of_row[] = {parameters::is_of_row<R>...};
    int place = 0;
    for (size_t i = 0; i < sizeof...(R); i++) {
      if (of_c[i] && !of_row[i] && k-- == 0) return place;
      place += of_c[i];
    }
    return 0;
  }
  template <int place, class P, class... Rest, class Result>
  ELEMENTWISE_INLINE void take(const Result& returned) {
    constexpr bool is_of_c = std::is_same_v<typename parameters::ElementOf<P>::type, parameters::AnyC>;
    const auto one = [&](const auto& value) {
      if constexpr (std::is_same_v<P, parameters::AnyC>) self_().take_row(value, place);
    };
    if constexpr (requires { returned.first; }) {
      one(returned.first);
      if constexpr (sizeof...(Rest) > 0) take<place + is_of_c, Rest...>(returned.rest);
    } else {
      one(returned);
    }
  }
};

// Pass 2, by the reduction q.
template <class B, class Returned>
struct ByReduction : Linear<ByReduction<B, Returned>, B, Returned> {
  using C = Dual<B>;
  const int q;
  B of_reductions[kMost] = {}, of_results = 0; // m[p][q] for each p, and v[q]

  ELEMENTWISE_INLINE ByReduction(
      const Source& source, const Kept<B>& kept, const void* const* grads, const void* const* grad_tangents, int q)
      : Linear<ByReduction, B, Returned>(source, kept, grads, grad_tangents), q(q) {}

  ELEMENTWISE_INLINE C lifted(int place, const void* data, int64_t j) const {
    return {passes::element<B>(this->source, place, data, j), B(0)};
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE C sum_terms(const F& f, X...) {
    const int p = this->reductions++;
    if (p > q) of_reductions[p] = sum_of<B>(this->source.size, [&](int64_t j) { return f(j).derivative; });
    return {this->kept.value[p], B(p == q ? 1 : 0)};
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE C max_terms(const F& f, X...) {
    return sum_terms(this->of_maximum(f, this->reductions));
  }
  ELEMENTWISE_INLINE C element(Elements<C>, int64_t) {
    const int p = this->reductions++;
    return {this->kept.value[p], B(p == q ? 1 : 0)};
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE void write_elements(const F& f, int result, X...) {
    of_results = of_results + sum_of<B>(this->source.size, [&](int64_t j) {
                   return scaled(f(j).derivative, this->grad(result, j));
                 });
  }
  ELEMENTWISE_INLINE void take_row(const C& value, int result) {
    of_results = of_results + scaled(value.derivative, this->grad(result, 0));
  }
};

// Pass 3, by the tensor t.
template <class B, class Returned, bool kOfRow>
struct ByTensor : Linear<ByTensor<B, Returned, kOfRow>, B, Returned> {
  using C = Dual<B>;
  using P = math::primal_t<B>;
  const int t;
  const B* const of_reductions; // their gradients
  P* const to;
  bool is_written = false;

  ELEMENTWISE_INLINE ByTensor(
      const Source& source, const Kept<B>& kept, const void* const* grads, const void* const* grad_tangents, int t,
      const B* of_reductions, void* to)
      : Linear<ByTensor, B, Returned>(source, kept, grads, grad_tangents),
        t(t),
        of_reductions(of_reductions),
        to(static_cast<P*>(to)) {}

  ELEMENTWISE_INLINE C lifted(int place, const void* data, int64_t j) const {
    return {passes::element<B>(this->source, place, data, j), B(place == t ? 1 : 0)};
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE C sum_terms(const F& f, X... x) {
    const int k = this->reductions++;
    const B factor = of_reductions[k];
    if (kOfRow || (reads(x, t) || ...)) add([&](int64_t j) { return scaled(f(j).derivative, factor); });
    return {this->kept.value[k], B(0)};
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE C max_terms(const F& f, X... x) {
    return sum_terms(this->of_maximum(f, this->reductions), x...);
  }
  ELEMENTWISE_INLINE C element(Elements<C> x, int64_t j) {
    const int k = this->reductions++;
    if (x.place == t) {
      zero();
      once([&] { to[j] += written(of_reductions[k]); });
    }
    return {this->kept.value[k], B(0)};
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE void write_elements(const F& f, int result, X... x) {
    if (kOfRow || (reads(x, t) || ...)) add([&](int64_t j) { return scaled(f(j).derivative, this->grad(result, j)); });
  }
  ELEMENTWISE_INLINE void take_row(const C& value, int result) {
    if constexpr (kOfRow) {
      zero();
      once([&] { *to += written(scaled(value.derivative, this->grad(result, 0))); });
    }
  }
  ELEMENTWISE_INLINE void zero() {
    if (!is_written) for_each(kOfRow ? 1 : this->source.size, [&](int64_t j) { to[j] = 0; });
    is_written = true;
  }

 private:
  template <class F>
  ELEMENTWISE_INLINE void add(const F& f) {
    if constexpr (kOfRow) {
      zero();
      const P sum = sum_of<P>(this->source.size, [&](int64_t j) { return written(f(j)); });
      once([&] { *to += sum; });
    } else if (is_written) {
      for_each(this->source.size, [&](int64_t j) { to[j] += written(f(j)); });
    } else {
      for_each(this->source.size, [&](int64_t j) { to[j] = written(f(j)); });
      is_written = true;
    }
  }
};

// The gradients that reach a functor's results, and what it is made of.
template <class Bound, class B>
struct Backward {
  using Returned = typename Bound::Returned;
  const Source& source;
  const void* const* grads;
  const void* const* grad_tangents;
  Kept<B> kept;
  int count;                                     // of reductions
  B of_reductions[kMost], depends[kMost][kMost]; // depends[q][p] is m[p][q]

  ELEMENTWISE_INLINE Backward(const Source& source, const void* const* grads, const void* const* grad_tangents)
      : source(source), grads(grads), grad_tangents(grad_tangents) {}

  ELEMENTWISE_INLINE void find_reductions() {
    Values<B, Returned, true> pass(source, nullptr);
    pass.kept = &kept;
    Bound::template call<B>(pass);
    count = pass.reductions;
  }
  ELEMENTWISE_INLINE void by_reduction(int q) {
    ByReduction<B, Returned> pass(source, kept, grads, grad_tangents, q);
    pass.finish(Bound::template call<Dual<B>>(pass));
    for (int p = 0; p < kMost; p++) depends[q][p] = pass.of_reductions[p];
    of_reductions[q] = pass.of_results;
  }
  ELEMENTWISE_INLINE void solve() {
    for (int q = count - 1; q >= 0; q--)
      for (int p = q + 1; p < count; p++) of_reductions[q] = of_reductions[q] + scaled(depends[q][p], of_reductions[p]);
  }
  template <bool kOfRow>
  ELEMENTWISE_INLINE void by_tensor(int t, bool is_wanted, void* to) const {
    if (t < 0 || !is_wanted) return;
    ByTensor<B, Returned, kOfRow> pass(source, kept, grads, grad_tangents, t, of_reductions, to);
    pass.finish(Bound::template call<Dual<B>>(pass));
    pass.zero();
  }
};

// All gradients of a row. kOfRow says of each tensor that has one whether it is one for each row; places, which of the
// functor's tensors these are, or -1; a bit of `wanted`, whether it is asked for.
template <class Bound, class B, bool... kOfRow, size_t... T>
ELEMENTWISE_INLINE void gradients(
    const Source& source, const void* const* grads, const void* const* grad_tangents, const int* places, int64_t wanted,
    void* const* to, std::integer_sequence<bool, kOfRow...>, std::index_sequence<T...>) {
  Backward<Bound, B> pass(source, grads, grad_tangents);
  pass.find_reductions();
  // Not one copy of the functor for each: what is by a reduction is the same for all elements.
  for (int q = 0; q < pass.count; q++) pass.by_reduction(q);
  pass.solve();
  (pass.template by_tensor<kOfRow>(places[T], wanted >> T & 1, to[T]), ...);
}

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET
