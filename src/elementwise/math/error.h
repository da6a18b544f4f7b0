// The error function and its complement.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {

// erf(x) = 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x. Below 1 it is x + x p(x^2). Above it is 1 + p(|x| -
// c) with the sign of x, where c is such that the difference is exact.
template <class C>
ELEMENTWISE_MATH C erf(C x) {
  using namespace math;
  constexpr C kOne = kFloat<C> ? C(3.92) : C(5.93); // erf is 1 from here on
  const C a = choose(magnitude(x) > kOne, kOne, magnitude(x));
  C head, rest;
  if constexpr (kFloat<C>) {
    head = polynomial(
        x * x,
        {0x1.06eba8p-3, -0x1.81274p-2, 0x1.ce2d5p-4, -0x1.b7fe9p-6, 0x1.542e0ep-8, -0x1.a50ae8p-11, 0x1.4c339cp-14});
    rest = polynomial(
        a - C(2.5), {-0x1.aab90ep-12, 0x1.1d80fcp-9, -0x1.64e17ap-8, 0x1.11a726p-7, -0x1.1a9444p-7, 0x1.9084p-8,
                     -0x1.6e4174p-9, 0x1.23ada4p-11, 0x1.0a39aep-12, -0x1.1827aep-12, 0x1.639058p-14, 0x1.126fccp-16,
                     -0x1.1ec47ep-16, 0x1.81139p-21, 0x1.24cfd6p-20});
  } else {
    head = polynomial(
        x * x, {0x1.06eba8214db68p-3, -0x1.812746b03799cp-2, 0x1.ce2f21a03f78ep-4, -0x1.b82ce311a3161p-6,
                0x1.565bccedd97f6p-8, -0x1.c02dae8af15ddp-11, 0x1.f9a2922b07245p-14, -0x1.f4c7e43ae3d1p-17,
                0x1.b9684e9a74402p-20, -0x1.5b7920eeada19p-23, 0x1.d35484a13dd85p-27, -0x1.a09cce81cdfe3p-31});
    rest = -1;
  }
  return choose(magnitude(x) < 1, std::fma(x, head, x), with_sign(1 + rest, x));
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
