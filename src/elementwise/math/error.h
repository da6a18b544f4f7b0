// The error function and its complement.
#pragma once

#include "exponential.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// erf(x) / x - 1 for |x| <= 1, as a polynomial in x^2.
template <class C>
ELEMENTWISE_INLINE C erf_head(C x) {
  if constexpr (kFloat<C>)
    return polynomial(
        x * x,
        {0x1.06eba8p-3, -0x1.81274p-2, 0x1.ce2d5p-4, -0x1.b7fe9p-6, 0x1.542e0ep-8, -0x1.a50ae8p-11, 0x1.4c339cp-14});
  else
    return polynomial(
        x * x, {0x1.06eba8214db68p-3, -0x1.812746b03799cp-2, 0x1.ce2f21a03f78ep-4, -0x1.b82ce311a3161p-6,
                0x1.565bccedd97f6p-8, -0x1.c02dae8af15ddp-11, 0x1.f9a2922b07245p-14, -0x1.f4c7e43ae3d1p-17,
                0x1.b9684e9a74402p-20, -0x1.5b7920eeada19p-23, 0x1.d35484a13dd85p-27, -0x1.a09cce81cdfe3p-31});
}

} // namespace math

// erf(x), 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x. Error: 0.86 (float), 1.16 (double). It is 1 or -1
// beyond |x| = 4 (float) or 6 (double).
//
// Near 0 it is x + x p(x^2). Further out it is 1 - p(|x| - 1)^2, with the sign of x: p approximates the square root of
// 1 - erf(x), which is flatter than 1 - erf(x), so that p needs a third fewer terms.
template <class C>
ELEMENTWISE_INLINE C erf(C x) {
  using namespace math;
  constexpr C kOne = kFloat<C> ? C(4) : C(6); // erf is 1 from here on
  const C of = magnitude(x), u = least(of, kOne) - 1;
  C root;
  if constexpr (kFloat<C>)
    root = std::fma(
        u,
        polynomial(
            u, {-0x1.0bf098p-1, 0x1.6cad0ap-3, 0x1.efad6cp-5, -0x1.83d2cp-5, -0x1.355582p-9, 0x1.e216fap-8,
                -0x1.8be6ecp-13, -0x1.7332ap-10, 0x1.2cbad2p-11, -0x1.97bd5ap-14, 0x1.ae7376p-18}),
        C(0x1.9620d6p-2));
  else
    root = std::fma(
        u, polynomial(u, {-0x1.0bf098a417dc5p-1,  0x1.6cacc074f2704p-3,  0x1.efb7b0bbe1e46p-5,   -0x1.83de126e73d68p-5,
                          -0x1.3d6a62bc55544p-9,  0x1.f4183328cff33p-8,  -0x1.7c4ea99fb4251p-11, -0x1.ac8a7ec1c03aep-11,
                          0x1.65142b2646473p-13,  0x1.f9a56c153ee15p-15, -0x1.5b2d2d6323f8bp-16, -0x1.5305534edd28ep-19,
                          0x1.3e238f7406869p-20,  0x1.245c6cb0f0c72p-21, -0x1.d7cb82929be13p-22, 0x1.973b78748ad83p-23,
                          -0x1.6284fdde97206p-24, 0x1.2214dba516885p-25, -0x1.746f39e3e8f14p-27, 0x1.621cd1d3b725cp-29,
                          -0x1.eed55af23c982p-32, 0x1.f8d7cbe82e239p-35, -0x1.6ff899fbbde26p-38, 0x1.6cc1390adef23p-42,
                          -0x1.ba3c13f0f485cp-47, 0x1.f059da8f9fc18p-53}),
        C(0x1.9620d66f585ccp-2));
  const C rest = std::fma(-root, root, C(1)), head = std::fma(of, erf_head(x), of); // NaN if x is
  return with_sign(choose(of >= (kFloat<C> ? C(0.9375) : C(1)), rest, head), x);
}

// 1 - erf(x). Error: 0.97 (float), 1.07 (double). It is 0 from 10.1 (float) or 27.3 (double) on.
//
// Near 0 it is 1 - x - x p(x^2). Further out, for positive x, it is e^(-x^2) f(t) / (1 + 2 x) with t = (x - 4) / (x +
// 4): f is a smooth function of t, close to 1 for all x (M. M. Shepherd, J. G. Laframboise, Chebyshev approximation of
// (1 + 2x) exp(x^2) erfc(x) in 0 <= x < infinity, 1981). All factors have two words. For negative x it is 2 - erfc(-x).
template <class C>
ELEMENTWISE_INLINE C erfc(C x) {
  using namespace math;
  constexpr C kZero = kFloat<C> ? C(10.1) : C(27.3); // erfc is 0 from here on
  const C of = magnitude(x), a = choose(of > kZero, kZero, of);

  const Words<C> square = product(a, a);
  const Reduced<C> e(nearest_power(-square.high), -square.high, -square.low);
  const Words<C> one = sum_of_ordered(C(1), e.high);
  const C e_low = e.rest(one.low + e.low);

  // One division gives both 1 / (1 + 2 a) and 1 / (a + 4). The fma that follows corrects the rounding error of t.
  const C divisor = std::fma(C(2), a, C(1)), divisor_low = std::fma(C(2), a, -(divisor - 1));
  const C both = 1 / (divisor * (a + 4)), inverse = (a + 4) * both, other = divisor * both;
  const C about = (a - 4) * other, t = std::fma(std::fma(-about, a + 4, a - 4), other, about);
  Words<C> f;
  if constexpr (kFloat<C>) {
    constexpr Words<C> kConstant = {0x1.3ba592p+0, -0x1.23718cp-25};
    const C terms = polynomial(
        t, {-0x1.1df1aap-3, 0x1.f7f60cp-7, 0x1.16eb4p-4, -0x1.9ddccp-4, 0x1.800a52p-4, -0x1.0f8c1cp-4, 0x1.2f1b3ep-5,
            -0x1.0dfcbp-6, 0x1.5e1f2ep-8});
    f = sum_of_ordered(kConstant.high, std::fma(t, terms, kConstant.low));
  } else {
    constexpr Words<C> kConstant = {0x1.3ba5916e9fd7fp+0, -0x1.a3aad96f18dfp-55};
    const C terms =
        polynomial(t, {-0x1.1df1ad154a28dp-3,  0x1.f7f5df66fd6f4p-7,   0x1.16ecefcfa5249p-4,  -0x1.9ddb23c3e8966p-4,
                       0x1.7fee004e160c4p-4,   -0x1.0fb06dfe572efp-4,  0x1.3079edf5e6616p-5,  -0x1.09623881baf8cp-6,
                       0x1.49c672becf336p-8,   -0x1.8d4a9da8f9f5ap-11, -0x1.a1df57210c7cp-13, 0x1.3be091a2f31f3p-13,
                       -0x1.995259d148fdep-16, -0x1.7897bc24484f2p-17, 0x1.7ed948f6ab0e5p-18, 0x1.3f1db2aed9101p-22,
                       -0x1.b6878fb3a105ep-21, 0x1.295778491cc87p-24,  0x1.b0be9cebf395p-24,  -0x1.c222a8d8a1fd4p-27,
                       -0x1.297e37c353dd6p-27});
    f = sum_of_ordered(kConstant.high, std::fma(t, terms, kConstant.low));
  }
  const Words<C> dividend = product(one.high, f.high);
  const C dividend_low = std::fma(one.high, f.low, std::fma(e_low, f.high, dividend.low));
  const C quotient = dividend.high * inverse;
  const C left = std::fma(-quotient, divisor_low, std::fma(-quotient, divisor, dividend.high) + dividend_low);
  const C beyond = scale<C>(Words<C>{quotient, left * inverse}, e.n);

  const Words<C> head = sum_of_ordered(C(1), -x);
  const C near = head.high + std::fma(-x, erf_head(x), head.low);
  return choose(of < C(0.72), near, choose(x < 0, 2 - beyond, beyond));
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
