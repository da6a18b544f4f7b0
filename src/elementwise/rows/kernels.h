// What computes a row, compiled once for each target: a functor, or a derivative that is made of one.
#pragma once

#include "../cpu/work.h"
#include "family.h"
#include "gradients.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace passes {

// Inlines whatever is called, also the lambdas of a functor: a call in a loop keeps it from being vectorised.
#if defined(ELEMENTWISE_IS_CUDA)
#define ELEMENTWISE_FLATTEN ELEMENTWISE_INLINE
#elif defined(__OPTIMIZE__)
#define ELEMENTWISE_FLATTEN [[gnu::flatten]]
#else
#define ELEMENTWISE_FLATTEN
#endif

// Which of the functor's tensors each one is that has a derivative, or -1.
template <int kTensors>
struct Places {
  int each[kTensors + 1];
};

template <class F, class C, Kind... kKind>
struct RowLoop {
  using Bound = passes::Bound<F, kKind...>;
  using Returned = typename Bound::Returned;
  static constexpr int kResults = std::size(parameters::Each<Returned>::own);

  ELEMENTWISE_FLATTEN static void compute(const cpu::OneRow& row) {
    const passes::Source source{row.size, row.index, row.data + kResults, nullptr, row.numbers};
    passes::Values<C, Returned> values(source, row.data);
    values.row = &row;
    values.finish(Bound::template call<C>(values));
  }
  ELEMENTWISE_FLATTEN static bool is_inside(const cpu::OneRow& row) {
    passes::Checked<C, Returned> checked({row.size, row.index, row.data + kResults, nullptr, row.numbers});
    Bound::template call<C>(checked);
    return checked.is_inside;
  }
};

template <class Op, rows::Role role, class C, Kind... kKind>
struct RowLoop<rows::Derived<Op, role>, C, kKind...> {
  using Parts = rows::Parts<Op>;
  static constexpr Kind kinds[] = {kKind...};
  template <size_t... I>
  static passes::Bound<typename Op::Functor, kinds[I]...> bound(std::index_sequence<I...>);
  using Bound = decltype(bound(std::make_index_sequence<Op::signature.count>{}));
  static constexpr int kResults = role == rows::Role::tangent ? Parts::kResults : Parts::kTensors;
  static constexpr int kInputs = Bound::kInputs;

  static constexpr auto find_places() {
    Places<Parts::kTensors> places{};
    for (int t = 0; t < Parts::kTensors; t++) {
      int before = 0;
      for (int i = 0; i < Parts::places[t]; i++) before += kinds[i] == Kind::tensor || kinds[i] == Kind::optional;
      places.each[t] = kinds[Parts::places[t]] == Kind::absent ? -1 : before;
    }
    return places;
  }
  static constexpr auto places = find_places();
  template <class... P>
  static std::integer_sequence<bool, parameters::is_of_row<P>...> of_row(List<P...>);
  using OfRow = decltype(of_row(typename Parts::Tensors{}));
  using Tensors = std::make_index_sequence<Parts::kTensors>;

  ELEMENTWISE_FLATTEN static void compute(const cpu::OneRow& row) {
    constexpr auto at = places;
    const void* const* const inputs = row.data + kResults;
    const void* tangents[kInputs] = {};
    if constexpr (role != rows::Role::gradients) {
      constexpr int first = kInputs + (role == rows::Role::second ? Parts::kResults : 0);
      for (int t = 0; t < Parts::kTensors; t++)
        if (at.each[t] >= 0) tangents[at.each[t]] = inputs[first + t];
    }
    const passes::Source source{row.size, row.index, inputs, tangents, row.numbers};
    const void* const* const grads = inputs + kInputs;
    if constexpr (role == rows::Role::tangent) {
      passes::Values<Dual<C>, typename Bound::Returned> values(source, row.data);
      values.finish(Bound::template call<Dual<C>>(values));
    } else if constexpr (role == rows::Role::gradients) {
      passes::gradients<Bound, C>(
          source, grads, nullptr, at.each, row.numbers[Op::Kernel::kNumbers].integer, row.data, OfRow{}, Tensors{});
    } else {
      passes::gradients<Bound, Dual<C>>(
          source, grads, grads + Parts::kResults + Parts::kTensors, at.each, -1, row.data, OfRow{}, Tensors{});
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
