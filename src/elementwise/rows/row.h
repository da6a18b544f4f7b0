// Operators over rows: what a functor is that reduces. A row is what is left of a tensor where all dimensions but one
// are fixed: that is the last one, or the one that an `int dim` of the schema names. The entry in the table is as for
// an element-wise operator; the layer sees at the functor that it is one over rows, for its first parameter is a Row&:
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
// The functor runs once for each row, and takes the arguments of the schema in their order:
//
//   Elements<C>      a tensor that has a value for each element of a row. All of these are broadcast together, so one
//                    of shape [n] has a value for each column, and is the same for all rows.
//   C                a tensor that has one value for each row: its shape is that of the others without the dimension
//                    that is reduced. Or a `float` of the schema.
//   int64_t, bool    an `int` or a `bool` of the schema, or a tensor of that dtype with one value for each row: labels.
//   Elements<bool>   a tensor with a dtype of its own. Optional<Elements<C>>, Optional<C>: one that may be absent. Of
//                    the first, a function of elements is given an Optional<C>.
//
// It reads elements in reductions: each takes a function of elements, then the tensors that it reads. What a reduction
// returns is a number that the next ones may use.
//
//   row.sum(f, x...)          row.max(f, x...)      row.min(f, x...)      row.log_sum_exp(f, x...)
//   row.argmax(f, x...)       row.argmin(f, x...)   the first place of the greatest or least, an int64_t
//   row.range(f, x...)        the maximum, where it is only subtracted to keep exp in its range, as in softmax: of that
//                             there is no derivative, and it costs none
//   row.at(x, place)          one element; a place outside of the row is an error before anything is written
//
// Without f they take the elements of one tensor: row.sum(x). row.size() is the number of elements, a number to compute
// with. row.columns() may stand among the tensors: f is given the place of the element, an int64_t. row.index() is the
// place of the row in the last dimension that is not reduced. For elements that do not satisfy a condition f returns
// what changes nothing: 0 in a sum.
//
// const auto e = row.keep(f, x...) computes a row that is read several times: e stands among the tensors of others. It
// pays for an exp. In derivatives f is called wherever e is read.
//
// The type of the result says what it is: Elements<T> is made by row.each(f, x...) and has the shape of the tensors; C
// or another number is one for each row, and has the shape without the dimension that is reduced, or with 1 in its
// place if the schema has a `bool keepdim` that is true. Several are Results<Elements<int8_t>, float>.
//
// Sums: each block of 1024 elements is added in lanes, of which there are as many as numbers in 128 bytes; these are
// added pairwise, and so are the sums of blocks, those of float in double. So the order depends on the length of the
// row alone: the bits are the same for every instruction set, number of threads and layout. 16-bit types are added in
// float.
//
// What there is not: kernels for CUDA, where a call is an error that says so; several trailing dimensions as one row; a
// derivative of the third order, or a tangent of a tangent.
#pragma once

#include <limits>

#include "../cpu/work.h"
#include "../math/exponential.h"
#include "../math/logarithm.h"
#include "../math/rules.h"
#include "../operator.h"

#if defined(ELEMENTWISE_IS_CUDA)
#include "../cuda/team.h"
#endif

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

constexpr int kMost = 6; // reductions of a functor

// What is known of a row: its length, its place, and where the elements of each tensor begin that is there.
struct Source {
  int64_t size, index;
  const void* const* data;
  const void* const* tangents; // of each tensor, null where it has none; null outside of forward mode
  const Number* numbers;
};

// What a reduction is in derivatives that hold it fixed.
template <class B>
struct Kept {
  B value[kMost];                              // of those that have a derivative
  math::primal_t<B> ties[kMost], range[kMost]; // elements that are the maximum, and what has no derivative
  int64_t place[kMost];
};

// The place of an element in its row.
struct Columns {};

// What is made of elements, and made again wherever it is read.
template <class F, class Reads>
struct Made {
  F element;
  Reads reads;
};

// Whether a tensor is read.
template <class T>
ELEMENTWISE_INLINE bool reads(Elements<T> x, int tensor) {
  return x.place == tensor;
}
ELEMENTWISE_INLINE bool reads(Columns, int) {
  return false;
}
template <class T>
ELEMENTWISE_INLINE bool reads(Optional<T> x, int tensor) {
  return x && reads(*x, tensor);
}
template <class F, class Reads>
ELEMENTWISE_INLINE bool reads(const Made<F, Reads>& x, int tensor) {
  return x.reads(tensor);
}

template <class C>
constexpr bool kIsDual = false;
template <class C>
constexpr bool kIsDual<Dual<C>> = true;

// Before a loop that is to become vectors: see cpu/kernels.h; and before one whose results are no operands.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#undef ELEMENTWISE_AS_A_LOOP
#define ELEMENTWISE_AS_A_LOOP _Pragma("GCC unroll 1")
#define ELEMENTWISE_APART _Pragma("GCC ivdep")
#else
#define ELEMENTWISE_AS_A_LOOP
#define ELEMENTWISE_APART
#endif

// ---- Who does what: here one thread does all. On a GPU the threads of a team share these loops: cuda/team.h.
#if !defined(ELEMENTWISE_IS_CUDA)

constexpr bool kKeepsRows = true; // in memory, and does not compute them again

// Calls f(j) for each element.
template <class F>
ELEMENTWISE_INLINE void for_each(int64_t n, const F& f) {
  ELEMENTWISE_APART
  for (int64_t j = 0; j < n; j++) f(j);
}

template <class F>
ELEMENTWISE_INLINE void once(const F& f) {
  f();
}

// The first element for which is(j), or 0.
template <class F>
ELEMENTWISE_INLINE int64_t first_of(int64_t n, const F& is) {
  for (int64_t j = 0; j < n; j++)
    if (is(j)) return j;
  return 0;
}

// The caller has asked before: see Checked.
ELEMENTWISE_INLINE void check_place(int64_t, int64_t) {}

// How numbers are put together, in an order that depends on n alone.
template <int half, class Join, class C>
ELEMENTWISE_INLINE C halved(C* lanes, const Join& join) {
  if constexpr (half == 0) {
    return lanes[0];
  } else {
    for (int k = 0; k < half; k++) lanes[k] = join(lanes[k], lanes[half + k]);
    return halved<half / 2>(lanes, join);
  }
}

// join(f(0), ... f(n - 1)).
template <class C, class Join, class F>
ELEMENTWISE_INLINE C joined(int64_t n, C identity, const Join& join, const F& f) {
  constexpr int kLanes = 128 / sizeof(math::primal_t<C>), kPart = kLanes / 4;
  constexpr int64_t kBlock = 1024;
  using Level = std::conditional_t<std::is_same_v<C, float>, double, C>;
  Level levels[64]; // level d has what 2^d blocks are together, if bit d of `count` is set
  int64_t count = 0;
  for (int64_t j = 0; j < n; count++) {
    const int64_t end = n - j < kBlock ? n : j + kBlock;
    C lanes[kLanes];
    [[maybe_unused]] C terms[kLanes];
    for (int k = 0; k < kLanes; k++) lanes[k] = identity;
    if constexpr (kIsDual<C>) { // one loop, which is short
      for (int k = 0; j < end; j++, k = (k + 1) % kLanes) lanes[k] = join(lanes[k], f(j));
    } else {
      for (; j + kLanes <= end; j += kLanes) {
        ELEMENTWISE_AS_A_LOOP
        for (int k = 0; k < kLanes; k++) terms[k] = f(j + k);
        ELEMENTWISE_AS_A_LOOP
        for (int k = 0; k < kLanes; k++) lanes[k] = join(lanes[k], terms[k]);
      }
      C* lane = lanes; // the tail, mostly in vectors as well
      for (; j + kPart <= end; j += kPart, lane += kPart) {
        ELEMENTWISE_AS_A_LOOP
        for (int k = 0; k < kPart; k++) terms[k] = f(j + k);
        ELEMENTWISE_AS_A_LOOP
        for (int k = 0; k < kPart; k++) lane[k] = join(lane[k], terms[k]);
      }
      for (; j < end; j++, lane++) *lane = join(*lane, f(j));
    }
    Level block = halved<kLanes / 2>(lanes, join);
    int level = 0;
    for (int64_t bits = count; bits & 1; bits >>= 1) block = join(levels[level++], block);
    levels[level] = block;
  }
  Level all = identity;
  bool is_first = true;
  for (int level = 0; count >> level; level++)
    if (count >> level & 1) {
      all = is_first ? levels[level] : join(levels[level], all);
      is_first = false;
    }
  return static_cast<C>(all);
}

#endif

template <class C, class F>
ELEMENTWISE_INLINE C sum_of(int64_t n, const F& f) {
  return joined(n, C(0), [](auto a, auto b) { return a + b; }, f);
}

// The greatest; a NaN if there is one. Its derivative is the mean of those of all elements that are the greatest.
template <class C, class F>
ELEMENTWISE_INLINE C max_of(int64_t n, const F& f) {
  if constexpr (kIsDual<C>) {
    using D = decltype(C::value);
    using P = math::primal_t<C>;
    const D most = max_of<D>(n, [&](int64_t j) { return f(j).value; });
    const P value = math::primal(most);
    const P ties = sum_of<P>(n, [&](int64_t j) { return P(math::primal(f(j)) == value); });
    return {most, sum_of<D>(n, [&](int64_t j) {
                    const C x = f(j);
                    return math::choose(math::primal(x) == value, x.derivative, D(0));
                  }) / D(ties)};
  } else if constexpr (std::is_floating_point_v<C>) {
    return joined(n, -math::kInfinity<C>, [](auto a, auto b) { return (b > a) | (b != b) ? b : a; }, f);
  } else {
    return joined(n, std::numeric_limits<C>::lowest(), [](C a, C b) { return b > a ? b : a; }, f);
  }
}

// The first place of the greatest, or of a NaN.
template <class C, class F>
ELEMENTWISE_INLINE int64_t place_of_max(int64_t n, const F& f) {
  const C most = max_of<C>(n, f);
  return first_of(n, [&](int64_t j) {
    const C x = f(j);
    return x == most || x != x;
  });
}

// ---- What an author calls. `Self` is a row of one kind of pass, with numbers of C.
template <class Self, class C>
class Row {
 public:
  using Number = math::primal_t<C>;

  ELEMENTWISE_INLINE Number size() const {
    return static_cast<Number>(self().source.size);
  }
  ELEMENTWISE_INLINE int64_t index() const {
    return self().source.index;
  }
  ELEMENTWISE_INLINE Columns columns() const {
    return {};
  }

  template <class F, class... X>
  ELEMENTWISE_INLINE C sum(const F& f, X... x) {
    return self().sum_terms(terms(f, x...), x...);
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE C max(const F& f, X... x) {
    return self().max_terms(terms(f, x...), x...);
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE C min(const F& f, X... x) {
    return -max([&](auto... element) { return -C(f(element...)); }, x...);
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE Number range(const F& f, X... x) {
    return self().range_of([&](int64_t j) { return math::primal(C(f(self().load(x, j)...))); });
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE C log_sum_exp(const F& f, X... x) {
    const Number most = range(f, x...), shift = math::choose(most - most == 0, most, Number(0));
    return log(sum([&](auto... element) { return exp(f(element...) - shift); }, x...)) + shift;
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE int64_t argmax(const F& f, X... x) {
    return self().argmax_of([&](int64_t j) { return math::primal(C(f(self().load(x, j)...))); });
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE int64_t argmin(const F& f, X... x) {
    return self().argmax_of([&](int64_t j) { return -math::primal(C(f(self().load(x, j)...))); });
  }
  ELEMENTWISE_INLINE C at(Elements<C> x, int64_t place) {
    check_place(place, self().source.size);
    return self().element(x, place);
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE auto each(const F& f, X... x) {
    using R = decltype(f(self().load(x, 0)...));
    using To = std::conditional_t<Self::template makes<R>, R, C>;
    self().template write<To>([&](int64_t j) { return static_cast<To>(f(self().load(x, j)...)); }, x...);
    return Elements<To>{};
  }

#define ELEMENTWISE_OF_ONE(reduction)           \
  template <class X>                            \
    requires(!std::is_invocable_v<X, C>)        \
  ELEMENTWISE_INLINE auto reduction(X x) {      \
    return reduction([](C y) { return y; }, x); \
  }
  ELEMENTWISE_OF_ONE(sum)
  ELEMENTWISE_OF_ONE(max)
  ELEMENTWISE_OF_ONE(min)
  ELEMENTWISE_OF_ONE(range)
  ELEMENTWISE_OF_ONE(log_sum_exp)
  ELEMENTWISE_OF_ONE(argmax)
  ELEMENTWISE_OF_ONE(argmin)
#undef ELEMENTWISE_OF_ONE

  template <class F, class... X>
  ELEMENTWISE_INLINE auto keep(const F& f, X... x) {
    if constexpr (Self::buffers) {
      C* const to = self().buffer();
      for_each(self().source.size, [&](int64_t j) { to[j] = f(self().load(x, j)...); });
      return Elements<C>{to, -1};
    } else {
      const auto reads_one = [x...](int tensor) { return (reads(x, tensor) || ...); };
      const auto one = [this, f, x...](int64_t j) { return C(f(self().load(x, j)...)); };
      return Made<decltype(one), decltype(reads_one)>{one, reads_one};
    }
  }

  // The element of a tensor: of C as this pass has it.
  template <class T>
  ELEMENTWISE_INLINE T load(Elements<T> x, int64_t j) const {
    if constexpr (std::is_same_v<T, C>)
      return self().lifted(x.place, x.data, j);
    else
      return static_cast<const T*>(x.data)[j];
  }
  template <class T>
  ELEMENTWISE_INLINE Optional<T> load(Optional<Elements<T>> x, int64_t j) const {
    return x ? Optional<T>{true, load(*x, j)} : Optional<T>{};
  }
  ELEMENTWISE_INLINE int64_t load(Columns, int64_t j) const {
    return j;
  }
  template <class F, class Reads>
  ELEMENTWISE_INLINE C load(const Made<F, Reads>& x, int64_t j) const {
    return x.element(j);
  }

 private:
  template <class F, class... X>
  ELEMENTWISE_INLINE auto terms(const F& f, X... x) const {
    return [this, &f, x...](int64_t j) { return C(f(self().load(x, j)...)); };
  }
  ELEMENTWISE_INLINE Self& self() {
    return static_cast<Self&>(*this);
  }
  ELEMENTWISE_INLINE const Self& self() const {
    return static_cast<const Self&>(*this);
  }
};

// An element as it is computed with: with its tangent in forward mode.
template <class B>
ELEMENTWISE_INLINE B element(const Source& source, int place, const void* data, int64_t j) {
  if constexpr (kIsDual<B>) {
    using P = decltype(B::value);
    const void* const tangent = source.tangents[place];
    return {static_cast<const P*>(data)[j], tangent ? static_cast<const P*>(tangent)[j] : P(0)};
  } else {
    return static_cast<const B*>(data)[j];
  }
}

// ---- The functor's arguments.

template <class P, class C>
struct WithOf {
  using type = std::conditional_t<std::is_same_v<P, parameters::AnyC>, C, P>;
};
template <class P, class C>
struct WithOf<Elements<P>, C> {
  using type = Elements<typename WithOf<P, C>::type>;
};
template <class P, class C>
struct WithOf<Optional<P>, C> {
  using type = Optional<typename WithOf<P, C>::type>;
};
template <class P, class C>
using With = typename WithOf<P, C>::type;

// A functor and what its arguments are.
template <class F, Kind... kKind>
struct Bound {
  using Arguments = typename parameters::Of<F, sizeof...(kKind)>::Arguments;
  using Returned = typename parameters::Of<F, sizeof...(kKind)>::Results;
  static constexpr int kInputs = (0 + ... + (kKind == Kind::tensor || kKind == Kind::optional));

  template <class C, class Row>
  ELEMENTWISE_INLINE static auto call(Row& row) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return F{}.template operator()<C, Row>(row, argument<I, C>(row)...);
    }(std::make_index_sequence<sizeof...(kKind)>{});
  }

 private:
  static constexpr Kind kinds[] = {kKind...};
  static constexpr int place_of(size_t argument) {
    int before[2] = {};
    for (size_t i = 0; i < argument; i++) before[is_tensor(kinds[i])] += kinds[i] != Kind::absent;
    return before[is_tensor(kinds[argument])];
  }
  template <size_t argument> // among the tensors that are there, or among the numbers
  static constexpr int place_of_argument = place_of(argument);
  template <size_t I, class C, class Row>
  ELEMENTWISE_INLINE static auto argument(const Row& row) {
    constexpr int place = place_of_argument<I>;
    using P = parameters::At<I, Arguments>;
    constexpr Kind kind = kinds[I];
    if constexpr (kind == Kind::absent)
      return With<P, C>{};
    else if constexpr (kind == Kind::optional)
      return With<P, C>{true, tensor<decltype(With<P, C>::value), C>(row, place)};
    else if constexpr (kind == Kind::tensor)
      return tensor<With<P, C>, C>(row, place);
    else if constexpr (kind == Kind::real)
      return With<P, C>(static_cast<number_t<math::primal_t<C>>>(row.source.numbers[place].real));
    else
      return static_cast<P>(row.source.numbers[place].integer);
  }
  template <class X, class C, class Row>
  ELEMENTWISE_INLINE static X tensor(const Row& row, int place) {
    const void* const data = row.source.data[place];
    if constexpr (!parameters::is_of_row<X>)
      return {data, place};
    else if constexpr (std::is_same_v<X, C>)
      return row.lifted(place, data, 0);
    else
      return *static_cast<const X*>(data);
  }
};

// ---- The row of a forward pass. It writes results; of duals their tangents alone.
template <class B, class Returned, bool kKeeps = false>
struct Values;
template <class B, class... R, bool kKeeps>
struct Values<B, List<R...>, kKeeps> : Row<Values<B, List<R...>, kKeeps>, B> {
  template <class T>
  static constexpr bool makes = (std::is_same_v<With<R, B>, Elements<T>> || ...);

  static constexpr bool buffers = kKeepsRows && !kKeeps && !kIsDual<B>;

  Source source;
  void* const* results;             // null where there are none to write
  const cpu::OneRow* row = nullptr; // has memory for rows that are kept
  Kept<B>* kept = nullptr;
  int reductions = 0, ranges = 0, places = 0, written = 0, kept_rows = 0;

  ELEMENTWISE_INLINE Values(const Source& source, void* const* results) : source(source), results(results) {}

  ELEMENTWISE_INLINE B lifted(int place, const void* data, int64_t j) const {
    return passes::element<B>(source, place, data, j);
  }

  ELEMENTWISE_INLINE B* buffer() {
    return static_cast<B*>(row->scratch(row->run, kept_rows++));
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE B sum_terms(const F& f, X...) {
    return noted(sum_of<B>(source.size, f));
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE B max_terms(const F& f, X...) {
    const B most = max_of<B>(source.size, f);
    using P = math::primal_t<B>;
    if constexpr (kKeeps)
      kept->ties[reductions] =
          sum_of<P>(source.size, [&](int64_t j) { return P(math::primal(f(j)) == math::primal(most)); });
    return noted(most);
  }
  ELEMENTWISE_INLINE B element(Elements<B> x, int64_t place) {
    return noted(lifted(x.place, x.data, place));
  }
  template <class F>
  ELEMENTWISE_INLINE auto range_of(const F& f) {
    const auto most = max_of<math::primal_t<B>>(source.size, f);
    if constexpr (kKeeps) kept->range[ranges++] = most;
    return most;
  }
  template <class F>
  ELEMENTWISE_INLINE int64_t argmax_of(const F& f) {
    const int64_t place = place_of_max<math::primal_t<B>>(source.size, f);
    if constexpr (kKeeps) kept->place[places++] = place;
    return place;
  }

  template <class To, class F, class... X>
  ELEMENTWISE_INLINE void write(const F& f, X...) {
    constexpr int slots[] = {parameters::is_of_row<R>..., 0};
    int slot = 0, of_elements = written++;
    for (size_t i = 0; i < sizeof...(R); i++) {
      if (slots[i]) continue;
      if (of_elements-- == 0) slot = static_cast<int>(i);
    }
    if constexpr (!kKeeps) {
      if constexpr (kIsDual<To>) {
        auto* const to = static_cast<decltype(To::value)*>(results[place_among_c(slot)]);
        for_each(source.size, [&](int64_t j) { to[j] = f(j).derivative; });
      } else if constexpr (!kIsDual<B>) {
        auto* const to = static_cast<To*>(results[slot]);
        for_each(source.size, [&](int64_t j) { to[j] = f(j); });
      }
    }
  }

  // Writes what the functor returned: the results that are one for each row.
  template <class Result>
  ELEMENTWISE_INLINE void finish(const Result& returned) {
    set<0, R...>(returned);
  }

 private:
  ELEMENTWISE_INLINE B noted(B value) {
    if constexpr (kKeeps) kept->value[reductions++] = value;
    return value;
  }
  // Forward mode has a tangent for each result of C.
  ELEMENTWISE_INLINE static constexpr int place_among_c(int slot) {
    constexpr bool of_c[] = {std::is_same_v<typename parameters::ElementOf<R>::type, parameters::AnyC>...};
    int place = 0;
    for (int i = 0; i < slot; i++) place += of_c[i];
    return place;
  }
  template <int slot, class P, class... Rest, class Result>
  ELEMENTWISE_INLINE void set(const Result& returned) {
    if constexpr (requires { returned.first; }) {
      set_one<slot, P>(returned.first);
      if constexpr (sizeof...(Rest) > 0) set<slot + 1, Rest...>(returned.rest);
    } else {
      set_one<slot, P>(returned);
    }
  }
  template <int slot, class P, class T>
  ELEMENTWISE_INLINE void set_one(const T& value) {
    if constexpr (parameters::is_of_row<P>) {
      if constexpr (!kIsDual<B>)
        once([&] { *static_cast<T*>(results[slot]) = value; });
      else if constexpr (std::is_same_v<T, B>)
        once([&] { *static_cast<decltype(T::value)*>(results[place_among_c(slot)]) = value.derivative; });
    }
  }
};

// ---- The row of a pass that computes nothing, but asks whether every place that is read lies in the row.
template <class B, class Returned>
struct Checked;
template <class B, class... R>
struct Checked<B, List<R...>> : Row<Checked<B, List<R...>>, B> {
  template <class T>
  static constexpr bool makes = (std::is_same_v<With<R, B>, Elements<T>> || ...);
  static constexpr bool buffers = false;
  Source source;
  bool is_inside = true;

  explicit Checked(const Source& source) : source(source) {}
  ELEMENTWISE_INLINE B lifted(int, const void* data, int64_t j) const {
    return static_cast<const B*>(data)[j];
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE B sum_terms(const F&, X...) {
    return 0;
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE B max_terms(const F&, X...) {
    return 0;
  }
  ELEMENTWISE_INLINE B element(Elements<B>, int64_t place) {
    is_inside &= place >= 0 && place < source.size;
    return 0;
  }
  template <class F>
  ELEMENTWISE_INLINE B range_of(const F&) {
    return 0;
  }
  template <class F>
  ELEMENTWISE_INLINE int64_t argmax_of(const F&) {
    return 0;
  }
  template <class To, class F, class... X>
  ELEMENTWISE_INLINE void write(const F&, X...) {}
};

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET
