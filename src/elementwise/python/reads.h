// Finds which arguments a partial derivative reads. It calls the functor with numbers that record which arguments they
// are computed from, once for each combination of outcomes of the functor's conditions.
//
// Example: x > 0 ? x : y * x, differentiated by x. The arguments are dual numbers of Traced: x is {reads x} with the
// derivative 1, and y is {reads y} with the derivative 0.
//
//   path 1, the condition is false: y * x has the derivative y, which reads y
//   path 2, the condition is true: x has the derivative 1, which reads nothing
//
// The derivative differs between the paths, so the backward pass must also know the condition, which compared x: the
// derivative reads x and y.
#pragma once

#include <cstdint>

#include "../derivatives.h"
#include "../math.h"
#include "../math/names.h"

namespace elementwise::inline ELEMENTWISE_TARGET {

// The outcomes of a functor's conditions in one call, and the arguments that they compared in all calls so far.
struct Path {
  static constexpr int kMost = 10; // with more conditions, we assume that the functor reads everything

  bool taken[kMost] = {};
  int length = 0;
  uint64_t compared = 0; // bit k: the k-th argument
  bool is_known = true;  // false: the functor may read everything
  uint64_t random = 0;   // the state of a linear congruential generator

  // The outcome of the next condition. After kMost conditions the outcomes are random, so that every loop ends. If they
  // alternated, a loop with two conditions would not.
  bool decide(uint64_t reads) {
    compared |= reads;
    if (length < kMost) return taken[length++];
    is_known = false;
    random = random * 6364136223846793005 + 1442695040888963407; // the factors are Knuth's, for MMIX
    return random >> 63;
  }

  // Moves on to the next combination of outcomes; false if there is none.
  bool next() {
    while (length > 0 && taken[length - 1]) taken[--length] = false;
    if (length == 0) return false;
    taken[length - 1] = true;
    length = 0;
    return true;
  }

  // The path of the running call. Conditions have no other access to it.
  static Path*& now() {
    static thread_local Path* path = nullptr;
    return path;
  }
};

// Thrown where a functor converts an element to an integer, which cannot record the arguments that it depends on. The
// functor must not go on, because it may divide by that integer, or use it as an index into an array.
struct Untraceable {};

// A constant, or a number that is computed from arguments: from the k-th one if bit k of `reads` is set. P is the type
// that a kernel computes in, which a functor may ask for.
template <class P>
struct Traced {
  double constant = 0; // its value, if `reads` is 0
  uint64_t reads = 0;

  Traced() = default;
  template <class N, std::enable_if_t<std::is_arithmetic_v<N>, int> = 0>
  constexpr Traced(N constant) : constant(static_cast<double>(constant)) {}

  explicit operator bool() const {
    return reads ? Path::now()->decide(reads) : constant != 0;
  }
  template <class N, std::enable_if_t<std::is_integral_v<N> && !std::is_same_v<N, bool>, int> = 0>
  explicit operator N() const {
    if (reads) throw Untraceable();
    return static_cast<N>(constant);
  }

  // The result of an operation on x: it reads what its operands read.
  static Traced made_of(const auto& value, const auto&... x) {
    Traced made;
    made.reads = (x.reads | ...);
    if (!made.reads) made.constant = static_cast<double>(value(x.constant...));
    return made;
  }

  friend Traced operator+(const Traced& x) {
    return x;
  }
  friend Traced operator-(const Traced& x) {
    return made_of([](double x) { return -x; }, x);
  }

#define ELEMENTWISE_TRACED(sign)                                   \
  friend Traced operator sign(const Traced& a, const Traced& b) {  \
    return made_of([](auto x, auto y) { return x sign y; }, a, b); \
  }                                                                \
  friend Traced& operator sign## = (Traced & a, const Traced& b) { \
    return a = a sign b;                                           \
  }
  ELEMENTWISE_TRACED(+)
  ELEMENTWISE_TRACED(-)
  ELEMENTWISE_TRACED(*)
  ELEMENTWISE_TRACED(/)
#undef ELEMENTWISE_TRACED

#define ELEMENTWISE_TRACED(sign)                                         \
  friend bool operator sign(const Traced& a, const Traced& b) {          \
    return bool(made_of([](auto x, auto y) { return x sign y; }, a, b)); \
  }
  ELEMENTWISE_TRACED(==)
  ELEMENTWISE_TRACED(<)
  ELEMENTWISE_TRACED(<=)
  ELEMENTWISE_TRACED(>)
  ELEMENTWISE_TRACED(>=)
#undef ELEMENTWISE_TRACED

#define ELEMENTWISE_TRACED(function)                                    \
  friend bool function(const Traced& x) {                               \
    return bool(made_of([](double x) { return std::function(x); }, x)); \
  }
  ELEMENTWISE_TRACED(isnan)
  ELEMENTWISE_TRACED(isinf)
  ELEMENTWISE_TRACED(isfinite)
  ELEMENTWISE_TRACED(signbit)
#undef ELEMENTWISE_TRACED

#define ELEMENTWISE_TRACED(function)                                      \
  friend Traced function(const Traced& x) {                               \
    return made_of([](double x) { return elementwise::function(x); }, x); \
  }
  ELEMENTWISE_EACH_UNARY(ELEMENTWISE_TRACED)
#undef ELEMENTWISE_TRACED

#define ELEMENTWISE_TRACED(function)                                                      \
  friend Traced function(const Traced& a, const Traced& b) {                              \
    return made_of([](double x, double y) { return elementwise::function(x, y); }, a, b); \
  }
  ELEMENTWISE_TRACED(copysign)
  ELEMENTWISE_TRACED(min)
  ELEMENTWISE_TRACED(max)
  ELEMENTWISE_TRACED(hypot)
  ELEMENTWISE_TRACED(atan2)
  ELEMENTWISE_TRACED(pow)
#undef ELEMENTWISE_TRACED

#define ELEMENTWISE_TRACED(function)                                                                      \
  friend Traced function(const Traced& a, const Traced& b, const Traced& c) {                             \
    return made_of([](double x, double y, double z) { return elementwise::function(x, y, z); }, a, b, c); \
  }
  ELEMENTWISE_TRACED(clamp)
  ELEMENTWISE_TRACED(fma)
#undef ELEMENTWISE_TRACED

  // As in dual.h: a derivative that is always zero reads nothing.
  friend Traced scaled(const Traced& derivative, const Traced& factor) {
    return !derivative.reads && derivative.constant == 0 ? Traced(0) : derivative * factor;
  }
};

namespace math {
template <class P>
struct PrimalOf<Traced<P>> {
  using type = P;
};
} // namespace math

} // namespace elementwise::inline ELEMENTWISE_TARGET

template <class P>
struct std::numeric_limits<elementwise::Traced<P>> : std::numeric_limits<P> {};

namespace elementwise {

// The arguments that a partial derivative reads; if it reads none, its value.
struct Reads {
  static constexpr uint64_t kAll = ~uint64_t{0};
  uint64_t arguments = kAll;
  double constant = 0;
};

namespace reads {

// Whether an argument of type P can be traced. We assume that a functor with other arguments reads everything.
template <class P>
constexpr bool is_traced =
    std::is_same_v<typename parameters::ElementOf<P>::type, parameters::AnyC> || std::is_same_v<P, bool>;

// The traced argument at an index. `is_by`: whether the derivative is by this argument.
template <class P, class C>
auto argument(size_t place, bool is_by) {
  C x;
  x.reads = uint64_t{1} << place;
  const Dual<C> dual(x, is_by);
  if constexpr (std::is_same_v<P, bool>)
    return bool(x);
  else if constexpr (std::is_same_v<P, parameters::AnyC>)
    return dual;
  else
    return Optional<Dual<C>>{bool(x), dual};
}

// The union of what the derivatives of all results read.
template <class C>
C derivative_of(const Dual<C>& result) {
  return result.derivative;
}
template <class C, class First, class... Rest>
C derivative_of(const Results<First, Rest...>& results) {
  C made;
  if constexpr (std::is_same_v<First, Dual<C>>) made.reads = results.first.derivative.reads;
  if constexpr (sizeof...(Rest) > 0) made.reads |= derivative_of<C>(results.rest).reads;
  return made;
}

// Finds what the derivative reads if a kernel computes in P, where C is Traced<P>. We do not call a functor that is
// noexcept, because an Untraceable that leaves it would end the process.
template <class F, class C, class... P, size_t... I>
Reads of(List<P...>, std::index_sequence<I...>, size_t by) {
  if (std::is_nothrow_invocable_v<F, decltype(argument<P, C>(I, false))...>) return {};
  Path path;
  Path::now() = &path;
  Reads found{0, 0};
  using Result = decltype(F{}(argument<P, C>(I, I == by)...));
  bool is_first = true, is_constant = std::is_same_v<Result, Dual<C>>; // not for several results
  try {
    do {
      const C partial = derivative_of<C>(F{}(argument<P, C>(I, I == by)...));
      is_constant &= !partial.reads && (is_first || partial.constant == found.constant);
      found.constant = partial.constant;
      found.arguments |= partial.reads;
      is_first = false;
    } while (path.is_known && path.next());
  } catch (const Untraceable&) {
    return {};
  }
  if (!path.is_known) return {};
  return is_constant ? found : Reads{found.arguments | path.compared, 0};
}

// If the types T differ in what is read, or in a constant, we assume that the derivative reads everything.
template <class F, class... P, class... T>
Reads of_each(List<P...> parameters, List<T...>, size_t by) {
  if constexpr ((is_traced<P> && ...) && sizeof...(T) > 0) {
    const Reads each[] = {of<F, Traced<T>>(parameters, std::index_sequence_for<P...>{}, by)...};
    for (const Reads& one : each)
      if (one.arguments != each[0].arguments || one.constant != each[0].constant) return {};
    return each[0];
  } else {
    return {};
  }
}

} // namespace reads

// The arguments that a first derivative, with respect to one argument, reads. We assume that others read everything.
template <class Op, size_t order>
Reads reads_of(const std::array<int, order>& by) {
  if (order > 1 || by[0] < 0) return {};
  using Computed = typename derivatives::ComputedOf<FloatsOf<typename Op::Kernel::Dtypes>>::type;
  return reads::of_each<typename Op::Functor>(typename Op::Kernel::Parameters::Arguments{}, Computed{}, by[0]);
}

} // namespace elementwise
