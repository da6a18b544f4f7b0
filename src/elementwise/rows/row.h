// How to write an operator over rows. A row is all elements of a tensor along one dimension: the last one, or the one
// that an `int dim` of the schema names. With `SymInt[] normalized_shape` it is all elements along the last dimensions,
// which must have these sizes. The functor's first parameter, a Row&, says that it works on rows:
//
//   Operator<"rms_norm(Tensor x, Tensor weight, float eps=1e-5)", RmsNorm, functional | differentiable>,
//
//   struct RmsNorm {
//     template <class C, class Row>
//     ELEMENTWISE_FUNCTION elementwise::Elements<C> operator()(
//         Row& row, elementwise::Elements<C> x, elementwise::Elements<C> weight, C eps) const {
//       const C squares = row.sum([](C x) { return x * x; }, x);
//       const C factor = elementwise::rsqrt(squares / row.size() + eps);
//       return row.each([=](C x, C w) { return x * factor * w; }, x, weight);
//     }
//   };
//
// The functor runs for each row, and several times for a long row that threads share (cpu/rows.h). So it must have no
// side effects, and must not be noexcept. After the row, it takes the arguments of the schema in their order. A tensor
// with a value for each element of a row is an Elements<C>. A C or another number is a tensor with one value for each
// row, or an argument that is not a tensor.
//
// A functor reads elements only through these members of the row. f is a function of elements, which reads one of each
// tensor x. Without f, a call takes the elements of one tensor: row.sum(x).
//
//   row.sum(f, x...)   row.mean   row.product   row.max   row.min   row.log_sum_exp
//   row.range(f, x...)                the maximum, without a derivative
//   row.reduce(identity, join, f, x...)
//   row.argmax(f, x...)   row.argmin  the first place of the maximum or minimum, an int64_t
//   row.at(x, place)                  one element
//   row.keep(f, x...)   row.softmax   a row, which later calls read like a tensor
//   row.each(f, x...)                 a result with a value for each element
//   row.size()   row.index()          the number of elements; the place of the row in the last dimension that is not
//                                     reduced
//   row.columns()                     an x whose elements are their places
//
// The page "Operators over rows" of the documentation of `muladd-nb` has the types of parameters and results, and says
// what each call promises.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "../cpu/work.h"
#include "../math/exponential.h"
#include "../math/logarithm.h"
#include "../math/rules.h"
#include "../operator.h"
#include "family.h"

// ELEMENTWISE_LAMBDA inlines a lambda of the layer. ELEMENTWISE_FLATTEN inlines everything that a function calls, also
// the lambdas of an author: a call in a loop would keep it from being vectorised. ELEMENTWISE_CALLED marks
// such a function that is itself called and not inlined.
#if defined(ELEMENTWISE_IS_CUDA)
#define ELEMENTWISE_LAMBDA
#define ELEMENTWISE_FLATTEN ELEMENTWISE_INLINE
#define ELEMENTWISE_CALLED ELEMENTWISE_INLINE
#define ELEMENTWISE_UNROLL _Pragma("unroll") // so that arrays of reductions stay in registers
#elif defined(__OPTIMIZE__)
#define ELEMENTWISE_LAMBDA __attribute__((always_inline))
#if defined(__AVX512F__) && !defined(__clang__)
#define ELEMENTWISE_FLATTEN [[gnu::flatten, gnu::target("prefer-vector-width=512")]] // see kRowVector in row_loops.h
#else
#define ELEMENTWISE_FLATTEN [[gnu::flatten]]
#endif
#define ELEMENTWISE_CALLED [[gnu::noinline]] ELEMENTWISE_FLATTEN
#define ELEMENTWISE_UNROLL
#else
#define ELEMENTWISE_LAMBDA
#define ELEMENTWISE_FLATTEN
#define ELEMENTWISE_CALLED
#define ELEMENTWISE_UNROLL
#endif

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

// Returns the part of a gradient that is written. In a derivative of the second order, this is its tangent.
template <class B>
ELEMENTWISE_INLINE math::primal_t<B> written(const B& x) {
  if constexpr (std::is_same_v<B, math::primal_t<B>>)
    return x;
  else
    return x.derivative;
}

// One number, where a loop otherwise computes a vector of them.
template <class B>
struct One {
  static constexpr int kSize = 1;
  B number;
  ELEMENTWISE_INLINE void write_to(auto* to) const {
    set(to, written(number));
  }
  ELEMENTWISE_INLINE void add_to(auto* to) const {
    *to = *to + written(number);
  }
};
template <class B>
ELEMENTWISE_INLINE void update(One<B>& one, const auto& f) {
  one.number = f(one.number, 0);
}

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET

#if defined(ELEMENTWISE_IS_CUDA)
#include "../cuda/team.h"
#else
#include "../cpu/row_loops.h"
#endif

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

constexpr int kMost = 6; // reductions, and kept rows, of a functor with derivatives

// Raises an error, because of an author's mistake that the compiler cannot detect. On CUDA the process ends.
[[noreturn]] ELEMENTWISE_INLINE void stop([[maybe_unused]] const char* sentence) {
#if defined(__CUDA_ARCH__)
  __trap();
  __builtin_unreachable();
#elif !defined(ELEMENTWISE_IS_CUDA)
  fail_because(sentence);
#else
  std::fprintf(stderr, "%s\n", sentence);
  std::abort();
#endif
}

// `Checked` has already refused wrong places that do not depend on elements. For the others, this throws (cpu/rows.h).
ELEMENTWISE_INLINE void check_computed_place(int64_t place, int64_t size) {
  check_place(place, size);
#if !defined(ELEMENTWISE_IS_CUDA)
  if (place < 0 || place >= size) fail_outside(place);
#endif
}

// One row: its length and index, and where the elements of each tensor begin. S is the type in which tensors of type C
// store them (row_loops.h).
template <class S>
struct Source {
  Extent<S> size;
  int64_t index;
  const void* const* data;
  const void* const* tangents; // one for each tensor of type C, if numbers are dual
  const Number* numbers;
};

// row.each returns Elements that name the result to which it has written: their index is kWritten minus the index of
// the result. The functor must return them in that order, because row.each writes to the results in the order of its
// calls.
constexpr int kWritten = -2;
[[noreturn]] ELEMENTWISE_INLINE void stop_for_order() {
  stop(
      "a functor over rows must call row.each once for each result with a value for each element, in the order of the "
      "results, and return what these calls return");
}

// Raises an error if x cannot be read.
template <class T>
ELEMENTWISE_INLINE void check_is_read(Elements<T> x) {
  if (x.index <= kWritten) stop("what row.each returns is a result, which cannot be read: use row.keep");
}
ELEMENTWISE_INLINE void check_is_read(const auto&) {}

// What row.columns() returns: reading it yields the place of the element.
struct Columns {};

// The function of elements of row.sum(x).
struct Itself {
  template <class C>
  ELEMENTWISE_INLINE C operator()(C x) const {
    return x;
  }
};

// The tensors whose elements are read where x is: bit k stands for tensor k.
template <class T>
ELEMENTWISE_INLINE uint32_t reads(Elements<T> x) {
  return x.index < 0 ? 0 : uint32_t{1} << x.index;
}
ELEMENTWISE_INLINE uint32_t reads(Columns) {
  return 0;
}
template <class T>
ELEMENTWISE_INLINE uint32_t reads(Optional<T> x) {
  return x ? reads(*x) : 0;
}

// row.softmax returns this. It has a row of powers and the inverse of their sum, and an element of the softmax is the
// product of the two. If the functor returns it, it becomes a result.
template <class Row, class Powers, class C>
struct Softmax {
  Row* row;
  Powers powers;
  C inverse;
  template <class P>
  ELEMENTWISE_INLINE operator Probabilities<P>() const {
    return {row->each([](P x) ELEMENTWISE_LAMBDA { return x; }, *this).index};
  }
};
template <class Row, class Powers, class C>
ELEMENTWISE_INLINE uint32_t reads(const Softmax<Row, Powers, C>& x) {
  return reads(x.powers);
}

template <class C>
constexpr bool kIsDual = parameters::is_a<C, Dual>;

// A reduction is a function of the number of terms, and of a function that returns the j-th term. These have
// derivatives (gradients.h).
template <class F>
using TermOf = std::decay_t<decltype(std::declval<F>()(int64_t{0}))>;

struct Sum {
  template <class F>
  ELEMENTWISE_INLINE TermOf<F> operator()(const auto& n, const F& f) const {
    return joined(n, TermOf<F>(0), [](auto a, auto b) ELEMENTWISE_LAMBDA { return a + b; }, f);
  }
};

struct Product {
  template <class F>
  ELEMENTWISE_INLINE TermOf<F> operator()(const auto& n, const F& f) const {
    return joined(n, TermOf<F>(1), [](auto a, auto b) ELEMENTWISE_LAMBDA { return a * b; }, f);
  }
};

// The mean, rounded once. The sum is a pair: a sum, and the error of its roundings (D. E. Knuth, The Art of
// Computer Programming, volume 2, section 4.2.2, theorem B).
struct Mean {
  template <class F, class C = TermOf<F>>
  ELEMENTWISE_INLINE C operator()(const auto& n, const F& f) const {
    if constexpr (kIsDual<C>) {
      using D = decltype(C::value);
      const D mean = Mean{}(n, [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).value; });
      const D sum = Sum{}(n, [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).derivative; });
      return {mean, sum / D(math::primal_t<D>(int64_t{n}))};
    } else {
      using Pair = Dual<C>;
      const auto join = [](const Pair& a, const Pair& b) ELEMENTWISE_LAMBDA {
        const C sum = a.value + b.value, of_b = sum - a.value;
        return Pair{sum, a.derivative + b.derivative + ((a.value - (sum - of_b)) + (b.value - of_b))};
      };
      const C none = C(-0.0); // the compiler can drop an addition of -0, but not one of 0
      const Pair sum =
          joined(n, Pair{none, none}, join, [&](int64_t j) ELEMENTWISE_LAMBDA { return Pair{f(j), none}; });
      const C size = static_cast<C>(int64_t{n}), mean = sum.value / size;
      if (mean - mean != 0) return mean; // infinite, or NaN
      return mean + (std::fma(-mean, size, sum.value) + sum.derivative) / size;
    }
  }
};

// The maximum, or NaN if the row has one. NaN is added up apart, because processors have an instruction for a maximum
// that passes over it. The derivative is the mean over all elements that tie for the maximum.
struct Max {
  template <class F, class C = TermOf<F>>
  ELEMENTWISE_INLINE C operator()(const auto& n, const F& f) const {
    if constexpr (kIsDual<C>) {
      using D = decltype(C::value);
      using P = math::primal_t<C>;
      const D most = Max{}(n, [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).value; });
      const P value = math::primal(most);
      const P ties =
          n == 0 ? 1 : Sum{}(n, [&](int64_t j) ELEMENTWISE_LAMBDA { return P(math::primal(f(j)) == value); });
      const D sum = Sum{}(n, [&](int64_t j) ELEMENTWISE_LAMBDA {
        const C x = f(j);
        return math::choose(math::primal(x) == value, x.derivative, D(0));
      });
      return {most, sum / D(ties)};
    } else if constexpr (std::is_floating_point_v<C>) {
      using Pair = Dual<C>;
      const auto join = [](const Pair& a, const Pair& b) ELEMENTWISE_LAMBDA {
        return Pair{b.value > a.value ? b.value : a.value, a.derivative + b.derivative};
      };
      const Pair all = joined(n, Pair{-math::kInfinity<C>, C(-0.0)}, join, [&](int64_t j) ELEMENTWISE_LAMBDA {
        const C x = f(j);
        return Pair{x, math::choose(x == x, C(-0.0), x)};
      });
      return all.derivative == 0 ? all.value : all.derivative;
    } else {
      return joined(n, C(math::kLowest<C>), [](C a, C b) ELEMENTWISE_LAMBDA { return b > a ? b : a; }, f);
    }
  }
};

// The maximum, without a derivative.
struct Range : Max {};

// Reverses the order of numbers, so that the minimum becomes the maximum. -x of an integer may be no number of its
// type.
template <class C>
ELEMENTWISE_INLINE C reversed(C x) {
  if constexpr (std::is_same_v<C, bool>)
    return !x;
  else if constexpr (std::is_integral_v<C>)
    return static_cast<C>(~x);
  else
    return -x;
}

// The place of the first element that is the maximum or NaN.
ELEMENTWISE_INLINE int64_t place_of_max(const auto& n, const auto& f) {
  const auto most = Max{}(n, f);
  return first_of(n, [&](int64_t j) {
    const auto x = f(j);
    return x == most || x != x;
  });
}

// Refuses a call whose function and tensors do not fit. It stands in each function that an author calls, because GCC
// shows the line that calls the one with the failed assertion.
#define ELEMENTWISE_CHECK(f, x)                                                                                        \
  static_assert(                                                                                                       \
      (fits<decltype(f), decltype(x)...>),                                                                             \
      "the function of elements comes first, takes one element of each tensor that follows it, and returns a number: " \
      "row.sum([](C x, C y) { return x * y; }, x, y)")

// ---- What an author calls. `Self` is the row of one kind of pass, C the type of its numbers, and R the results.
template <class Self, class C, class... R>
class Row {
 public:
  using Number = math::primal_t<C>;
  // Sums and products of integers are those of torch: an int8_t has too few bits.
  using Total = std::conditional_t<std::is_floating_point_v<Number>, C, int64_t>;
  static constexpr bool has_softmax = false; // whether the pass knows what row.softmax returned in the forward pass

  ELEMENTWISE_INLINE auto size() const {
    return static_cast<std::conditional_t<std::is_floating_point_v<Number>, Number, int64_t>>(
        int64_t{self().source.size});
  }
  ELEMENTWISE_INLINE int64_t index() const {
    return self().source.index;
  }
  ELEMENTWISE_INLINE Columns columns() const {
    return {};
  }

  ELEMENTWISE_INLINE Total sum(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    const Loop loop(*this, x...);
    return self().reduce_terms(Sum{}, terms<Total>(f, x...), x...);
  }
  ELEMENTWISE_INLINE C mean(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    static_assert(std::is_floating_point_v<Number>, "row.mean is for floating-point numbers");
    const Loop loop(*this, x...);
    return self().reduce_terms(Mean{}, terms(f, x...), x...);
  }
  ELEMENTWISE_INLINE C max(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    const Loop loop(*this, x...);
    return self().reduce_terms(Max{}, terms(f, x...), x...);
  }
  ELEMENTWISE_INLINE C min(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    return reversed(
        max([&](auto... element) ELEMENTWISE_LAMBDA { return reversed(converted<C>(f(element...))); }, x...));
  }
  template <class Join>
  ELEMENTWISE_INLINE C reduce(C identity, const Join& join, const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    static_assert(
        !Self::derives && !kIsDual<C>, "row.reduce has no derivative: leave `differentiable` out of the entry");
    static_assert(
        std::is_same_v<std::decay_t<std::invoke_result_t<Join, C, C>>, C>,
        "row.reduce joins numbers of type C, so `join` must return a C: an integer would be rounded to one");
    const Loop loop(*this, x...);
    const auto reduction = [&](const auto& n, const auto& f)
                               ELEMENTWISE_LAMBDA { return joined(n, identity, join, f); };
    return self().reduce_terms(reduction, terms(f, x...), x...);
  }
  ELEMENTWISE_INLINE Total product(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    const Loop loop(*this, x...);
    return self().reduce_terms(Product{}, terms<Total>(f, x...), x...);
  }
  ELEMENTWISE_INLINE Number range(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    const Loop loop(*this, x...);
    const auto value = [&](int64_t j) ELEMENTWISE_LAMBDA { return math::primal(of_elements<C>(f, j, x...)); };
    return self().reduce_terms(Range{}, value, x...);
  }
  ELEMENTWISE_INLINE C log_sum_exp(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    // Beside an infinite element, no finite one may overflow: its derivative is 0.
    const Number most = range(f, x...);
    const Number shift =
        math::choose(most - most == 0, most, math::choose(most > 0, Number(-math::kLowest<Number>), Number(0)));
    const auto power = [=](auto... element) ELEMENTWISE_LAMBDA { return exp(f(element...) - shift); };
    const C total = sum(power, x...);
    C all = log(total);
    // If the total is infinite, the derivative of the logarithm is 0, and that of the element infinite. In a functor
    // with several results their product would be 0 (`weighted` in gradients.h), so the first becomes NaN.
    if constexpr (kIsDual<C> && (0 + ... + parameters::is_of_c<R>) > 1)
      all.derivative = all.derivative + scaled(total.derivative, all.value - all.value);
    return all + shift;
  }
  ELEMENTWISE_INLINE auto softmax(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    if constexpr (Self::has_softmax) {
      return self().read_softmax(f, x...);
    } else {
      const Number most = range(f, x...);
      const auto power = [=](auto... element) ELEMENTWISE_LAMBDA { return exp(f(element...) - most); };
      const auto powers = keep(power, x...);
      return Softmax<Self, decltype(powers), C>{&self(), powers, 1 / sum(powers)}; // one division for the row
    }
  }
  ELEMENTWISE_INLINE int64_t argmax(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    const Loop loop(*this, x...);
    return self().argmax_of([&](int64_t j) ELEMENTWISE_LAMBDA { return compared(f(self().load(x, j)...)); }, x...);
  }
  ELEMENTWISE_INLINE int64_t argmin(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    return argmax([&](auto... element) ELEMENTWISE_LAMBDA { return reversed(f(element...)); }, x...);
  }
  ELEMENTWISE_INLINE C at(Elements<C> x, int64_t place) {
    if (Self::derives || x.index < 0) check_no_loop();
    if (has_loop_) self().source.size.need_whole_row();
    check_is_read(x);
    self().begin_loop(x);
    return self().element(x, place);
  }
  template <class X>
  ELEMENTWISE_INLINE C at(const X&, int64_t) {
    static_assert(
        sizeof(X) == 0,
        "row.at reads a tensor of type C, or a row that is kept, which has no derivative: leave "
        "`differentiable` out of the entry");
    return {};
  }
  ELEMENTWISE_INLINE auto each(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    const Loop loop(*this, x...);
    using T = decltype(f(self().load(x, 0)...));
    using To = std::conditional_t<makes<T>, T, C>;
    static_assert(
        makes<To> || (parameters::is_a<R, Probabilities> || ...),
        "the functor declares no result elementwise::Elements<T>, where T is the type that the function of row.each "
        "returns: declare one, or convert what the function returns, as in static_cast<int8_t>(x)");
    const auto element = [&](auto j) ELEMENTWISE_LAMBDA { return of_elements<To>(f, j, x...); };
    return Elements<To>{nullptr, kWritten - self().template write<To>(element, x...)};
  }

#define ELEMENTWISE_OF_ONE(reduction)      \
  template <class X>                       \
    requires(!std::is_invocable_v<X, C>)   \
  ELEMENTWISE_INLINE auto reduction(X x) { \
    return reduction(Itself{}, x);         \
  }
  ELEMENTWISE_OF_ONE(sum)
  ELEMENTWISE_OF_ONE(mean)
  ELEMENTWISE_OF_ONE(product)
  ELEMENTWISE_OF_ONE(max)
  ELEMENTWISE_OF_ONE(min)
  ELEMENTWISE_OF_ONE(range)
  ELEMENTWISE_OF_ONE(log_sum_exp)
  ELEMENTWISE_OF_ONE(softmax)
  ELEMENTWISE_OF_ONE(argmax)
  ELEMENTWISE_OF_ONE(argmin)
  ELEMENTWISE_OF_ONE(each)
#undef ELEMENTWISE_OF_ONE
  template <class X>
    requires(!std::is_invocable_v<X, C>)
  ELEMENTWISE_INLINE C reduce(C identity, const auto& join, X x) {
    return reduce(identity, join, Itself{}, x);
  }

  ELEMENTWISE_INLINE auto keep(const auto& f, auto... x) {
    ELEMENTWISE_CHECK(f, x);
    const Loop loop(*this, x...);
    return self().keep_terms(terms(f, x...), x...);
  }

  // Element j of a tensor. If its type is C, the pass says which number that is.
  template <class T>
  ELEMENTWISE_INLINE T load(Elements<T> x, int64_t j) const {
    if constexpr (std::is_same_v<T, C>)
      return self().element_of(x, j);
    else if constexpr (std::is_same_v<T, bool>)
      return static_cast<const RowBool*>(x.data)[j] != 0;
    else
      return static_cast<const T*>(x.data)[j];
  }
  template <class T>
  ELEMENTWISE_INLINE Optional<T> load(Optional<Elements<T>> x, auto j) const {
    return x ? Optional<T>{true, self().load(*x, j)} : Optional<T>{};
  }
  ELEMENTWISE_INLINE int64_t load(Columns, int64_t j) const {
    return j;
  }
  template <class Powers>
  ELEMENTWISE_INLINE C load(const Softmax<Self, Powers, C>& x, auto j) const {
    return self().load(x.powers, j) * x.inverse;
  }

 protected:
  ELEMENTWISE_INLINE void begin_loop(const auto&... x) {
    self().source.size.begin_loop((0 | ... | reads(x)));
  }
  template <class T = C>
  ELEMENTWISE_INLINE auto terms(const auto& f, auto... x) const {
    return [this, f, x...](auto j) ELEMENTWISE_LAMBDA { return this->template of_elements<T>(f, j, x...); };
  }
  // f of the j-th element of each x.
  template <class T>
  ELEMENTWISE_INLINE T of_elements(const auto& f, auto j, const auto&... x) const {
    return converted<T>(f(self().load(x, j)...));
  }
  template <class T, class X>
  ELEMENTWISE_INLINE static T converted(const X& x) {
    static_assert(
        !(std::is_integral_v<T> && std::is_floating_point_v<X>),
        "a function of elements returns integers where a row has integers: each fraction would be cut off, so convert "
        "what it returns, as in static_cast<C>(x)");
    return T(x);
  }
  // The number that row.argmax compares. Integers are not converted to C, where two of them may be equal.
  template <class T>
  ELEMENTWISE_INLINE static auto compared(const T& x) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, C>)
      return static_cast<std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>>(x);
    else if constexpr (std::is_integral_v<Number>)
      return x;
    else
      return math::primal(C(x));
  }

 private:
  // Guards against a loop inside of a function of elements. If threads share a row, the inner loop would end the phase
  // of the outer one. Also, a result may be written over a row that is kept.
  struct Loop {
    Row& row;
    ELEMENTWISE_INLINE explicit Loop(Row& row, const auto&... x) : row(row) {
      row.check_no_loop();
      (check_is_read(x), ...);
      row.self().begin_loop(x...);
      row.has_loop_ = true;
    }
    ELEMENTWISE_INLINE ~Loop() {
      row.has_loop_ = false;
    }
  };
  ELEMENTWISE_INLINE void check_no_loop() const {
    if (has_loop_)
      stop(
          "a function of elements called a reduction, row.each, row.keep or row.at: call it before, and use its result "
          "in the function");
  }
  bool has_loop_ = false;

  template <class F, class... X>
  static constexpr bool fits = requires(const Self& self, const F& f, const X&... x) {
    requires !std::is_void_v<decltype(f(self.load(x, int64_t{})...))>;
  };
  template <class T>
  static constexpr bool makes = (std::is_same_v<parameters::With<R, C>, Elements<T>> || ...);

  ELEMENTWISE_INLINE Self& self() {
    return static_cast<Self&>(*this);
  }
  ELEMENTWISE_INLINE const Self& self() const {
    return static_cast<const Self&>(*this);
  }
};
#undef ELEMENTWISE_CHECK

// An element of the tensor `index`, which is stored as S. If S is dual, the number has the element's tangent.
template <class S>
ELEMENTWISE_INLINE compute_t<S> element(const void* const* tangents, int index, const void* data, int64_t j) {
  if constexpr (kIsDual<S>) {
    using P = decltype(S::value);
    return {static_cast<const P*>(data)[j], static_cast<const P*>(tangents[index])[j]};
  } else if constexpr (std::is_same_v<S, bfloat16>) {
    return widen(static_cast<const S*>(data)[j]);
  } else {
    return static_cast<const S*>(data)[j];
  }
}

// ---- The functor's arguments.

using parameters::With;

// A functor over rows, and the kind of each of its arguments.
template <class F, Kind... kKind>
struct RowFunctor {
  using Arguments = typename parameters::Of<F, sizeof...(kKind)>::Arguments;
  using Returned = typename parameters::Of<F, sizeof...(kKind)>::Results;
  static constexpr int kInputs = (0 + ... + (kKind == Kind::tensor || kKind == Kind::optional));

  template <class C>
  ELEMENTWISE_INLINE static auto call(auto& row) {
    return with_arguments<C>(row)(row);
  }
  // The functor with the arguments of this row. It can be called with other rows that have the same arguments.
  template <class C>
  ELEMENTWISE_INLINE static auto with_arguments(const auto& row) {
    return [&]<size_t... I>(std::index_sequence<I...>) ELEMENTWISE_LAMBDA {
      return of<C>(argument<I, C>(row)...);
    }(std::make_index_sequence<sizeof...(kKind)>{});
  }

 private:
  template <class C>
  ELEMENTWISE_INLINE static auto of(auto... x) {
    return [x...]<class Row>(Row& row) ELEMENTWISE_LAMBDA { return F{}.template operator()<C, Row>(row, x...); };
  }
  template <size_t I, class C, class Row>
  ELEMENTWISE_INLINE static auto argument(const Row& row) {
    constexpr int index = kIndexAmong<I, kKind...>;
    using P = parameters::At<I, Arguments>;
    constexpr Kind each[] = {kKind...}, kind = each[I];
    if constexpr (kind == Kind::absent)
      return With<P, C>{};
    else if constexpr (kind == Kind::optional)
      return With<P, C>{true, tensor<decltype(With<P, C>::value), C>(row, index)};
    else if constexpr (kind == Kind::tensor)
      return tensor<With<P, C>, C>(row, index);
    else if constexpr (kind == Kind::real)
      return With<P, C>(static_cast<number_t<math::primal_t<C>, P>>(row.source.numbers[index].real));
    else if constexpr (kind >= Kind::chosen)
      return P(static_cast<typename P::Value>(P::kValues[static_cast<int>(kind) - static_cast<int>(Kind::chosen)]));
    else
      return static_cast<P>(row.source.numbers[index].integer);
  }
  template <class X, class C>
  ELEMENTWISE_INLINE static X tensor(const auto& row, int index) {
    const void* const data = row.source.data[index];
    if constexpr (!parameters::is_of_row<X>)
      return {data, index};
    else if constexpr (std::is_same_v<X, C>)
      return row.number_of(index, data);
    else if constexpr (std::is_same_v<X, bool>)
      return *static_cast<const uint8_t*>(data) != 0; // any other byte is true (cpu/convert.h)
    else
      return *static_cast<const X*>(data);
  }
};

// ---- The functor's results.

// The index of a result among all results R, and among those of type C.
template <class... R>
struct ResultIndex {
  ELEMENTWISE_INLINE static constexpr int of_elements(int k) { // of the k-th that has a value for each element
    constexpr bool of_row[] = {parameters::is_of_row<R>...};
    for (int index = 0; index < static_cast<int>(sizeof...(R)); index++)
      if (!of_row[index] && k-- == 0) return index;
    return 0;
  }
  // Whether row.each, called for the k-th of these, may write numbers of type T to it.
  template <class T, class C>
  ELEMENTWISE_INLINE static constexpr bool has_elements(int k) {
    constexpr bool are_t[] = {
        (parameters::is_a<R, Probabilities> ? std::is_same_v<T, C>
                                            : std::is_same_v<parameters::With<R, C>, Elements<T>>)...};
    return k < (0 + ... + !parameters::is_of_row<R>) && are_t[of_elements(k)];
  }
  ELEMENTWISE_INLINE static constexpr int among_c(int index) {
    constexpr bool of_c[] = {parameters::is_of_c<R>...};
    int among_c = 0;
    for (int i = 0; i < index; i++) among_c += of_c[i];
    return among_c;
  }
};

// Calls f<index, R>(result) for each result that the functor returned.
template <int index = 0, class R, class... Rest>
ELEMENTWISE_INLINE void for_each_result(List<R, Rest...>, const auto& returned, const auto& f) {
  if constexpr (requires { returned.first; }) {
    f.template operator()<index, R>(returned.first);
    if constexpr (sizeof...(Rest) > 0) for_each_result<index + 1>(List<Rest...>{}, returned.rest, f);
  } else {
    f.template operator()<index, R>(returned);
  }
}

// ---- The row of a forward pass. It writes the results. If B is dual, it writes only their tangents.
//
// The functor's numbers are of type C. They are those of B, unless the call is recorded. A gradient finds the first
// reductions in the order in which they were noted, but the order of the operands of row.sum(x) / row.sum(y) is the
// compiler's choice: GCC computes y first if the numbers are dual, and x if they are floats. So C is Dual<B> then, too.
// Nothing reads the derivatives, so the compiler leaves these out.
template <class S, class Returned, class C = compute_t<S>>
struct Values;
template <class S, class... R, class C>
struct Values<S, List<R...>, C> : Row<Values<S, List<R...>, C>, C, R...> {
  using B = compute_t<S>;
  static constexpr bool derives = false;

  Source<S> source;
  void* const* results;
  const cpu::OneRow* row; // has memory for rows that are kept
  int written = 0, kept_rows = 0, noted_count = 0;
  double reduced[rows::kMostReduced] = {}; // the results of the first reductions

  ELEMENTWISE_INLINE Values(const Source<S>& source, const cpu::OneRow& row)
      : source(source), results(row.data), row(&row) {}

  ELEMENTWISE_INLINE C element_of(Elements<C> x, int64_t j) const {
    return x.index < 0 ? static_cast<const B*>(x.data)[j] : passes::element<S>(source.tangents, x.index, x.data, j);
  }
  ELEMENTWISE_INLINE C number_of(int index, const void* data) const {
    return passes::element<B>(source.tangents, index, data, 0);
  }

  // If the functor has a single result, the first row that is kept lies in the memory of that result: row.each
  // overwrites it element by element, after all reductions. So the cache has to hold one row less. If threads share the
  // row, the memory of the result may be that of a few elements.
  static constexpr bool keeps_in_result = !kIsDual<B> && std::is_same_v<B, S> && sizeof...(R) == 1 &&
                                          ((!parameters::is_of_row<R> && parameters::is_of_c<R>) && ...);
  ELEMENTWISE_INLINE Elements<C> keep_terms(const auto& f, auto...) {
    const int k = kept_rows++;
    const bool is_first_in_result = keeps_in_result && source.size.has_whole_result();
    const auto memory = is_first_in_result && k == 0
                            ? results[0]
                            : row->scratch(row->run, k - is_first_in_result, source.size * sizeof(B));
    keep_row(static_cast<B*>(memory), source.size, computed(f));
    return {memory, -1};
  }
  ELEMENTWISE_INLINE auto reduce_terms(const auto& reduction, const auto& f, auto...) {
    return noted(reduction(source.size, computed(f)));
  }
  ELEMENTWISE_INLINE C element(Elements<C> x, int64_t place) {
    check_computed_place(place, source.size);
    const auto read = computed([&](int64_t j) ELEMENTWISE_LAMBDA { return this->load(x, j); });
    return read_one<B>(source.size, place, kept_rows > 0, read);
  }
  ELEMENTWISE_INLINE int64_t argmax_of(const auto& f, auto...) {
    return place_of_max(source.size, f);
  }

  template <class To>
  ELEMENTWISE_INLINE int write(const auto& f, auto...) {
    if (!ResultIndex<R...>::template has_elements<To, C>(written)) stop_for_order();
    const int index = ResultIndex<R...>::of_elements(written++);
    if constexpr (!kIsDual<B>) {
      using Stored = std::conditional_t<std::is_same_v<To, C>, S, math::primal_t<To>>;
      write_row(static_cast<Stored*>(results[index]), source.size, computed(f));
    } else if constexpr (kIsDual<To>) {
      auto* const to = static_cast<decltype(To::value)*>(results[ResultIndex<R...>::among_c(index)]);
      write_row(to, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).derivative; });
    }
    return index;
  }

  // Writes the results that have one value for each row. The functor returned these. Forward mode has a tangent for
  // each result of C.
  ELEMENTWISE_INLINE void finish(const auto& returned) {
    for_each_result(List<R...>{}, returned, [&]<int index, class P>(const auto& value) ELEMENTWISE_LAMBDA {
      using T = std::remove_cvref_t<decltype(value)>;
      if constexpr (!parameters::is_of_row<P>) {
        if (value.index != kWritten - index) stop_for_order();
      } else if constexpr (!kIsDual<B>)
        once(source.size, [&] { *static_cast<math::primal_t<T>*>(results[index]) = math::primal(value); });
      else if constexpr (std::is_same_v<T, B>)
        once(source.size, [&] {
          *static_cast<decltype(T::value)*>(results[ResultIndex<R...>::among_c(index)]) = value.derivative;
        });
    });
  }

 private:
  // The function f, which returns a number of the functor, without the derivative if nothing reads that.
  template <class F>
  ELEMENTWISE_INLINE static auto computed(const F& f) {
    if constexpr (std::is_same_v<B, C>)
      return f;
    else
      return [f](auto j) ELEMENTWISE_LAMBDA { return math::primal(f(j)); };
  }
  // Keeps the result of a reduction, if it is one of the first.
  template <class T>
  ELEMENTWISE_INLINE T noted(T x) {
    if (noted_count < rows::kMostReduced) reduced[noted_count++] = static_cast<double>(math::primal(x));
    return x;
  }
};

// ---- The row of a pass that computes nothing. It finds the first place outside of the row that row.at reads, counts
// the rows that are kept, and notes which tensors are read. All reductions give the same number. If the place differs
// for another number, it depends on the elements, and is checked when it is read.
struct Outside {
  int number = 0; // which of the places it is, from 1 on
  int64_t place = 0;
  friend bool operator==(const Outside&, const Outside&) = default;
};
template <class B, class Returned, bool kDerives = false, bool kHasSoftmax = false>
struct Checked;
template <class B, class... R, bool kDerives, bool kHasSoftmax>
struct Checked<B, List<R...>, kDerives, kHasSoftmax> : Row<Checked<B, List<R...>, kDerives, kHasSoftmax>, B, R...> {
  static constexpr bool derives = kDerives, has_softmax = kHasSoftmax;
  Source<B> source;
  B reduction;
  Outside outside;
  int places = 0, kept_rows = 0;
  bool keeps_in_result = false; // whether one more row is kept in the memory of the result
  // Bit k: whether an element of tensor k may be read. Only a kernel that knows the softmax may read less than all, and
  // no other one is examined: its functions of elements, which do not run here, may call row.at.
  uint32_t read = kHasSoftmax ? 0 : ~uint32_t{0};

  ELEMENTWISE_INLINE Checked(const Source<B>& source, int reduction)
      : source(source), reduction(static_cast<B>(reduction)) {}
  ELEMENTWISE_INLINE B element_of(Elements<B>, int64_t) const {
    return reduction;
  }
  ELEMENTWISE_INLINE B number_of(int, const void* data) const {
    return *static_cast<const B*>(data);
  }
  ELEMENTWISE_INLINE void begin_loop(const auto&... x) {
    read |= (0 | ... | reads(x));
  }
  ELEMENTWISE_INLINE Elements<B> keep_terms(const auto& f, auto...) {
    sees(f);
    kept_rows++;
    return {nullptr, -1};
  }
  // The derivative of `Itself` is 1, whatever x is.
  template <class F>
  ELEMENTWISE_INLINE auto read_softmax(const F&, auto... x) {
    if constexpr (!std::is_same_v<F, Itself>) begin_loop(x...);
    return Softmax<Checked, Elements<B>, B>{this, {nullptr, -1}, reduction};
  }
  ELEMENTWISE_INLINE B reduce_terms(const auto&, const auto& f, auto...) {
    sees(f);
    return reduction;
  }
  ELEMENTWISE_INLINE B element(Elements<B>, int64_t place) {
    places++;
    if ((place < 0 || place >= source.size) && outside.number == 0) outside = {places, place};
    return reduction;
  }
  ELEMENTWISE_INLINE int64_t argmax_of(const auto&, auto...) {
    return static_cast<int64_t>(reduction);
  }
  template <class To>
  ELEMENTWISE_INLINE int write(const auto&, auto...) {
    return 0;
  }

 private:
  // Lets the compiler see a function of elements, which may call row.index() (python/asks_for_index.h).
  template <class F>
  ELEMENTWISE_INLINE void sees(const F&) {
    using Unused [[maybe_unused]] = decltype(std::declval<F>()(int64_t{}));
  }
};

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET
