// Computes one row of an operator, or of a derivative that is made from its functor. Compiled once for each target.
#pragma once

#include "../cpu/work.h"
#include "family.h"
#include "gradients.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

// A forward pass. If the call is recorded, the first `kNoted` reductions follow the results (family.h).
template <class F, int kNoted, class C, Kind... kKind>
struct ForwardLoop {
  using RowFunctor = passes::RowFunctor<F, kKind...>;
  using Returned = typename RowFunctor::Returned;
  using Kept = C; // the type of a row that is kept
  static constexpr int kResults = std::size(parameters::Each<Returned>::own);
  static constexpr int kFirstInput = kResults + kNoted; // where the inputs begin

  ELEMENTWISE_FLATTEN static void compute(const cpu::OneRow& row) {
    const passes::Source source{row, row.index, row.data + kFirstInput, nullptr, row.numbers};
    if constexpr (kNoted == 0) {
      passes::Values<C, Returned> values(source, row);
      values.finish(RowFunctor::template call<C>(values));
    } else {
      passes::Recorded<C, Returned> recorded(source, row);
      recorded.finish(RowFunctor::template call<Dual<C>>(recorded));
      once(source.size, [&] {
        for (int k = 0; k < kNoted; k++) *static_cast<double*>(row.data[kResults + k]) = recorded.values.reduced[k];
      });
    }
  }
  ELEMENTWISE_FLATTEN static auto checked(const cpu::OneRow& row, int reduction) {
    passes::Checked<C, Returned> checked({row, row.index, row.data + kFirstInput, nullptr, row.numbers}, reduction);
    RowFunctor::template call<C>(checked);
    if (passes::Values<C, Returned>::keeps_in_result && checked.kept_rows > 0) {
      checked.kept_rows--;
      checked.keeps_in_result = true;
    }
    return checked;
  }
};

template <class F, class C, Kind... kKind>
struct RowLoop : ForwardLoop<F, 0, C, kKind...> {};

template <class Parts, class C, Kind... kKind>
struct RowLoop<rows::Derived<Parts, rows::Role::recorded>, C, kKind...>
    : ForwardLoop<typename Parts::Functor, rows::kReduced, C, kKind...> {};

template <class Parts, rows::Role role, class C, Kind... kKind>
struct RowLoop<rows::Derived<Parts, role>, C, kKind...> {
  using Kept = std::conditional_t<role == rows::Role::gradients, C, Dual<C>>;
  static constexpr Kind kinds[] = {kKind...};
  template <size_t... I>
  static passes::RowFunctor<typename Parts::Functor, kinds[I]...> row_functor(std::index_sequence<I...>);
  using RowFunctor = decltype(row_functor(std::make_index_sequence<Parts::kArguments>{}));
  static constexpr int kResults = role == rows::Role::tangent ? Parts::kResults : Parts::kTensors;
  static constexpr int kInputs = RowFunctor::kInputs;

  // A choice of tensors that have a derivative: `tensor[i]` is the place of the i-th among those with a derivative, and
  // `place[i]` its place among all tensors of the functor.
  struct Chosen {
    int count = 0, tensor[Parts::kTensors] = {}, place[Parts::kTensors] = {};
  };
  // Chooses tensors that are present: those with a value for each element, those with one for each row, or both.
  template <bool kOfElements, bool kOfRow, class... P>
  static constexpr Chosen chosen(List<P...>) {
    constexpr bool of_row[] = {parameters::is_of_row<P>...};
    Chosen found;
    for (int t = 0; t < Parts::kTensors; t++) {
      const int argument = Parts::places[t];
      if (kinds[argument] == Kind::absent || !(of_row[t] ? kOfRow : kOfElements)) continue;
      found.tensor[found.count] = t;
      for (int i = 0; i < argument; i++)
        found.place[found.count] += kinds[i] == Kind::tensor || kinds[i] == Kind::optional;
      found.count++;
    }
    return found;
  }
  template <bool kOfElements, bool kOfRow> // a constant, because nvcc refuses to call a function of the host here
  static constexpr Chosen those = chosen<kOfElements, kOfRow>(typename Parts::Tensors{});
  template <bool kOfRow>
  static constexpr auto places = []<size_t... I>(std::index_sequence<I...>) {
    constexpr Chosen of = chosen<!kOfRow, kOfRow>(typename Parts::Tensors{});
    return std::integer_sequence<int, of.place[I]...>{};
  }(std::make_index_sequence<chosen<!kOfRow, kOfRow>(typename Parts::Tensors{}).count>{});

  ELEMENTWISE_FLATTEN static void compute(const cpu::OneRow& row) {
    const void* const* const inputs = row.data + kResults;
    const void* tangents[kInputs] = {};
    if constexpr (role != rows::Role::gradients) {
      constexpr int first = kInputs + (role == rows::Role::second ? Parts::kResults : 0);
      constexpr Chosen all = those<true, true>;
      for (int i = 0; i < all.count; i++) tangents[all.place[i]] = inputs[first + all.tensor[i]];
    }
    const passes::Source source{row, row.index, inputs, tangents, row.numbers};
    if constexpr (role == rows::Role::tangent) {
      passes::Values<Dual<C>, typename RowFunctor::Returned> values(source, row);
      values.finish(RowFunctor::template call<Dual<C>>(values));
    } else {
      using B = std::conditional_t<role == rows::Role::second, Dual<C>, C>;
      const void* const* const grads = inputs + kInputs;
      // After the gradients of the results, _f_gradients gets the softmax or the kept numbers, and _f_second the
      // tangents and then the tangents of the gradients.
      const void* const* const more = grads + Parts::kResults;
      passes::Known<B, those<true, false>.count> known(
          source, row, grads, more + Parts::kTensors, Parts::kSoftmaxes ? *more : nullptr, more,
          role == rows::Role::gradients ? Parts::kReduced : 0);
      const int64_t wanted = role == rows::Role::second ? -1 : row.numbers[Parts::kNumbers].integer;
      void *of_elements[Parts::kTensors + 1] = {}, *of_rows[Parts::kTensors + 1] = {};
      uint32_t added = 0;
      const auto find = [&](const Chosen& of, void** to) ELEMENTWISE_LAMBDA {
        for (int i = 0; i < of.count; i++)
          if (wanted >> of.tensor[i] & 1) to[i] = row.data[of.tensor[i]];
      };
      constexpr Chosen first = those<true, false>;
      constexpr Chosen second = those<false, true>;
      find(first, of_elements);
      for (int i = 0; i < first.count; i++) added |= (row.added >> first.tensor[i] & 1) << i;
      find(second, of_rows);
      constexpr auto first_places = places<false>;
      constexpr auto second_places = places<true>;
      passes::gradients<RowFunctor>(known, first_places, of_elements, added, second_places, of_rows);
    }
  }
  // Reads only the tensors of the functor, which come first.
  ELEMENTWISE_FLATTEN static auto checked(const cpu::OneRow& row, int reduction) {
    constexpr bool has_softmax = role == rows::Role::gradients && Parts::kSoftmaxes;
    passes::Checked<C, typename RowFunctor::Returned, role != rows::Role::tangent, has_softmax> checked(
        {row, row.index, row.data + kResults, nullptr, row.numbers}, reduction);
    RowFunctor::template call<C>(checked);
    if constexpr (role != rows::Role::tangent) checked.kept_rows *= 1 + those<true, false>.count; // with derivatives
    return checked;
  }
};

template <class Kernel>
struct RowLoopOf;
template <class F, Kind... kKind>
struct RowLoopOf<Kernel<F, kKind...>> {
  template <class C>
  using type = RowLoop<F, C, kKind...>;
};

} // namespace passes
} // namespace elementwise::inline ELEMENTWISE_TARGET

#if !defined(ELEMENTWISE_IS_CUDA)
namespace elementwise::cpu::ELEMENTWISE_ISA {
namespace {

// Calls the function for one row after the other, while it returns true.
template <int kOperands, class F>
bool for_rows(const SeveralRows& rows, const F& f) {
  OneRow row = rows.first;
  void* data[kOperands];
  for (int k = 0; k < kOperands; k++) data[k] = row.data[k];
  row.data = data;
  for (int64_t i = 0; i < rows.count; i++) {
    if (!f(row)) return false;
    for (int k = 0; k < kOperands; k++) data[k] = static_cast<std::byte*>(data[k]) + rows.pitch[k];
    row.index = row.index == rows.last ? 0 : row.index + 1;
  }
  return true;
}

// Whether row.at reads no place outside of the row, apart from places that depend on its elements.
template <class Loop>
ELEMENTWISE_FLATTEN bool is_inside(const OneRow& row) {
  const auto outside = Loop::checked(row, 1).outside;
  return outside == passes::Outside() || outside != Loop::checked(row, 2).outside;
}

// Whether the compiler knows that. Without optimisation it does not, and the places of all rows are checked.
template <class Loop>
ELEMENTWISE_FLATTEN bool reads_no_place(const OneRow& any) {
  const bool is_inside = cpu::ELEMENTWISE_ISA::is_inside<Loop>(any);
  return __builtin_constant_p(is_inside) && is_inside;
}

// A 16-bit dtype uses the computer of float, because rows are converted when they are copied.
template <class Kernel>
Computer row_computer(int32_t dtype) {
  Computer chosen{};
  with_dtype(typename Kernel::Dtypes{}, dtype, [&](auto storage) {
    using Loop = typename passes::RowLoopOf<Kernel>::template type<compute_t<decltype(storage)>>;
    chosen.results = Kernel::kResults;
    constexpr int kOperands = Kernel::kResults + Kernel::kInputs;
    chosen.rows = [](const SeveralRows& rows) {
      for_rows<kOperands>(rows, [](const OneRow& row) {
        Loop::compute(row);
        return true;
      });
    };
    chosen.are_inside = [](const SeveralRows& rows) { return for_rows<kOperands>(rows, is_inside<Loop>); };
    chosen.reads_no_place = reads_no_place<Loop>;
  });
  return chosen;
}

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA
#endif
