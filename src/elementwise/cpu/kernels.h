// The loops of functors over adjacent elements, compiled once for each instruction set. ELEMENTWISE_ISA names the
// namespace, and the build passes the matching -march. Everything has internal linkage or a name with the instruction
// set in it, and the compiler inlines the inline functions of the standard library that it calls. Otherwise the linker
// might keep a function that was compiled for AVX-512, and a machine without AVX-512 would call it.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "../bound_functor.h"
#include "../derivatives.h"
#include "../rows/kernels.h"
#include "convert.h"
#include "vectors.h"

// With functions of math.h a functor computes so much for each element that vectors of 512 bits are up to twice as fast
// (other functors are slower with them on data beyond the caches), and that short rows are better packed than computed
// in place, which would take several loops.
//
// The header that a file includes decides this for all functors of the file, because the compiler cannot decide it for
// each: C++ cannot ask what a function calls. Testing whether a call is a constant expression does not help,
// because that depends on the argument: `x > 0 ? x : elementwise::expm1(x)` is one for 1 and not for -1, and so is
// `std::sqrt(x)`, although it is short. A number type that records the functions it is passed to would tell, but only
// differentiable functors accept other types.
#if defined(ELEMENTWISE_WIDE) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")
#endif

namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

// Writes the result of a functor, or its several results, each to an Element or to a lane. These are inlined early:
// across a call, clang would not know that the write is independent of the other steps of the loop.
template <class C, class T>
ELEMENTWISE_INLINE void store(const C& result, T& to) {
  if constexpr (std::is_class_v<T>)
    to.value = narrow<decltype(to.value)>(result);
  else
    to = result;
}
template <class... C, class T, class... Rest>
ELEMENTWISE_INLINE void store(const Results<C...>& results, T& to, Rest&... rest) {
  store(results.first, to);
  if constexpr (sizeof...(Rest) > 0) store(results.rest, rest...);
}

#if defined(__F16C__)

// Loads the first or the second of two vectors. The first vector of bfloat16 has the even elements and the second one
// the odd elements: these are the lower and the upper halves of 32 bits, so no element changes its lane.
template <bool second, int n, class T>
Lanes<compute_t<T>, n> load(const Element<T>* from) {
  if constexpr (std::is_same_v<T, float16>) {
    return load_float16(from + second * n);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    Lanes<float, n> to;
    ELEMENTWISE_VECTORS(n, 1)
    for (int k = 0; k < n; k++) {
      uint32_t two;
      std::memcpy(&two, from + 2 * k, sizeof(two));
      to.lane[k] = bits_as<float>(second ? two & 0xffff0000 : two << 16);
    }
    return to;
  } else if constexpr (std::is_same_v<T, compute_t<T>> && !std::is_same_v<T, bool>) {
    Lanes<T, n> to;
    // We do not copy element by element: GCC would keep the first one in a register, load each next one at the end of
    // a step, and not vectorise the loop of a functor with a condition.
    std::memcpy(&to, from + second * n, sizeof(to));
    return to;
  } else {
    Lanes<compute_t<T>, n> to;
    for (int k = 0; k < n; k++) to.lane[k] = widen(from[second * n + k].value);
    return to;
  }
}

template <class T, int n>
void unload(const Lanes<compute_t<T>, n>& from, Element<T>* to) {
  if constexpr (std::is_same_v<T, float16>) {
    unload_float16(from, to);
  } else {
    for (int k = 0; k < n; k++) store(from.lane[k], to[k]);
  }
}

template <class T, int n>
void unload_two(const Lanes<compute_t<T>, n>& first, const Lanes<compute_t<T>, n>& second, Element<T>* to) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    ELEMENTWISE_VECTORS(n, 1)
    for (int k = 0; k < n; k++) {
      const uint32_t two =
          rounded_to_bfloat16(first.lane[k]) >> 16 | (rounded_to_bfloat16(second.lane[k]) & 0xffff0000);
      std::memcpy(to + 2 * k, &two, sizeof(two));
    }
  } else {
    unload(first, to);
    unload(second, to + n);
  }
}

#endif

// The distance from one row to the next, for each type of a pack.
template <class>
using Pitch = int64_t;

// The loops of a functor: the types of its results and inputs, and their places among the operands.
template <class F, class R, class X, class J, class K>
struct Loops;

template <class F, class... R, class... X, size_t... J, size_t... K>
struct Loops<F, List<R...>, List<X...>, std::index_sequence<J...>, std::index_sequence<K...>> {
  static constexpr int kResults = sizeof...(R);
  static constexpr int bytes[] = {sizeof(R)..., sizeof(X)...};
  static constexpr int vector = kVector / std::max({sizeof(R)..., sizeof(X)...}); // elements

  template <class T>
  static Element<T>* at(void* const* data, int operand) {
    return static_cast<Element<T>*>(data[operand]);
  }

  static void row(int64_t n, void* const* data, const Number* numbers) {
    compute<vector, 2>(n, F(numbers), at<R>(data, J)..., at<X>(data, kResults + K)...);
  }

  template <bool kOverlap>
  static void short_rows(const Rows& rows, const Number* numbers) {
    widths<vector, true, kOverlap>(
        0, rows.count, rows.length, F(numbers), at<R>(rows.data, J)..., at<X>(rows.data, kResults + K)...,
        rows.pitch[J]..., rows.pitch[kResults + K]...);
  }

 private:
  // Computes kCount vectors of kWidth elements at a time. A result may be an input itself: then an element is read and
  // written in the same step.
  template <int64_t kWidth, int kCount>
  [[gnu::always_inline]] static inline void compute(int64_t n, F f, Element<R>*... out, const Element<X>*... in) {
    int64_t i = 0;
#if defined(__F16C__)
    if constexpr (kByVectors) {
      for (const int64_t whole = n - n % (2 * kStep); i < whole; i += 2 * kStep)
        compute_two(
            f, out + i..., Vector<R>{}..., Vector<R>{}..., load<false, kStep>(in + i)..., load<true, kStep>(in + i)...);
    }
    if constexpr (kFloat16) {
      if (i + kStep <= n) {
        compute_one(f, out + i..., Vector<R>{}..., load<false, kStep>(in + i)...);
        i += kStep;
      }
    }
#endif
    ELEMENTWISE_VECTORS(kWidth, kCount)
    for (; i < n; i++) store(f(widen(in[i].value)...), out[i]...);
  }

#if defined(__F16C__)
  template <class T>
  static constexpr bool kAll = (std::is_same_v<R, T> && ...) && (std::is_same_v<X, T> && ...);

  // The steps of a long functor wait for each other, and the processor looks little further ahead than one vector. If
  // the compiler interleaves the steps of two vectors, they take up to a quarter less time. A short functor
  // would take more. clang interleaves the plain loop itself, and does it better.
#if defined(ELEMENTWISE_LONG_FUNCTORS) && !defined(__clang__)
  static constexpr bool kLong = kAll<float> || kAll<double>;
#else
  static constexpr bool kLong = false;
#endif
  static constexpr bool kFloat16 = (std::is_same_v<R, float16> || ...) || (std::is_same_v<X, float16> || ...);
  static constexpr bool kByVectors = kLong || kFloat16 || kAll<bfloat16>;
  static constexpr int kStep = kAll<double> ? kLanes / 2 : kLanes;
  template <class T>
  using Vector = Lanes<compute_t<T>, kStep>;

  [[gnu::always_inline]] static inline void compute_one(
      F f, Element<R>*... out, Vector<R>... result, const Vector<X>&... x) {
    ELEMENTWISE_VECTORS(kStep, 1)
    for (int k = 0; k < kStep; k++) store(f(x.lane[k]...), result.lane[k]...);
    (unload(result, out), ...);
  }

  [[gnu::always_inline]] static inline void compute_two(
      F f, Element<R>*... out, Vector<R>... first, Vector<R>... second, const Vector<X>&... x, const Vector<X>&... y) {
    ELEMENTWISE_VECTORS(kStep, 1)
    for (int k = 0; k < kStep; k++) store(f(x.lane[k]...), first.lane[k]...);
    ELEMENTWISE_VECTORS(kStep, 1)
    for (int k = 0; k < kStep; k++) store(f(y.lane[k]...), second.lane[k]...);
    (unload_two(first, second, out), ...);
  }
#endif

  // Computes the whole vectors of each row, then half a vector of the rest, and so on. With kOverlap, the last vector
  // of a row overlaps the one before, which needs only a fifth of the code. Then no result may be an input, and no row
  // may be shorter than a vector.
  template <int64_t kWidth, bool kWhole, bool kOverlap>
  [[gnu::always_inline]] static inline void widths(
      int64_t i, int64_t count, int64_t length, F f, Element<R>*... out, const Element<X>*... in, Pitch<R>... out_pitch,
      Pitch<X>... in_pitch) {
    const int64_t end = kOverlap ? length : kWhole ? length - length % kWidth : i + kWidth;
    if (i < end && end <= length) {
      const auto all_rows = [&](Element<R>*... to, const Element<X>*... from) {
        for (int64_t j = 0; j < count; j++, ((to += out_pitch), ...), ((from += in_pitch), ...))
          for (int64_t k = i, next; k < end; k = next) {
            compute<kWidth, 1>(kWidth, f, to + k..., from + k...);
            next = k + kWidth;
            if (kOverlap && next < end) next = std::min(next, end - kWidth);
          }
      };
      all_rows(out..., in...);
      i = end;
    }
    if constexpr (kWidth > 1 && !kOverlap)
      widths<kWidth / 2, false, false>(i, count, length, f, out..., in..., out_pitch..., in_pitch...);
  }
};

template <class Kernel>
Computer computer(int32_t dtype) {
  Computer chosen{};
  with_dtype(typename Kernel::Dtypes{}, dtype, [&](auto storage) {
    using T = decltype(storage);
    using KernelLoops = Loops<
        Bound<compute_t<T>, Kernel>, typename Kernel::template Results<T>, typename Kernel::template Inputs<T>,
        std::make_index_sequence<Kernel::kResults>, std::make_index_sequence<Kernel::kInputs>>;
    constexpr int order = derivatives::order<typename Kernel::Functor>;
    constexpr bool is_derivative = order > 0;
    chosen = {KernelLoops::row, nullptr, Kernel::kResults, KernelLoops::bytes, is_derivative ? KernelLoops::vector : 0};
#if !defined(ELEMENTWISE_LONG_FUNCTORS)
    if constexpr (order < 2) chosen.short_rows = KernelLoops::template short_rows<is_derivative>;
#endif
  });
  return chosen;
}

// Derivatives of the second and third order are rarely called, and have the same bits everywhere. So the second order
// is not compiled for AVX-512, which uses the code for AVX2, and the third order is compiled only once.
#if defined(__AVX512F__) && !defined(ELEMENTWISE_NATIVE) // where the build compiles no other code
constexpr int kMostOrder = 1;
#elif defined(__AVX2__) && !defined(ELEMENTWISE_NATIVE)
constexpr int kMostOrder = 2;
#else
constexpr int kMostOrder = 3;
#endif

#if defined(ELEMENTWISE_PART)
constexpr size_t kPart = ELEMENTWISE_PART;
#else
constexpr size_t kPart = 0;
#endif

// Null for a kernel that is not compiled here.
template <class Kernel, size_t index>
constexpr ComputerOf computer_of() {
  if constexpr (index % kParts != kPart || derivatives::order<typename Kernel::Functor> > kMostOrder)
    return nullptr;
  else if constexpr (parameters::is_of_rows<typename Kernel::Functor>)
    return row_computer<Kernel>;
  else
    return computer<Kernel>;
}
template <class... Kernel>
constexpr auto computers_of(List<Kernel...>) {
  return []<size_t... index>(std::index_sequence<index...>) {
    return std::array<ComputerOf, sizeof...(Kernel)>{computer_of<Kernel, index>()...};
  }(std::index_sequence_for<Kernel...>());
}

// A short name for the list of operators: above each error in a functor, the compiler prints the whole name.
template <class Library>
struct ShortName {
  static constexpr auto computers = computers_of(KernelsOf<WithDerivatives<typename Library::Operators>>{});
};

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA

#define ELEMENTWISE_OPERATORS(library, List)                                                    \
  namespace {                                                                                   \
  struct library##_operators {                                                                  \
    using Operators = List;                                                                     \
  };                                                                                            \
  }                                                                                             \
  template <>                                                                                   \
  const elementwise::cpu::ComputerOf*                                                           \
  elementwise::cpu::ELEMENTWISE_ISA::computers<elementwise::cpu::ELEMENTWISE_ISA::kPart>() {    \
    return elementwise::cpu::ELEMENTWISE_ISA::ShortName<library##_operators>::computers.data(); \
  }
