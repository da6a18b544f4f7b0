// Finds whether a functor over rows calls row.index(). We do not run the functor, because it may call index() only for
// some values of its arguments. Instead we compile it with a row whose index() is a member of a class template. If the
// functor calls index(), the compiler instantiates it, and with it a variable whose initializer sets the flag when the
// library is loaded.
#pragma once

#include "../rows/row.h"

namespace elementwise {

template <class F>
inline bool asks_for_index = false;
template <class F>
inline const bool index_is_called = asks_for_index<F> = true;

template <class C, class F, class Returned>
struct AskedForIndex : passes::Checked<C, Returned> {
  int64_t index() const {
    return index_is_called<F>;
  }
};

template <class F, Kind... kKind>
bool finds_index(Kernel<F, kKind...>) {
  using RowFunctor = passes::RowFunctor<F, kKind...>;
  using C = compute_t<parameters::At<0, typename Kernel<F, kKind...>::Dtypes>>;
  [[maybe_unused]] const auto compiled_and_never_called = [](AskedForIndex<C, F, typename RowFunctor::Returned>& row) {
    return RowFunctor::template call<C>(row);
  };
  return asks_for_index<F>;
}

} // namespace elementwise
