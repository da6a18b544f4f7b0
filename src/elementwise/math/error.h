// The error function and its complement.
#pragma once

#include "exponential.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// erf(x) / x - 1 of x^2, where |x| <= 1.
template <class C>
ELEMENTWISE_MATH C erf_head(C square) {
  if constexpr (kFloat<C>)
    return polynomial(
        square,
        {0x1.06eba8p-3, -0x1.81274p-2, 0x1.ce2d5p-4, -0x1.b7fe9p-6, 0x1.542e0ep-8, -0x1.a50ae8p-11, 0x1.4c339cp-14});
  else
    return polynomial(
        square, {0x1.06eba8214db68p-3, -0x1.812746b03799cp-2, 0x1.ce2f21a03f78ep-4, -0x1.b82ce311a3161p-6,
                 0x1.565bccedd97f6p-8, -0x1.c02dae8af15ddp-11, 0x1.f9a2922b07245p-14, -0x1.f4c7e43ae3d1p-17,
                 0x1.b9684e9a74402p-20, -0x1.5b7920eeada19p-23, 0x1.d35484a13dd85p-27, -0x1.a09cce81cdfe3p-31});
}

// 2^x of a double, where that is a normal number, from a polynomial for |x| <= 1/2.
template <size_t n>
ELEMENTWISE_MATH double rough_exp2(double x, const double (&c)[n]) {
  const Nearest<double> count = nearest(x);
  return polynomial(x - count.value, c) * power_of_two<double>(count.integer);
}

} // namespace math

// erf(x), 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x. Where |x| < 1 it is x + x p(x^2). Beyond, with the
// sign of x, it is 1 + p(|x| - 5/2) for float, where 5/2 is such that the difference is exact; for double, where so
// long an interval would take a polynomial with large terms, it is 1 - 2^p(|x| - 1), and p is smooth: about -1.44 x^2.
template <class C>
ELEMENTWISE_MATH C erf(C x) {
  using namespace math;
  constexpr C kOne = kFloat<C> ? C(3.92) : C(5.93); // erf is 1 from here on
  const C of = magnitude(x), a = choose(of > kOne, kOne, of);
  const C head = std::fma(x, erf_head(x * x), x);
  C rest;
  if constexpr (kFloat<C>)
    rest = 1 + polynomial(
                   a - C(2.5), {-0x1.aab90ep-12, 0x1.1d80fcp-9, -0x1.64e17ap-8, 0x1.11a726p-7, -0x1.1a9444p-7,
                                0x1.9084p-8, -0x1.6e4174p-9, 0x1.23ada4p-11, 0x1.0a39aep-12, -0x1.1827aep-12,
                                0x1.639058p-14, 0x1.126fccp-16, -0x1.1ec47ep-16, 0x1.81139p-21, 0x1.24cfd6p-20});
  else
    rest = 1 -
           rough_exp2(
               polynomial(
                   a - 1, {-0x1.558eada6637f3p+1, -0x1.e75328fe78c2fp+1, -0x1.37627e9b5d74dp+0, -0x1.eb31368626857p-5,
                           0x1.da57641b98bcfp-7, -0x1.7603db22e0104p-9, 0x1.6701e3a4c385fp-12, 0x1.3e38a778ecae5p-15,
                           -0x1.491eb666ad009p-15, 0x1.d3e26b9d5a272p-17, -0x1.9b771c0d33648p-19, 0x1.340e6e225f045p-22,
                           0x1.7ec9c8e3d370cp-24, -0x1.b3a11bfe7ccfdp-25, 0x1.c3f5c7eb26b4cp-27, -0x1.22029db058fb3p-29,
                           0x1.c3524937ed416p-33, -0x1.660d044da8d54p-37, 0x1.3201039d62e85p-43}),
               {0x1p+0, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c5aep-3, 0x1.c6b08d704a0dbp-5, 0x1.3b2ab6fb9f1a3p-7,
                0x1.5d87fe78a0586p-10, 0x1.430913112cbc7p-13, 0x1.ffcbfc7e3f737p-17, 0x1.62bfc2c7a0b32p-20,
                0x1.b524caa01c93ep-24, 0x1.e6228c109a53ep-28, 0x1.ea1c6750dd3f8p-32});
  return choose(of < 1, head, with_sign(rest, x));
}

// 1 - erf(x). Where x is positive it is e^(-x^2) f(t) / (x + 4), t = (x - 4) / (x + 4): in t, f is smooth from 0 to
// infinity, as in M. M. Shepherd, J. G. Laframboise, Chebyshev approximation of (1 + 2x) exp(x^2) erfc(x) in
// 0 <= x < infinity (1981). Where it is negative, it is 2 - erfc(-x).
template <class C>
ELEMENTWISE_MATH C erfc(C x) {
  using namespace math;
  constexpr C kZero = kFloat<C> ? C(10.1) : C(27.3); // erfc is 0 from here on
  const C of = magnitude(x), a = choose(of > kZero, kZero, of);
  if constexpr (kFloat<C>) {
    // In double, where x^2 is exact, and the result normal.
    const double wide = a, r = 1 / (wide + 4), t = (wide - 4) * r;
    const double f = polynomial(
        t, {0x1.18932bf11509p+0, -0x1.f3fe322956684p-1, 0x1.8be20238baeb9p-1, -0x1.14eabd5ebb913p-1,
            0x1.52caef10b9866p-2, -0x1.646320134026dp-3, 0x1.38d00e879fe57p-4, -0x1.af80d4cd380e4p-6,
            0x1.95bde0ba2be4cp-8, -0x1.47db0a74302a6p-12, -0x1.521981faaedap-11, 0x1.609d7cf671a92p-15});
    const double e = rough_exp2(
        wide * wide * -kLog2E<double>,
        {0x1.ffffffff4e15cp-1, 0x1.62e430d04367cp-1, 0x1.ebfbe10e29aep-3, 0x1.c6aecc57b6266p-5, 0x1.3b2995f75a07dp-7,
         0x1.5f48c63fe6366p-10, 0x1.4498fc4eb097fp-13});
    const double tail = e * (f * r);
    return static_cast<float>(choose(x < 0, 2 - tail, tail));
  } else {
    const Words<C> square = product(a, a);
    const Reduced<C> e = reduced(-square.high, -square.low);
    const Words<C> one = sum_of_ordered(C(1), e.high);
    const C e_low = e.rest(one.low + e.low);
    // 1 / (a + 4) and t = 1 - 8 / (a + 4), of two words.
    const C plus = a + 4, plus_low = a - (plus - 4), r = 1 / plus;
    const C r_low = r * std::fma(-r, plus_low, std::fma(-r, plus, C(1)));
    const C t = 1 - 8 * r, t_low = std::fma(C(-8), r_low, (1 - t) - 8 * r);
    // f, the first two of whose terms are of two words.
    constexpr Words<C> kConstant = {0x1.18932bf08e154p+0, 0x1.09c84f730f092p-54},
                       kLinear = {-0x1.f3fe31ecb49bfp-1, -0x1.1822786c1d468p-56};
    const C rest =
        polynomial(t, {0x1.8be202d26c705p-1,   -0x1.14eacb1ad0348p-1,  0x1.52cac23710179p-2,   -0x1.645fd8a4bb934p-3,
                       0x1.38dbd2c8e1fb5p-4,   -0x1.b00c052c7da5ap-6,  0x1.908f47238835ap-8,   -0x1.269b516d3ed99p-12,
                       -0x1.dd28443926d8ep-12, 0x1.72cd9ece79a15p-13,  -0x1.e7ed8f816413ep-19, -0x1.3c6daefedd434p-16,
                       0x1.3b146da6beac2p-18,  0x1.7e1dffd6ec29fp-20,  -0x1.c71eb0b67cacep-21, -0x1.3fc6f30520c08p-24,
                       0x1.0f936923d3edcp-23,  -0x1.71b13c8789cbep-34, -0x1.2c109a8222dfp-26,  0x1.15657cf9e01d4p-31,
                       0x1.e006dff654bcfp-30});
    const Words<C> linear = product(kLinear.high, t);
    const Words<C> leading = sum_of_ordered(kConstant.high, linear.high);
    const C slope = polynomial(
        t, {kLinear.high, 2 * (0x1.8be202d26c705p-1), 3 * (-0x1.14eacb1ad0348p-1), 4 * (0x1.52cac23710179p-2)});
    C f_low = std::fma(kLinear.low, t, std::fma(slope, t_low, linear.low + kConstant.low)) + leading.low;
    f_low = std::fma(t * t, rest, f_low);
    const Words<C> f = sum_of_ordered(leading.high, f_low);
    const Words<C> factor = product(f.high, r);
    const C factor_low = std::fma(f.low, r, std::fma(f.high, r_low, factor.low));
    const Words<C> tail = product(one.high, factor.high);
    const C tail_low = std::fma(e_low, factor.high, std::fma(one.high, factor_low, tail.low));
    const C beyond = scale(tail.high + tail_low, e.n);
    // Near 0, as erf is.
    const Words<C> head = sum_of_ordered(C(1), -x);
    const C near = head.high + std::fma(-x, erf_head(x * x), head.low);
    return choose(of < C(0.5), near, choose(x < 0, 2 - beyond, beyond));
  }
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
