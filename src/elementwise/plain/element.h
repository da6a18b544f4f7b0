// The type of an element, for a kernel that is not element-wise: torch's own, which convert to float and back on the
// host and on the device. And on the device, what starts such a kernel.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <type_traits>

#include "../cuda/start.h"
#include "../functor.h"

namespace elementwise {

// What an element is computed in.
template <class T>
using computed_t = std::conditional_t<sizeof(T) == 2, float, T>;

// Calls body(T{}) with the type that has this ordinal. `Dtypes` has no other one.
template <class Body>
void with_element(int32_t ordinal, const Body& body) {
  with_dtype(FloatingPoint{}, ordinal, [&](auto storage) {
    using S = decltype(storage);
    if constexpr (std::is_same_v<S, float16>) {
      body(torch::headeronly::Half{});
    } else if constexpr (std::is_same_v<S, bfloat16>) {
      body(torch::headeronly::BFloat16{});
    } else {
      body(S{});
    }
  });
}

} // namespace elementwise
