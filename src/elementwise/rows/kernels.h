// Computes one row of an operator, or of a derivative that is made from its functor. Compiled once for each target.
#pragma once

#include "../cpu/work.h"
#include "family.h"
#include "gradients.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

// A forward pass. If the call is recorded, the first `kNoted` reductions follow the results (family.h).
template <class F, int kNoted, class S, Kind... kKind>
struct ForwardLoop {
  using C = compute_t<S>;
  using RowFunctor = passes::RowFunctor<F, kKind...>;
  using Returned = typename RowFunctor::Returned;
  using Kept = C; // the type of a row that is kept
  static constexpr int kResults = std::size(parameters::Each<Returned>::own), kInputs = RowFunctor::kInputs;
  static constexpr int kFirstInput = kResults + kNoted; // where the inputs begin

  ELEMENTWISE_FLATTEN static void compute(const cpu::OneRow& row) {
    const Source<S> source{row, row.index, row.data + kFirstInput, nullptr, row.numbers};
    using OfFunctor = std::conditional_t<kNoted == 0, C, Dual<C>>;
    Values<S, Returned, OfFunctor> values(source, row);
    values.finish(RowFunctor::template call<OfFunctor>(values));
    if constexpr (kNoted > 0)
      once(source.size, [&] {
        for (int k = 0; k < kNoted; k++) *static_cast<double*>(row.data[kResults + k]) = values.reduced[k];
      });
  }
  ELEMENTWISE_FLATTEN static auto checked(const cpu::OneRow& row, int reduction) {
    Checked<C, Returned> checked({row, row.index, row.data + kFirstInput, nullptr, row.numbers}, reduction);
    RowFunctor::template call<C>(checked);
    if (Values<C, Returned>::keeps_in_result && checked.kept_rows > 0) {
      checked.kept_rows--;
      checked.keeps_in_result = true;
    }
    return checked;
  }
};

template <class Kernel, class S>
struct RowLoop;
template <class F, Kind... kKind, class S>
struct RowLoop<Kernel<F, kKind...>, S> : ForwardLoop<F, 0, S, kKind...> {};

template <class Original, Kind... kKind, class S>
struct RowLoop<Kernel<rows::Derived<Original, rows::Role::recorded>, kKind...>, S>
    : ForwardLoop<typename Original::Functor, rows::kMostReduced, S, kKind...> {};

template <class Original, rows::Role role, Kind... kKind, class S>
struct RowLoop<Kernel<rows::Derived<Original, role>, kKind...>, S> {
  using C = compute_t<S>;
  using Kept = std::conditional_t<role == rows::Role::gradients, C, Dual<C>>;
  static constexpr Kind kinds[] = {kKind...};
  template <size_t... I>
  static passes::RowFunctor<typename Original::Functor, kinds[I]...> row_functor(std::index_sequence<I...>);
  using RowFunctor = decltype(row_functor(std::make_index_sequence<Original::kArguments>{}));
  static constexpr int kResults = role == rows::Role::tangent ? Original::kGrads : Original::kTensors;
  static constexpr int kInputs = RowFunctor::kInputs;

  // For each tensor that has a derivative, its index among all tensors of the functor, or -1 if it is absent.
  using IndexOf = Array<int, Original::kTensors>;
  static constexpr IndexOf index_of = []<size_t... T>(std::index_sequence<T...>) {
    constexpr auto& arguments = Original::arguments;
    return IndexOf{{(kinds[arguments[T]] == Kind::absent ? -1 : kIndexAmong<arguments[T], kKind...>)...}};
  }(std::make_index_sequence<Original::kTensors>{});
  // The indices of those that are present and have one value for each row (kOfRow), or one for each element.
  template <bool kOfRow, size_t... T, class... P>
  static Joined<
      ListIf<index_of.each[T] >= 0 && parameters::is_of_row<P> == kOfRow, List<TensorAt<index_of.each[T]>>>...>
      present(std::index_sequence<T...>, List<P...>);
  template <bool kOfRow>
  using Present =
      decltype(present<kOfRow>(std::make_index_sequence<Original::kTensors>{}, typename Original::Tensors{}));
  static constexpr int kOfElements = Original::count(Present<false>{});

  ELEMENTWISE_FLATTEN static void compute(const cpu::OneRow& row) {
    constexpr IndexOf index = index_of; // a copy, because nvcc has no static members of the host here
    const void* const* const inputs = row.data + kResults;
    const void* tangents[kInputs] = {};
    if constexpr (role != rows::Role::gradients) {
      constexpr int first = kInputs + (role == rows::Role::second ? Original::kGrads : 0);
      for (int t = 0; t < Original::kTensors; t++)
        if (index.each[t] >= 0) tangents[index.each[t]] = inputs[first + t];
    }
    using Stored = std::conditional_t<role == rows::Role::gradients, S, Dual<C>>;
    const Source<Stored> source{row, row.index, inputs, tangents, row.numbers};
    source.size.always_read(~uint32_t{0} << kInputs); // gradients and tangents
    if constexpr (role == rows::Role::tangent) {
      Values<Stored, typename RowFunctor::Returned> values(source, row);
      values.finish(RowFunctor::template call<Dual<C>>(values));
    } else {
      const void* const* const grads = inputs + kInputs;
      // After the gradients of the results, _f_gradients gets the softmax or the kept numbers, and _f_second the
      // tangents and then the tangents of the gradients.
      const void* const* const more = grads + Original::kGrads;
      Known<Stored, kOfElements> known(
          {source, row, grads, more + Original::kTensors, Original::kSoftmaxes ? *more : nullptr, more,
           role == rows::Role::gradients ? Original::kReduced : 0});
      const int64_t wanted = role == rows::Role::second ? -1 : row.numbers[Original::kNumbers].integer;
      void* to[kInputs] = {};
      uint32_t added = 0;
      for (int t = 0; t < Original::kTensors; t++) {
        if (index.each[t] < 0) continue;
        if (wanted >> t & 1) to[index.each[t]] = row.data[t];
        added |= (row.added >> t & 1) << index.each[t];
      }
      gradients<RowFunctor>(known, Present<false>{}, Present<true>{}, to, added);
    }
  }
  // Reads only the tensors of the functor, which come first.
  ELEMENTWISE_FLATTEN static auto checked(const cpu::OneRow& row, int reduction) {
    constexpr bool has_softmax = role == rows::Role::gradients && Original::kSoftmaxes;
    Checked<C, typename RowFunctor::Returned, role != rows::Role::tangent, has_softmax> checked(
        {row, row.index, row.data + kResults, nullptr, row.numbers}, reduction);
    RowFunctor::template call<C>(checked);
    if constexpr (role != rows::Role::tangent) checked.kept_rows *= 1 + kOfElements; // with derivatives
    return checked;
  }
};

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET

#if !defined(ELEMENTWISE_IS_CUDA)
namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

// Calls the function for one row after the other.
template <int kOperands, class F>
void for_rows(const SeveralRows& rows, const F& f) {
  OneRow row = rows.first;
  void* data[kOperands];
  for (int k = 0; k < kOperands; k++) data[k] = row.data[k];
  row.data = data;
  for (int64_t i = 0; i < rows.count; i++) {
    f(row);
    for (int k = 0; k < kOperands; k++) data[k] = static_cast<std::byte*>(data[k]) + rows.pitch[k];
    row.index = row.index == rows.last ? 0 : row.index + 1;
  }
}

// Returns the first place outside of the row that row.at reads, unless that depends on the elements.
template <class Loop>
ELEMENTWISE_FLATTEN passes::Outside outside_of(const OneRow& row) {
  const passes::Outside outside = Loop::checked(row, 1).outside;
  return outside == Loop::checked(row, 2).outside ? outside : passes::Outside();
}

// Without optimisation the compiler knows nothing: all rows are checked, and all tensors are read. The kernel always
// reads the operands that follow the tensors of the functor, such as gradients.
template <class Loop>
ELEMENTWISE_FLATTEN RowReads reads(const OneRow& any) {
  const bool is_inside = outside_of<Loop>(any).number == 0;
  const uint32_t read = Loop::checked(any, 1).read;
  return {
      __builtin_constant_p(is_inside) && is_inside,
      __builtin_constant_p(read) ? read | ~uint32_t{0} << Loop::kInputs : ~uint32_t{0}};
}

// The length of the shortest row that a kernel reads and writes as bfloat16. Shorter rows are converted when they are
// copied, and several of them are then computed at once, which is faster for them. Kernels of forward mode and of the
// second order have all rows converted, because they are called less often.
constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
template <class F>
constexpr int64_t shortest_of_bfloat16 = 256;
template <class Original>
constexpr int64_t shortest_of_bfloat16<rows::Derived<Original, rows::Role::gradients>> = 0;
template <class Original>
constexpr int64_t shortest_of_bfloat16<rows::Derived<Original, rows::Role::tangent>> = kNone;
template <class Original>
constexpr int64_t shortest_of_bfloat16<rows::Derived<Original, rows::Role::second>> = kNone;

// Tells whether a functor has Elements<float>. In float, these are the same type as its Elements<C>.
template <class... P>
constexpr bool has_floats(List<P...>) {
  return ((std::is_same_v<typename parameters::ElementOf<P>::type, float> && !parameters::is_of_row<P>) || ...);
}

template <class Kernel>
Computer row_computer(int32_t dtype) {
  Computer chosen{};
  with_dtype(typename Kernel::Dtypes{}, dtype, [&](auto storage) {
    using T = decltype(storage);
    using Loop = passes::RowLoop<Kernel, compute_t<T>>;
    chosen.results = Kernel::kResults;
    constexpr int kOperands = Kernel::kResults + Kernel::kInputs;
    chosen.rows = [](const SeveralRows& rows) { for_rows<kOperands>(rows, Loop::compute); };
    constexpr int64_t shortest = shortest_of_bfloat16<typename Kernel::Functor>;
    using Of = parameters::Of<typename Kernel::Functor, 0>;
    constexpr bool has_own_floats = has_floats(typename Of::Arguments{}) || has_floats(typename Of::Results{});
    constexpr bool is_wide = passes::kRowVector >= 32; // it is not faster with shorter vectors
    if constexpr (std::is_same_v<T, bfloat16> && is_wide && shortest != kNone && !has_own_floats) {
      chosen.rows_of_bfloat16 = [](const SeveralRows& rows) {
        for_rows<kOperands>(rows, passes::RowLoop<Kernel, T>::compute);
      };
      chosen.shortest = shortest;
    }
    chosen.check_places = [](const SeveralRows& rows) {
      for_rows<kOperands>(rows, [](const OneRow& row) {
        if (const passes::Outside outside = outside_of<Loop>(row); outside.number) throw RowError{outside.place};
      });
    };
    chosen.reads = reads<Loop>;
  });
  return chosen;
}

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA
#endif
