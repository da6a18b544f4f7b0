// What a functor is: the arithmetic of one element, on the host and on the device.
//
//   struct Scale {
//     using dtypes = elementwise::List<float, double>; // leave it out for the four floating-point types
//     template <class C>
//     ELEMENTWISE_FUNCTION C operator()(C x, C factor) const {
//       return x * factor;
//     }
//   };
//
// It takes the arguments of its operator in the order of the schema. An element of a tensor has the compute type C:
// float for the 16-bit floating-point types, whose results are rounded once more when they are stored, else the dtype
// itself. A `float` of the schema is rounded to C, or is a double if C is an integer or bool. A functor may take it as
// a double, too: `1 - beta` has few digits if beta is rounded to float. An `int` is an int64_t, a `bool` a bool.
//
// C also stands for the dtype that the tensors of a call share. If a parameter or a result has another type, its tensor
// has that dtype in every call: bool, intN_t, uintN_t, float or double.
//
//   ELEMENTWISE_FUNCTION C operator()(C x, bool keep, C scale) const     // a tensor of bool among the others
//   ELEMENTWISE_FUNCTION int8_t operator()(C x, C scale) const           // a result of int8
//
//   ELEMENTWISE_FUNCTION elementwise::Results<C, bool> operator()(C x, C limit) const   // two results, one of bool
//
// A tensor that may be absent, `Tensor? bias`, is an elementwise::Optional<C>, or an Optional of another type.
//
//   ELEMENTWISE_FUNCTION C operator()(C x, elementwise::Optional<C> bias) const {
//     return bias ? x + *bias : x; // or x + bias.value_or(0)
//   }
//
// The loop is compiled once with the tensor and once without it, so an absent tensor costs nothing.
//
// An `int` or `bool` with few values is an elementwise::OneOf of them. The loop is compiled once for each value, which
// is a constant there: `switch (act)` costs nothing, and only the chosen case is computed. A call with another value is
// an error.
//
//   ELEMENTWISE_FUNCTION C operator()(C x, elementwise::OneOf<0, 1, 2> act) const
//
// At least one tensor must be a C that is not optional. Write out the type of the result, not `auto`. In C++,
// converting a number that the type of the result cannot hold is undefined: round and clamp it first. A functor must
// not throw, because a GPU cannot: return NaN if there is no value.
//
// Results have the same bits on every instruction set if the functor calls only functions whose results are specified
// to the last bit: in <cmath>, these are std::fma, std::sqrt, and functions that round to an integer or copy a sign.
// math.h has elementwise::exp and similar functions, whose results are specified too. std::exp would be the C library's
// on the CPU, called for each element, and CUDA's on a GPU, and their last bits differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// A functor is compiled once for each target, each time in another namespace. If the names were the same, the linker
// would keep one copy, perhaps one that the machine cannot run.
#if defined(__CUDACC__) || defined(ELEMENTWISE_CUDA_ON_HOST) // the test of the CUDA kernels defines the latter
#define ELEMENTWISE_TARGET cuda_target
#define ELEMENTWISE_IS_CUDA
#define ELEMENTWISE_FUNCTION __host__ __device__
#elif defined(ELEMENTWISE_ISA)
#define ELEMENTWISE_TARGET ELEMENTWISE_ISA
#ifdef __OPTIMIZE__ // a call would keep the loop around it from being vectorised; a debugger can only stop in a call
#define ELEMENTWISE_FUNCTION [[gnu::always_inline]]
#else
#define ELEMENTWISE_FUNCTION
#endif
#else
#define ELEMENTWISE_TARGET host_target
#define ELEMENTWISE_FUNCTION
#endif

// Marks a function that functors call. It is always inlined, because a call would keep the loop around it from being
// vectorised. Define it in the namespace of the functors, or in another one that is inline ELEMENTWISE_TARGET.
#if defined(__CUDACC__)
#define ELEMENTWISE_INLINE __host__ __device__ __forceinline__
#else
#define ELEMENTWISE_INLINE [[gnu::always_inline]] inline
#endif

namespace elementwise {

// Storage of the 16-bit types; each backend converts them with its own instructions.
struct float16 {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};

template <class T>
constexpr bool kFloat16Bit = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

// The type that elements are computed in: float for 16-bit types, else the type itself.
template <class T>
struct ComputeOf {
  using type = std::conditional_t<kFloat16Bit<T>, float, T>;
};
template <class T>
using compute_t = typename ComputeOf<T>::type;

// The type of a `float` of the schema, if elements are computed in C and the functor takes it as a P.
template <class C, class P = void>
using number_t = std::conditional_t<std::is_floating_point_v<C> && !std::is_same_v<P, double>, C, double>;

template <class... T>
struct List {};

// T. The index only expands a pack: `Repeat<I, T>...` is a T for each index of the pack I.
template <size_t, class T>
using Repeat = T;

// A list of T, n times.
template <class T, size_t... I>
List<Repeat<I, T>...> repeat(std::index_sequence<I...>);
template <class T, size_t n>
using Repeated = decltype(repeat<T>(std::make_index_sequence<n>{}));

// Several lists joined to one.
template <class... T, class... U>
List<T..., U...> operator+(List<T...>, List<U...>);
template <class... Lists>
using Joined = decltype((List<>{} + ... + Lists{}));

// A list, or an empty one. Joined<ListIf<condition<T>, List<T>>...> has the types of a pack T that fulfil a condition.
template <bool condition, class Those>
using ListIf = std::conditional_t<condition, Those, List<>>;

// Several results of a functor: return {sum, difference}; leaving one out is an error.
template <class T>
T missing_result() = delete;
template <class First, class... Rest>
struct Results {
  First first;
  Results<Rest...> rest;
};
template <class Last>
struct Results<Last> {
  Last first = missing_result<Last>();
};

// n numbers of a type. (The functions of std::array cannot be called on a GPU either.)
template <class T, size_t n>
struct Array {
  T each[n];
};

// The element of a tensor that may be absent. (The functions of std::optional cannot be called on a GPU.)
template <class T>
struct Optional {
  T value; // first: behind a bool, clang would move two floats as one number of 64 bits, which it cannot vectorise
  bool is_given;

  Optional() = default;
  ELEMENTWISE_INLINE constexpr Optional(bool is_given, T value) : value(value), is_given(is_given) {}
  ELEMENTWISE_INLINE explicit operator bool() const {
    return is_given;
  }
  ELEMENTWISE_INLINE T operator*() const {
    return value;
  }
  ELEMENTWISE_INLINE T value_or(T other) const {
    return is_given ? value : other;
  }
};

// An argument that has one of these values: an `int` of the schema, or a `bool` if they are bool.
template <auto first, auto... rest>
struct OneOf {
  using Value = std::conditional_t<std::is_same_v<decltype(first), bool>, bool, int64_t>;
  static_assert(
      (std::is_integral_v<decltype(first)> && ... && std::is_same_v<decltype(first), decltype(rest)>),
      "OneOf has integers, or true and false");
  static constexpr int64_t kValues[] = {first, rest...};
  Value value;

  ELEMENTWISE_INLINE constexpr explicit OneOf(Value value) : value(value) {}
  ELEMENTWISE_INLINE constexpr operator Value() const {
    return value;
  }
};

// A parameter or a result of a functor over rows that has a value for each element of a row (rows/row.h).
template <class T>
struct Elements {
  const void* data; // the elements of this row, in the compute type or in the tensor's own type
  int index;        // its index among the tensors that are present

  Elements() = default;
  ELEMENTWISE_INLINE constexpr Elements(const void* data, int index) : data(data), index(index) {}
  ELEMENTWISE_INLINE Elements(const T&) { // what a functor returns that forgets row.each
    static_assert(sizeof(T) == 0, "an Elements<T> is what row.each returns, and not a number");
  }
};

// A result of C that row.softmax makes. The backward pass reads it.
template <class C>
struct Probabilities {
  int index; // as that of Elements
};

using FloatingPoint = List<float16, bfloat16, float, double>;

// A dtype is known by torch's ordinal. Ordinals cannot change, because serialized models contain them, and ExecuTorch
// uses the same.
// clang-format off
template <class T>
constexpr int32_t kOrdinal =
    std::is_same_v<T, uint8_t> ? 0 : std::is_same_v<T, int8_t> ? 1 : std::is_same_v<T, int16_t> ? 2
    : std::is_same_v<T, int32_t> ? 3 : std::is_same_v<T, int64_t> ? 4 : std::is_same_v<T, float16> ? 5
    : std::is_same_v<T, float> ? 6 : std::is_same_v<T, double> ? 7 : std::is_same_v<T, bool> ? 11
    : std::is_same_v<T, bfloat16> ? 15 : std::is_same_v<T, uint16_t> ? 27 : std::is_same_v<T, uint32_t> ? 28
    : std::is_same_v<T, uint64_t> ? 29 : -1;
// clang-format on

// Whether a dtype is a float16 or a bfloat16, which kernels compute in float.
constexpr bool has_16_bits(int32_t dtype) {
  return dtype == kOrdinal<float16> || dtype == kOrdinal<bfloat16>;
}

// The dtypes of a functor: those it names, or else the floating-point ones.
template <class F>
struct DtypesOf {
  using type = FloatingPoint;
};
template <class F>
  requires requires { typename F::dtypes; }
struct DtypesOf<F> {
  using type = typename F::dtypes;
};

// Keeps the floating-point dtypes of a list.
template <class... T>
Joined<ListIf<std::is_floating_point_v<compute_t<T>>, List<T>>...> floats_of(List<T...>);
template <class Dtypes>
using FloatsOf = decltype(floats_of(Dtypes{}));

// The ordinals of the dtypes.
template <class Dtypes>
struct Ordinals;
template <class... T>
struct Ordinals<List<T...>> {
  static_assert(((kOrdinal<T> >= 0) && ...), "dtypes are bool, intN_t, uintN_t, float16, bfloat16, float and double");
  static constexpr int32_t each[] = {kOrdinal<T>...};
};

} // namespace elementwise
