// What computes a row, compiled once for each target: a functor, or a derivative that is made of one.
#pragma once

#include "../cpu/work.h"
#include "family.h"
#include "gradients.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

template <class F, class C, Kind... kKind>
struct RowLoop {
  using Bound = passes::Bound<F, kKind...>;
  using Returned = typename Bound::Returned;
  static constexpr int kResults = std::size(parameters::Each<Returned>::own);

  ELEMENTWISE_FLATTEN static void compute(const cpu::OneRow& row) {
    const passes::Source source{row.size, row.index, row.data + kResults, nullptr, row.numbers};
    passes::Values<C, Returned> values(source, row);
    values.finish(Bound::template call<C>(values));
  }
  ELEMENTWISE_FLATTEN static bool is_inside(const cpu::OneRow& row) {
    passes::Checked<C, Returned> checked({row.size, row.index, row.data + kResults, nullptr, row.numbers});
    Bound::template call<C>(checked);
    return checked.is_inside;
  }
};

template <class Parts, rows::Role role, class C, Kind... kKind>
struct RowLoop<rows::Derived<Parts, role>, C, kKind...> {
  static constexpr Kind kinds[] = {kKind...};
  template <size_t... I>
  static passes::Bound<typename Parts::Functor, kinds[I]...> bound(std::index_sequence<I...>);
  using Bound = decltype(bound(std::make_index_sequence<Parts::kArguments>{}));
  static constexpr int kResults = role == rows::Role::tangent ? Parts::kResults : Parts::kTensors;
  static constexpr int kInputs = Bound::kInputs;

  // An array, which on a GPU std::array is not.
  struct Found {
    int count = 0, of[Parts::kTensors] = {};
  };
  // Of each tensor that has a derivative its place among those that are there, or -1.
  static constexpr auto places = [] {
    Found places{};
    for (int t = 0; t < Parts::kTensors; t++) {
      int before = 0;
      for (int i = 0; i < Parts::places[t]; i++) before += kinds[i] == Kind::tensor || kinds[i] == Kind::optional;
      places.of[t] = kinds[Parts::places[t]] == Kind::absent ? -1 : before;
    }
    return places;
  }();
  // Which of them have a value for each element of a row, or one for each row.
  template <class... P>
  static constexpr std::array<bool, sizeof...(P)> of_row(List<P...>) {
    return {parameters::is_of_row<P>...};
  }
  template <bool kOfRow>
  static constexpr auto chosen = [] {
    Found found;
    for (int t = 0; t < Parts::kTensors; t++)
      if (places.of[t] >= 0 && of_row(typename Parts::Tensors{})[t] == kOfRow) found.of[found.count++] = t;
    return found;
  }();
  template <bool kOfRow>
  static constexpr auto chosen_places = []<size_t... I>(std::index_sequence<I...>) {
    return std::integer_sequence<int, places.of[chosen<kOfRow>.of[I]]...>{};
  }(std::make_index_sequence<chosen<kOfRow>.count>{});

  ELEMENTWISE_FLATTEN static void compute(const cpu::OneRow& row) {
    const void* const* const inputs = row.data + kResults;
    const void* tangents[kInputs] = {};
    if constexpr (role != rows::Role::gradients) {
      constexpr int first = kInputs + (role == rows::Role::second ? Parts::kResults : 0);
      constexpr Found at = places;
      for (int t = 0; t < Parts::kTensors; t++)
        if (at.of[t] >= 0) tangents[at.of[t]] = inputs[first + t];
    }
    const passes::Source source{row.size, row.index, inputs, tangents, row.numbers};
    if constexpr (role == rows::Role::tangent) {
      passes::Values<Dual<C>, typename Bound::Returned> values(source, row);
      values.finish(Bound::template call<Dual<C>>(values));
    } else {
      using B = std::conditional_t<role == rows::Role::second, Dual<C>, C>;
      const void* const* const grads = inputs + kInputs;
      passes::Known<B> known(source, row, grads, grads + Parts::kResults + Parts::kTensors);
      const int64_t wanted = role == rows::Role::second ? -1 : row.numbers[Parts::kNumbers].integer;
      void* to[2][Parts::kTensors] = {};
      const auto find = [&]<bool kOfRow>(void** to) {
        constexpr Found which = chosen<kOfRow>;
        for (int i = 0; i < which.count; i++)
          if (wanted >> which.of[i] & 1) to[i] = row.data[which.of[i]];
      };
      find.template operator()<false>(to[0]);
      find.template operator()<true>(to[1]);
      constexpr auto with_elements = chosen_places<false>;
      constexpr auto of_row = chosen_places<true>;
      passes::gradients<Bound>(known, with_elements, to[0], of_row, to[1]);
    }
  }
  static constexpr auto is_inside = static_cast<bool (*)(const cpu::OneRow&)>(nullptr);
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

// For the 16-bit types it is that of float: their rows are converted as they are moved.
template <class Kernel>
Computer row_computer(int32_t dtype) {
  Computer chosen{};
  with_dtype(typename Kernel::Dtypes{}, dtype, [&](auto storage) {
    using Loop = typename passes::RowLoopOf<Kernel>::template type<compute_t<decltype(storage)>>;
    chosen.results = Kernel::kResults;
    chosen.one_row = Loop::compute;
    chosen.is_inside = Loop::is_inside;
  });
  return chosen;
}

} // namespace
} // namespace elementwise::cpu::ELEMENTWISE_ISA
#endif
