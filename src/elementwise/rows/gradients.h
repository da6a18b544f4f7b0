// The gradients of an operator over rows, found by running its functor with dual numbers (dual.h). A row has the
// reductions s_0, s_1, ..., each computed from the elements and from the reductions before it, and results computed
// from the elements and from all reductions. As an example, rms_norm of a row x with the weights w:
//
//   s_0 = sum of x[j]^2        f = rsqrt(s_0 / n + eps)        y[j] = x[j] f w[j]
//
// Let h be the gradient that arrives for y. While the row is in the cache, the functor runs over it
//
//   1. once to find the reductions, and the rows that it keeps;
//   2. once for each reduction, the last one first, to find its gradient g. The reduction is the variable and all else
//      is constant, so g_0 = sum of h[j] dy[j]/ds_0 = sum of h[j] x[j] w[j] df/ds_0. A later reduction that depends on
//      this one adds its own gradient times its derivative. A tensor with one value for each row is such a variable
//      too, and comes last;
//   3. once for the elements. The reductions are constant, and each loop of the functor adds its share:
//      gx[j] = g_0 ds_0/dx[j] + h[j] dy[j]/dx[j] = g_0 2 x[j] + h[j] f w[j], and gw[j] = h[j] dy[j]/dw[j].
//
// B is the type of the numbers. It is itself a Dual in derivatives of the second order: then the result is the
// derivative of the gradients in one direction (family.h).
#pragma once

#include "row.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

// What a pass differentiates with respect to. `nothing`: it computes the reductions. `number`: one reduction, or one
// tensor with a value for each row. `elements`: the elements of the other tensors.
enum class By { nothing, number, elements };

// The index j, where the functor is differentiated with respect to element j of the i-th tensor.
template <int i>
struct Variable {
  int64_t j;
  ELEMENTWISE_INLINE operator int64_t() const {
    return j;
  }
};

// The inputs of a row, and what its passes have found.
template <class B>
struct Known {
  const Source& source;
  const cpu::OneRow& row;
  const void* const* grads; // one for each result of type C
  const void* const* grad_tangents;
  const void* softmax;                         // the result of row.softmax, if the functor returns it
  B value[kMost], gradient[kMost];             // of each reduction
  math::primal_t<B> ties[kMost], range[kMost]; // how many elements equal the maximum; results of row.range
  int64_t place[kMost];

  ELEMENTWISE_INLINE Known(
      const Source& source, const cpu::OneRow& row, const void* const* grads, const void* const* grad_tangents,
      const void* softmax)
      : source(source), row(row), grads(grads), grad_tangents(grad_tangents), softmax(softmax) {}
};

// A row that the functor keeps: its elements, and their derivatives with respect to each tensor's elements.
template <class B, int tensors, class F, class Reads>
struct KeptRow {
  F element;
  Reads reads;
  B *value, *derivative[tensors + 1];
};
template <class B, int tensors, class F, class Reads>
ELEMENTWISE_INLINE bool reads(const KeptRow<B, tensors, F, Reads>& x, int tensor) {
  return x.reads(tensor);
}

// The softmax p = exp(x - z) that the forward pass returned. z is a reduction, the logarithm of the sum of exp(x), and
// its derivative is the sum of p dx. So that of p is p (dx - dz).
template <class Pass, class X, class Reads>
struct KnownSoftmax {
  Pass* pass;
  X exponent;
  Reads reads;
  int reduction; // the index of z
  template <class P>
  ELEMENTWISE_INLINE operator Probabilities<P>() const {
    pass->write_softmax(*this);
    return {};
  }
};
template <class Pass, class X, class Reads>
ELEMENTWISE_INLINE bool reads(const KnownSoftmax<Pass, X, Reads>& x, int tensor) {
  return x.reads(tensor);
}

// The part of a gradient that is written: in a derivative of the second order, its tangent.
template <class B>
ELEMENTWISE_INLINE math::primal_t<B> written(const B& x) {
  if constexpr (kIsDual<B>)
    return x.derivative;
  else
    return x;
}

// One run of the functor. `Tensors` lists the places of tensors that have a value for each element and a derivative.
template <class B, class Returned, class Tensors, By kBy>
struct Pass;
template <class B, class... R, int... kTensor, By kBy>
struct Pass<B, List<R...>, std::integer_sequence<int, kTensor...>, kBy>
    : Row<Pass<B, List<R...>, std::integer_sequence<int, kTensor...>, kBy>, Dual<B>> {
  using C = Dual<B>;
  using P = math::primal_t<B>;
  template <class T>
  static constexpr bool makes = (std::is_same_v<With<R, C>, Elements<T>> || ...);
  static constexpr bool derives = true;
  static constexpr bool has_softmax = !kIsDual<B> && (parameters::is_softmax<R> || ...);
  static constexpr int kTensors = sizeof...(kTensor);

  Known<B>& known;
  const Source& source;
  const int number = -1;         // the variable: a reduction's index, or kMost + a tensor's place
  void* const* to = nullptr;     // where each tensor's gradient goes, or null
  int shares[kTensors + 1] = {}; // of the loops in each tensor's gradient
  B total = 0;                   // the gradient of the variable
  bool is_begun[kTensors + 1] = {}, is_shifted[kTensors + 1] = {};
  P shift[kTensors + 1] = {}; // still to be added to every element of a gradient
  int reductions = 0, ranges = 0, places = 0, results = 0, kept_rows = 0;
  bool is_read = false; // whether the functor has called row.softmax

  ELEMENTWISE_INLINE explicit Pass(Known<B>& known) : known(known), source(known.source) {}
  ELEMENTWISE_INLINE Pass(Known<B>& known, int number) : known(known), source(known.source), number(number) {}
  ELEMENTWISE_INLINE Pass(Known<B>& known, void* const* to, const bool* are_begun)
      : known(known), source(known.source), to(to) {
    for_tensors([&]<int i>() ELEMENTWISE_LAMBDA { is_begun[i] = are_begun[i]; });
  }

  template <int i>
  ELEMENTWISE_INLINE static constexpr int tensor() { // the place of the i-th of `Tensors`
    const int places[] = {kTensor...};
    return places[i];
  }

  // ---- Elements.
  using Row<Pass, C>::load;
  ELEMENTWISE_INLINE C load(Elements<C> x, int64_t j) const {
    return {passes::element<B>(source, x.place, x.data, j), B(0)};
  }
  template <int i>
  ELEMENTWISE_INLINE C load(Elements<C> x, Variable<i> at) const {
    return {passes::element<B>(source, x.place, x.data, at.j), B(x.place == tensor<i>() ? 1 : 0)};
  }
  template <class F, class Reads>
  ELEMENTWISE_INLINE C load(const KeptRow<B, kTensors, F, Reads>& x, int64_t j) const {
    if constexpr (kBy == By::number)
      return {x.value[j], x.element(j).derivative};
    else
      return {x.value[j], B(0)};
  }
  template <class F, class Reads, int i>
  ELEMENTWISE_INLINE C load(const KeptRow<B, kTensors, F, Reads>& x, Variable<i> at) const {
    return {x.value[at.j], x.reads(tensor<i>()) ? x.derivative[i][at.j] : B(0)};
  }
  // The value of a tensor that has one for each row.
  ELEMENTWISE_INLINE C lifted(int place, const void* data, int64_t j) const {
    return {passes::element<B>(source, place, data, j), B(kMost + place == number)};
  }

  template <class F, class... X>
  ELEMENTWISE_INLINE auto keep(const F& f, X... x) {
    const auto element = this->terms(f, x...);
    const auto reads_one = [x...](int tensor) ELEMENTWISE_LAMBDA { return (reads(x, tensor) || ...); };
    KeptRow<B, kTensors, decltype(element), decltype(reads_one)> row{element, reads_one, nullptr, {}};
    row.value = buffer();
    for (int i = 0; i < kTensors; i++) row.derivative[i] = buffer();
    if constexpr (kBy == By::nothing) {
      bool is_found = false;
      for_tensors([&]<int i>() ELEMENTWISE_LAMBDA {
        if (!reads_one(tensor<i>())) return;
        const DualRow<B> to{row.value, row.derivative[i]};
        write_row(to, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return element(Variable<i>{j}); });
        is_found = true;
      });
      if (!is_found) write_row(row.value, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return element(j).value; });
    }
    return row;
  }

  // ---- The softmax that the functor returns.
  template <class F, class... X>
  ELEMENTWISE_INLINE auto read_softmax(const F& f, X... x) {
    if (is_read) stop("a functor that returns Probabilities must call row.softmax once");
    is_read = true;
    const auto exponent = this->terms(f, x...);
    const auto reads_one = [x...](int tensor) ELEMENTWISE_LAMBDA { return (reads(x, tensor) || ...); };
    const KnownSoftmax<Pass, decltype(exponent), decltype(reads_one)> softmax{this, exponent, reads_one, reductions};
    if constexpr (kBy == By::number)
      add_to_gradient(
          [&](int64_t j) ELEMENTWISE_LAMBDA { return C{B(0), scaled(exponent(j).derivative, probability(j))}; }, x...);
    at_most(reductions++);
    return softmax;
  }
  template <class X, class Reads>
  ELEMENTWISE_INLINE C load(const KnownSoftmax<Pass, X, Reads>& x, int64_t j) const {
    const B p = probability(j);
    if constexpr (kBy == By::number)
      return {p, scaled(x.exponent(j).derivative, p) - p * B(x.reduction == number)};
    else
      return {p, B(0)};
  }
  template <class X, class Reads, int i>
  ELEMENTWISE_INLINE C load(const KnownSoftmax<Pass, X, Reads>& x, Variable<i> at) const {
    const B p = probability(at.j);
    return {p, scaled(x.exponent(at).derivative, p)};
  }
  // Adds the shares of z and of the result in one loop.
  template <class X, class Reads>
  ELEMENTWISE_INLINE void write_softmax(const KnownSoftmax<Pass, X, Reads>& x) {
    const auto probability = [&](auto j) ELEMENTWISE_LAMBDA { return load(x, j); };
    if constexpr (kBy == By::elements) {
      const int result = place_of_elements(results++);
      add<false>(
          probability,
          [this, result, g = known.gradient[x.reduction]](int64_t j) ELEMENTWISE_LAMBDA { return grad(result, j) + g; },
          x);
    } else {
      write<C>(probability, x);
    }
  }

  // ---- Reductions.
  template <class F, class... X>
  ELEMENTWISE_INLINE C sum_terms(const F& f, [[maybe_unused]] X... x) {
    if constexpr (kBy == By::nothing) {
      count(x...);
      known.value[at_most(reductions)] =
          sum_of<B>(source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).value; });
    } else {
      add_to_gradient(f, x...);
    }
    return reduction();
  }
  // Elements that tie for the maximum share its derivative.
  template <class F, class... X>
  ELEMENTWISE_INLINE C max_terms(const F& f, [[maybe_unused]] X... x) {
    const auto is_most = [&f, this, k = reductions](auto j)
                             ELEMENTWISE_LAMBDA { return math::primal(f(j)) == math::primal(known.value[k]); };
    if constexpr (kBy == By::nothing) {
      count(x...);
      known.value[at_most(reductions)] =
          max_of<B>(source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).value; });
      known.ties[reductions] = sum_of<P>(source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return P(is_most(j)); });
    } else {
      const P share = 1 / known.ties[reductions];
      add_to_gradient(
          [&](auto j)
              ELEMENTWISE_LAMBDA { return C{B(0), scaled(f(j).derivative, B(math::choose(is_most(j), share, P(0))))}; },
          x...);
    }
    return reduction();
  }
  ELEMENTWISE_INLINE C element(Elements<C> x, int64_t j) {
    if constexpr (kBy == By::nothing) {
      count(x);
      known.value[at_most(reductions)] = load(x, j).value;
    }
    if constexpr (kBy == By::elements)
      for_tensors([&]<int i>() ELEMENTWISE_LAMBDA {
        if (x.place != tensor<i>() || !to[i]) return;
        settle<i>();
        const P more = written(known.gradient[reductions]);
        once([&] { static_cast<P*>(to[i])[j] += more; });
      });
    return reduction();
  }
  template <class F>
  ELEMENTWISE_INLINE P range_of(const F& f) {
    if constexpr (kBy == By::nothing) known.range[at_most(ranges)] = max_of<P>(source.size, f);
    return known.range[ranges++];
  }
  template <class F>
  ELEMENTWISE_INLINE int64_t argmax_of(const F& f) {
    if constexpr (kBy == By::nothing) known.place[at_most(places)] = place_of_max<P>(source.size, f);
    return known.place[places++];
  }

  // ---- Results.
  template <class To, class F, class... X>
  ELEMENTWISE_INLINE void write([[maybe_unused]] const F& f, [[maybe_unused]] X... x) {
    if constexpr (kBy == By::nothing && kIsDual<To>) count(x...);
    if constexpr (kBy != By::nothing && kIsDual<To>) {
      const int result = place_of_elements(results++);
      add<false>(f, [this, result](int64_t j) ELEMENTWISE_LAMBDA { return grad(result, j); }, x...);
    }
  }
  template <class Result>
  ELEMENTWISE_INLINE void finish(const Result& returned) {
    if constexpr (kBy == By::number) take<0, R...>(returned);
    if constexpr (kBy == By::elements)
      for_tensors([&]<int i>() ELEMENTWISE_LAMBDA {
        if (to[i]) settle<i>();
      });
  }

  ELEMENTWISE_INLINE B* buffer() {
    return static_cast<B*>(known.row.scratch(known.row.run, kept_rows++, source.size * sizeof(B)));
  }

 private:
  ELEMENTWISE_INLINE B probability(int64_t j) const {
    return static_cast<const B*>(known.softmax)[j];
  }
  template <class... X>
  ELEMENTWISE_INLINE void count([[maybe_unused]] X... x) {
    for_tensors([&]<int i>() ELEMENTWISE_LAMBDA { shares[i] += (reads(x, tensor<i>()) || ...); });
  }
  // An author's first test finds this, because the number of reductions is the same in every call.
  ELEMENTWISE_INLINE static int at_most(int count) {
    if (count >= kMost) stop("a functor over rows with derivatives has more than six reductions");
    return count;
  }
  ELEMENTWISE_INLINE C reduction() {
    const int k = reductions++;
    return {known.value[k], B(k == number)};
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE void add_to_gradient(const F& f, X... x) {
    const int k = reductions;
    if (number >= kMost || k > number)
      add<true>(f, [g = known.gradient[k]](int64_t) ELEMENTWISE_LAMBDA { return g; }, x...);
  }

  // Adds weight(j) times the derivative of f(j). If kSame is set, the weight is the same for all j.
  template <bool kSame, class F, class W, class... X>
  ELEMENTWISE_INLINE void add(const F& f, const W& weight, [[maybe_unused]] X... x) {
    if (source.size == 0) return;
    if constexpr (kBy == By::number) {
      const B one = f(int64_t{0}).derivative;
      if (is_known(one) && one == 0) return;
      total = total +
              sum_of<B>(source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return scaled(f(j).derivative, weight(j)); });
    } else {
      for_tensors([&]<int i>() ELEMENTWISE_LAMBDA {
        if (!(reads(x, tensor<i>()) || ...) || !to[i]) return;
        const B one = f(Variable<i>{0}).derivative;
        if (kSame && is_known(one)) {
          if (is_begun[i]) settle<i>();
          const P more = written(scaled(one, weight(0)));
          shift[i] = is_shifted[i] ? shift[i] + more : more;
          is_shifted[i] = true;
        } else {
          update<i>([&](int64_t j)
                        ELEMENTWISE_LAMBDA { return written(scaled(f(Variable<i>{j}).derivative, weight(j))); });
        }
      });
    }
  }
  // Adds share(j) to the gradient of a tensor. A pending shift is added first, so the order is that of the calls.
  template <int i, class Share>
  ELEMENTWISE_INLINE void update(const Share& share) {
    P* const gradient = static_cast<P*>(to[i]);
    const P shift = this->shift[i];
    if (is_begun[i] && is_shifted[i])
      write_row(gradient, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return (gradient[j] + shift) + share(j); });
    else if (is_begun[i])
      write_row(gradient, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return gradient[j] + share(j); });
    else if (is_shifted[i])
      write_row(gradient, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return shift + share(j); });
    else
      write_row(gradient, source.size, share);
    is_begun[i] = true;
    is_shifted[i] = false;
  }
  // Adds the pending shift. If nothing was written before, writes it, or zeros.
  template <int i>
  ELEMENTWISE_INLINE void settle() {
    const P shift = is_shifted[i] ? this->shift[i] : P(0);
    const bool is_needed = is_shifted[i] || !is_begun[i];
    is_shifted[i] = false;
    if (is_needed) update<i>([shift](int64_t) ELEMENTWISE_LAMBDA { return shift; });
  }
  // Whether the compiler knows the value of a derivative. If that is 0, there is no loop over it.
  ELEMENTWISE_INLINE static bool is_known([[maybe_unused]] const B& x) {
#if defined(__GNUC__) && !defined(ELEMENTWISE_IS_CUDA)
    if constexpr (!kIsDual<B>) return __builtin_constant_p(x);
#endif
    return false;
  }

  template <class F>
  ELEMENTWISE_INLINE static void for_tensors(const F& f) {
    [&]<int... i>(std::integer_sequence<int, i...>)
        ELEMENTWISE_LAMBDA { (f.template operator()<i>(), ...); }(std::make_integer_sequence<int, kTensors>{});
  }
  ELEMENTWISE_INLINE B grad(int result, int64_t j) const {
    const Source of_grads{source.size, 0, known.grads, known.grad_tangents, nullptr};
    return passes::element<B>(of_grads, result, known.grads[result], j);
  }
  // The place, among the results of type C, of the k-th one that has a value for each element.
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
  template <int place, class Q, class... Rest, class Result>
  ELEMENTWISE_INLINE void take(const Result& returned) {
    constexpr bool is_of_c = std::is_same_v<typename parameters::ElementOf<Q>::type, parameters::AnyC>;
    const auto one = [&](const auto& value) ELEMENTWISE_LAMBDA {
      if constexpr (std::is_same_v<Q, parameters::AnyC>) total = total + scaled(C(value).derivative, grad(place, 0));
    };
    if constexpr (requires { returned.first; }) {
      one(returned.first);
      if constexpr (sizeof...(Rest) > 0) take<place + is_of_c, Rest...>(returned.rest);
    } else {
      one(returned);
    }
  }
};

// The gradient of one number. It is not inlined, because each number needs a call.
template <class Bound, class Tensors, class B>
ELEMENTWISE_CALLED B by_number(Known<B>& known, int number) {
  Pass<B, typename Bound::Returned, Tensors, By::number> pass(known, number);
  pass.finish(Bound::template call<Dual<B>>(pass));
  return pass.total;
}

// All gradients of a row. `kNumber` are the places of tensors with one value for each row. The gradient of the i-th of
// the other tensors is added to what is in its memory, if bit i of `added` is set. If it has one share, the loop that
// computes the share adds it.
template <class Bound, class B, int... kTensor, int... kNumber>
ELEMENTWISE_INLINE void gradients(
    Known<B>& known, std::integer_sequence<int, kTensor...> tensors, void* const* of_tensors, uint32_t added,
    std::integer_sequence<int, kNumber...>, void* const* of_numbers) {
  using Tensors = decltype(tensors);
  using P = math::primal_t<B>;
  constexpr int kTensors = sizeof...(kTensor);
  Pass<B, typename Bound::Returned, Tensors, By::nothing> found(known);
  Bound::template call<Dual<B>>(found);
  ELEMENTWISE_UNROLL
  for (int k = kMost - 1; k >= 0; k--)
    if (k < found.reductions) known.gradient[k] = by_number<Bound, Tensors>(known, k);
  [[maybe_unused]] const auto set = [&](void* to, int place) {
    if (!to) return;
    const auto gradient = written(by_number<Bound, Tensors>(known, kMost + place));
    once([&] { *static_cast<P*>(to) = gradient; });
  };
  (set(*of_numbers++, kNumber), ...);
  void* to[kTensors + 1];
  bool are_begun[kTensors + 1] = {};
  for (int i = 0; i < kTensors; i++) {
    are_begun[i] = (added >> i & 1) && found.shares[i] <= 1;
    to[i] = (added >> i & 1) && !are_begun[i] ? found.buffer() : of_tensors[i];
  }
  Pass<B, typename Bound::Returned, Tensors, By::elements> pass(known, to, are_begun);
  pass.finish(Bound::template call<Dual<B>>(pass));
  for (int i = 0; i < kTensors; i++) {
    if (to[i] == of_tensors[i]) continue;
    P* const sums = static_cast<P*>(of_tensors[i]);
    const P* const more = static_cast<const P*>(to[i]);
    write_row(sums, known.source.size, [=](int64_t j) ELEMENTWISE_LAMBDA { return sums[j] + more[j]; });
  }
}

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET
