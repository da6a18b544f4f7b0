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
//   Elements<bool>   a tensor with a dtype of its own. Optional<Elements<C>>, Optional<C>: one that may be absent.
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
  const void* const* tangents; // of each tensor of C, where B is dual
  const Number* numbers;
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

// Inlines a lambda of ours.
#if defined(__OPTIMIZE__) && !defined(__CUDACC__)
#define ELEMENTWISE_LAMBDA __attribute__((always_inline))
#else
#define ELEMENTWISE_LAMBDA
#endif

// Inlines whatever is called, also the lambdas of a functor: a call in a loop keeps it from being vectorised.
#if defined(ELEMENTWISE_IS_CUDA)
#define ELEMENTWISE_FLATTEN ELEMENTWISE_INLINE
#elif defined(__OPTIMIZE__)
#define ELEMENTWISE_FLATTEN [[gnu::flatten]]
#else
#define ELEMENTWISE_FLATTEN
#endif

// ---- Who does what: here one thread does all. On a GPU the threads of a team share these loops: cuda/team.h.
#if !defined(ELEMENTWISE_IS_CUDA)

constexpr bool kKeepsRows = true; // in memory, and does not compute them again

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

// Reductions, in an order that depends on n alone.
template <int half, class Lanes, class Join>
ELEMENTWISE_INLINE void halve(Lanes& lanes, const Join& join) {
  ELEMENTWISE_AS_A_LOOP
  for (int k = 0; k < half; k++) lanes.set(k, join(lanes[k], lanes[half + k]));
  if constexpr (half > 1) halve<half / 2>(lanes, join);
}

#if defined(__AVX512F__)
constexpr int kVector = 64; // bytes
#elif defined(__AVX__)
constexpr int kVector = 32;
#else
constexpr int kVector = 16;
#endif

// n numbers in memory. Of duals, the values and the derivatives are apart.
template <class C, int n>
struct Numbers {
  alignas(kVector) C number[n];
  ELEMENTWISE_INLINE C operator[](int k) const {
    return number[k];
  }
  ELEMENTWISE_INLINE void set(int k, C x) {
    number[k] = x;
  }
  ELEMENTWISE_INLINE void copy_to(C* to) const {
    typedef char Register __attribute__((vector_size(sizeof(number)))); // an array would be copied in two halves
    Register numbers;
    std::memcpy(&numbers, number, sizeof(number));
    std::memcpy(to, &numbers, sizeof(number));
  }
};
template <class C, int n>
struct Numbers<Dual<C>, n> {
  Numbers<C, n> values, derivatives;
  ELEMENTWISE_INLINE Dual<C> operator[](int k) const {
    return {values[k], derivatives[k]};
  }
  ELEMENTWISE_INLINE void set(int k, const Dual<C>& x) {
    values.set(k, x.value);
    derivatives.set(k, x.derivative);
  }
  ELEMENTWISE_INLINE void copy_to(Dual<C>* to) const {
    for (int k = 0; k < n; k++) to[k] = (*this)[k];
  }
};

// The numbers of a vector register. GCC keeps a vector in a register where it would keep an array in memory.
template <class C>
struct Vector {
  static constexpr int kSize = kVector / sizeof(C);
  typedef C Register __attribute__((vector_size(kVector)));
  Register numbers;
  ELEMENTWISE_INLINE void fill(C x) {
    numbers = x - Register{}; // and not +, which would lose the sign of -0
  }
  template <int n>
  ELEMENTWISE_INLINE void load(const Numbers<C, n>& from, int at = 0) {
    std::memcpy(&numbers, from.number + at, sizeof(numbers));
  }
  template <int n>
  ELEMENTWISE_INLINE void store(Numbers<C, n>& to, int at = 0) const {
    std::memcpy(to.number + at, &numbers, sizeof(numbers));
  }
};
template <class C>
struct Vector<Dual<C>> {
  static constexpr int kSize = Vector<C>::kSize;
  Vector<C> values, derivatives;
  ELEMENTWISE_INLINE void fill(const Dual<C>& x) {
    values.fill(x.value);
    derivatives.fill(x.derivative);
  }
  template <int n>
  ELEMENTWISE_INLINE void load(const Numbers<Dual<C>, n>& from, int at = 0) {
    values.load(from.values, at);
    derivatives.load(from.derivatives, at);
  }
  template <int n>
  ELEMENTWISE_INLINE void store(Numbers<Dual<C>, n>& to, int at = 0) const {
    values.store(to.values, at);
    derivatives.store(to.derivatives, at);
  }
};

// join of f(begin), ... f(end - 1): element j goes to lane j - begin modulo their number, and lanes are joined
// pairwise.
template <class C, class Join, class F, int... part>
ELEMENTWISE_INLINE C
block(int64_t begin, int64_t end, C identity, const Join& join, const F& f, std::integer_sequence<int, part...>) {
  constexpr int n = Vector<C>::kSize, kLanes = n * sizeof...(part);
  Vector<C> vectors[sizeof...(part)];
  (vectors[part].fill(identity), ...);
  int64_t j = begin;
  const auto join_vector = [&](Vector<C>& vector) ELEMENTWISE_LAMBDA {
    Numbers<C, n> some;
    vector.store(some);
    ELEMENTWISE_AS_A_LOOP
    for (int k = 0; k < n; k++) some.set(k, join(some[k], f(j + k)));
    vector.load(some);
    j += n;
  };
  while (j + kLanes <= end) (join_vector(vectors[part]), ...);
  ((j + n <= end ? join_vector(vectors[part]) : void()), ...);
  Numbers<C, kLanes> all;
  (vectors[part].store(all, part * n), ...);
  for (int k = (j - begin) % kLanes; j < end; j++, k++) all.set(k, join(all[k], f(j)));
  halve<kLanes / 2>(all, join);
  return all[0];
}

// join of f(0), ... f(n - 1), in blocks that are joined pairwise.
template <class C, class Join, class F>
ELEMENTWISE_INLINE C joined(int64_t n, C identity, const Join& join, const F& f) {
  constexpr int64_t kBlock = 1024;
  constexpr std::make_integer_sequence<int, 128 / kVector> parts; // of the lanes
  using Level = std::conditional_t<std::is_same_v<C, float>, double, C>;
  Level levels[64], all = identity; // level d has what 2^d blocks are together, if bit d of `count` is set
  int64_t count = 0;
  for (int64_t j = 0; j < n; j += kBlock, count++) {
    all = block(j, std::min(n, j + kBlock), identity, join, f, parts);
    if (n <= kBlock) break;
    int level = 0;
    for (int64_t bits = count; bits & 1; bits >>= 1) all = join(levels[level++], all);
    levels[level] = all;
  }
  bool is_first = true;
  for (int level = 0; count >> level; level++) // none, if there is one block
    if (count >> level & 1) {
      all = is_first ? levels[level] : join(levels[level], all);
      is_first = false;
    }
  return static_cast<C>(all);
}

// to[j] = f(j) for all j. Two vectors at a time, so that their steps can be mixed (cpu/kernels.h).
template <class T, class F>
ELEMENTWISE_INLINE void write_row(T* to, int64_t n, const F& f) {
  constexpr int kSize = Vector<math::primal_t<T>>::kSize;
  int64_t j = 0;
  for (; j + 2 * kSize <= n; j += 2 * kSize) {
    Numbers<T, kSize> first, second;
    ELEMENTWISE_AS_A_LOOP
    for (int k = 0; k < kSize; k++) first.set(k, f(j + k));
    ELEMENTWISE_AS_A_LOOP
    for (int k = 0; k < kSize; k++) second.set(k, f(j + kSize + k));
    first.copy_to(to + j);
    second.copy_to(to + j + kSize);
  }
  ELEMENTWISE_APART
  for (; j < n; j++) to[j] = f(j);
}

#endif

template <class C, class F>
ELEMENTWISE_INLINE C sum_of(int64_t n, const F& f) {
  return joined(n, C(0), [](auto a, auto b) ELEMENTWISE_LAMBDA { return a + b; }, f);
}

// The greatest; a NaN if there is one. Its derivative is the mean of those of all elements that are the greatest.
template <class C, class F>
ELEMENTWISE_INLINE C max_of(int64_t n, const F& f) {
  if constexpr (kIsDual<C>) {
    using D = decltype(C::value);
    using P = math::primal_t<C>;
    const D most = max_of<D>(n, [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).value; });
    const P value = math::primal(most);
    const P ties = sum_of<P>(n, [&](int64_t j) ELEMENTWISE_LAMBDA { return P(math::primal(f(j)) == value); });
    return {most, sum_of<D>(n, [&](int64_t j) ELEMENTWISE_LAMBDA {
                    const C x = f(j);
                    return math::choose(math::primal(x) == value, x.derivative, D(0));
                  }) / D(ties)};
  } else if constexpr (std::is_floating_point_v<C>) {
    return joined(
        n, -math::kInfinity<C>, [](auto a, auto b) ELEMENTWISE_LAMBDA { return (b > a) | (b != b) ? b : a; }, f);
  } else {
    return joined(n, std::numeric_limits<C>::lowest(), [](C a, C b) ELEMENTWISE_LAMBDA { return b > a ? b : a; }, f);
  }
}

// The first place of the greatest, or of a NaN.
template <class C, class F>
ELEMENTWISE_INLINE int64_t place_of_max(int64_t n, const F& f) {
  const C most = max_of<C>(n, f);
  return first_of(n, [&](int64_t j) ELEMENTWISE_LAMBDA {
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
    return -max([&](auto... element) ELEMENTWISE_LAMBDA { return -C(f(element...)); }, x...);
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE Number range(const F& f, X... x) {
    return self().range_of([&](int64_t j) ELEMENTWISE_LAMBDA { return math::primal(C(f(self().load(x, j)...))); });
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE C log_sum_exp(const F& f, X... x) {
    const Number most = range(f, x...), shift = math::choose(most - most == 0, most, Number(0));
    const auto power = [=](auto... element) ELEMENTWISE_LAMBDA { return exp(f(element...) - shift); };
    if constexpr (Self::derives) // and its derivative need not compute it again
      return log(sum(self().keep(power, x...))) + shift;
    else
      return log(sum(power, x...)) + shift;
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE int64_t argmax(const F& f, X... x) {
    return self().argmax_of([&](int64_t j) ELEMENTWISE_LAMBDA { return math::primal(C(f(self().load(x, j)...))); });
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE int64_t argmin(const F& f, X... x) {
    return self().argmax_of([&](int64_t j) ELEMENTWISE_LAMBDA { return -math::primal(C(f(self().load(x, j)...))); });
  }
  ELEMENTWISE_INLINE C at(Elements<C> x, int64_t place) {
    check_place(place, self().source.size);
    return self().element(x, place);
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE auto each(const F& f, X... x) {
    using R = decltype(f(self().load(x, 0)...));
    using To = std::conditional_t<Self::template makes<R>, R, C>;
    self().template write<To>(
        [&](auto j) ELEMENTWISE_LAMBDA { return static_cast<To>(f(self().load(x, j)...)); }, x...);
    return Elements<To>{};
  }

#define ELEMENTWISE_OF_ONE(reduction)                              \
  template <class X>                                               \
    requires(!std::is_invocable_v<X, C>)                           \
  ELEMENTWISE_INLINE auto reduction(X x) {                         \
    return reduction([](C y) ELEMENTWISE_LAMBDA { return y; }, x); \
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
      write_row(to, self().source.size, terms(f, x...));
      return Elements<C>{to, -1};
    } else {
      const auto reads_one = [x...](int tensor) ELEMENTWISE_LAMBDA { return (reads(x, tensor) || ...); };
      const auto one = [this, f, x...](int64_t j) ELEMENTWISE_LAMBDA { return C(f(self().load(x, j)...)); };
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
  ELEMENTWISE_INLINE int64_t load(Columns, int64_t j) const {
    return j;
  }
  template <class F, class Reads>
  ELEMENTWISE_INLINE C load(const Made<F, Reads>& x, int64_t j) const {
    return x.element(j);
  }

 protected:
  template <class F, class... X>
  ELEMENTWISE_INLINE auto terms(const F& f, X... x) const {
    return [this, f, x...](auto j) ELEMENTWISE_LAMBDA { return C(f(self().load(x, j)...)); };
  }

 private:
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
    return {static_cast<const P*>(data)[j], static_cast<const P*>(tangent)[j]};
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
    return [&]<size_t... I>(std::index_sequence<I...>) ELEMENTWISE_LAMBDA {
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
    constexpr Kind kind = kinds[I];
    using P = parameters::At<I, Arguments>;
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
template <class B, class Returned>
struct Values;
template <class B, class... R>
struct Values<B, List<R...>> : Row<Values<B, List<R...>>, B> {
  template <class T>
  static constexpr bool makes = (std::is_same_v<With<R, B>, Elements<T>> || ...);

  static constexpr bool buffers = kKeepsRows, derives = false;

  Source source;
  void* const* results;
  const cpu::OneRow* row; // has memory for rows that are kept
  int written = 0, kept_rows = 0;

  ELEMENTWISE_INLINE Values(const Source& source, const cpu::OneRow& row)
      : source(source), results(row.data), row(&row) {}

  ELEMENTWISE_INLINE B lifted(int place, const void* data, int64_t j) const {
    return place < 0 ? static_cast<const B*>(data)[j] : passes::element<B>(source, place, data, j);
  }

  ELEMENTWISE_INLINE B* buffer() {
    return static_cast<B*>(row->scratch(row->run, kept_rows++));
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE B sum_terms(const F& f, X...) {
    return sum_of<B>(source.size, f);
  }
  template <class F, class... X>
  ELEMENTWISE_INLINE B max_terms(const F& f, X...) {
    return max_of<B>(source.size, f);
  }
  ELEMENTWISE_INLINE B element(Elements<B> x, int64_t place) {
    return this->load(x, place);
  }
  template <class F>
  ELEMENTWISE_INLINE auto range_of(const F& f) {
    return max_of<math::primal_t<B>>(source.size, f);
  }
  template <class F>
  ELEMENTWISE_INLINE int64_t argmax_of(const F& f) {
    return place_of_max<math::primal_t<B>>(source.size, f);
  }

  template <class To, class F, class... X>
  ELEMENTWISE_INLINE void write(const F& f, X...) {
    constexpr int slots[] = {parameters::is_of_row<R>..., 0};
    int slot = 0, of_elements = written++;
    for (size_t i = 0; i < sizeof...(R); i++) {
      if (slots[i]) continue;
      if (of_elements-- == 0) slot = static_cast<int>(i);
    }
    if constexpr (kIsDual<To>) {
      auto* const to = static_cast<decltype(To::value)*>(results[place_among_c(slot)]);
      write_row(to, source.size, [&](int64_t j) ELEMENTWISE_LAMBDA { return f(j).derivative; });
    } else if constexpr (!kIsDual<B>) {
      write_row(static_cast<To*>(results[slot]), source.size, f);
    }
  }

  // Writes what the functor returned: the results that are one for each row.
  template <class Result>
  ELEMENTWISE_INLINE void finish(const Result& returned) {
    set<0, R...>(returned);
  }

 private:
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
  static constexpr bool buffers = false, derives = false;
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
