// exp, exp2, expm1, sigmoid, sinh, cosh and tanh.
//
// All of them write x = n ln 2 + r with |r| <= ln 2 / 2, so that e^x = 2^n e^r, and compute e^r by the same polynomial.
// Where a formula adds 1 to e^x, they do not compute e^x first, but add 1 to 2^n or 2^-n, which is exact. At the end
// they replace the results of arguments for which the result is known: 0, 1 or infinity.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

template <class C>
constexpr C kLog2E = C(1.44269504088896340736);

// ln 2 as two words.
template <class C>
constexpr Words<C> kLn2 = kFloat<C> ? Words<C>{C(0x1.62e43p-1), C(-0x1.05c61p-29)}
                                    : Words<C>{C(0x1.62e42fefa39efp-1), C(0x1.abc9e3b39803fp-56)};

// The integer nearest to x / ln 2.
template <class C>
ELEMENTWISE_INLINE Nearest<C> nearest_power(C x) {
  const C shifted = std::fma(x, kLog2E<C>, kRound<C>);
  return {shifted - kRound<C>, bits(shifted) - bits(kRound<C>)};
}

// The argument after it is reduced: x = n ln 2 + r, r = high + low. It also computes e^r - 1.
template <class C>
struct Reduced {
  bits_t<C> n; // two's complement
  C high, low;
  C r; // high + low, rounded

  ELEMENTWISE_INLINE Reduced(Nearest<C> n, C high, C low)
      : n(n.integer),
        high(std::fma(n.value, -kLn2<C>.high, high)), // exact: below 1/2, and a multiple of an ulp of ln 2 or of x
        low(std::fma(n.value, -kLn2<C>.low, low)),
        r(this->high + this->low) {}

  // r^2 / 2 + r^3 p(r) + others. With others = low, e^r - 1 is this plus high.
  ELEMENTWISE_INLINE C rest(C others) const {
    const C square = r * r;
    C p;
    if constexpr (kFloat<C>) // fewer operations than Estrin's scheme, and as fast
      p = std::fma(
          square, std::fma(r, std::fma(r, C(0x1.a18a02p-13), C(0x1.6d417p-10)), C(0x1.1110a2p-7)),
          std::fma(r, C(0x1.5554f2p-5), C(0x1.555556p-3)));
    else
      p = polynomial(
          r, {0x1.5555555555559p-3, 0x1.5555555555556p-5, 0x1.111111110f636p-7, 0x1.6c16c16c164d2p-10,
              0x1.a01a01b014e34p-13, 0x1.a01a01a64ffe3p-16, 0x1.71ddf7e1fdb1ap-19, 0x1.27e4db8de1084p-22,
              0x1.af5f76b158edcp-26, 0x1.1f74fd79385cap-29});
    return std::fma(square * r, p, std::fma(square, C(0.5), others));
  }

  // rest(low) by a shorter polynomial, for callers that add at least 1 to e^r - 1, so that its error matters less.
  ELEMENTWISE_INLINE C shorter_rest() const {
    if constexpr (kFloat<C>) {
      const C square = r * r;
      const C p = std::fma(
          square, std::fma(r, C(0x1.6d7bacp-10), C(0x1.123a8ap-7)), std::fma(r, C(0x1.5554bep-5), C(0x1.55549p-3)));
      return std::fma(square, std::fma(r, p, C(0.5)), low);
    } else {
      return rest(low);
    }
  }
};

// high + low, less the nearest multiple of ln 2. `low` is -0.0 by default, and not 0, because compilers drop x + -0.0.
template <class C>
ELEMENTWISE_INLINE Reduced<C> reduced(C high, C low = C(-0.0)) {
  return Reduced<C>(nearest_power(high), high, low);
}

// 2^n e^r
template <class C>
ELEMENTWISE_INLINE C power(const Reduced<C>& x) {
  const Words<C> one = sum_of_ordered(C(1), x.high);
  return scale<C>(Words<C>{one.high, x.rest(one.low + x.low)}, x.n);
}

// e^(high + low). If e^high is 0 or infinite, low is ignored.
template <class C>
ELEMENTWISE_INLINE C exp_of(Words<C> x) {
  C result = power(reduced(x.high, x.low));
  result = choose(x.high > (kFloat<C> ? C(89) : C(710)), kInfinity<C>, result);
  return choose(x.high < (kFloat<C> ? C(-104) : C(-746)), C(0), result);
}

// cosh and sinh of x >= 0: (2^n e^r +- 2^-n e^-r) / 2. Since e^r = cosh r + sinh r and e^-r = cosh r - sinh r, that is
// 2^(n-1) ((1 +- 2^-2n) cosh r + (1 -+ 2^-2n) sinh r).
template <class C, bool is_cosh>
ELEMENTWISE_INLINE C hyperbolic(C x) {
  const Nearest<C> n = nearest_power(x);
  const Reduced<C> reduced(n, x, C(-0.0));
  const C small = choose(n.value > 60, C(0), power_of_two<C>(-(2 * n.integer)));
  const Words<C> plus = sum_of_ordered(C(1), small), minus = sum_of_ordered(C(1), -small);
  const Words<C> a = is_cosh ? plus : minus, b = is_cosh ? minus : plus;
  // a cosh r + b sinh r
  const C r = reduced.r, square = r * r;
  C even, odd; // (cosh r - 1 - r^2 / 2) / r^2, (sinh r - r) / r^2
  if constexpr (kFloat<C>) {
    even = polynomial(square, {0x1.5554f2p-5, 0x1.6d417p-10}) * square;
    odd = polynomial(square, {0x1.555556p-3, 0x1.1110a2p-7, 0x1.a18a02p-13}) * r;
  } else {
    even = polynomial(
               square, {0x1.5555555555556p-5, 0x1.6c16c16c164d2p-10, 0x1.a01a01a64ffe3p-16, 0x1.27e4db8de1084p-22,
                        0x1.1f74fd79385cap-29}) *
           square;
    odd = polynomial(
              square, {0x1.5555555555559p-3, 0x1.111111110f636p-7, 0x1.a01a01b014e34p-13, 0x1.71ddf7e1fdb1ap-19,
                       0x1.af5f76b158edcp-26}) *
          r;
  }
  const Words<C> linear = product(b.high, reduced.high);
  const Words<C> leading = sum_of_ordered(a.high, linear.high);
  C rest = std::fma(b.high, reduced.low, std::fma(b.low, r, linear.low)) + (leading.low + a.low);
  rest = std::fma(square, a.high * C(0.5), rest);
  rest = std::fma(square, std::fma(a.high, even, b.high * odd), rest);
  const C result = (leading.high + rest) * 2 * power_of_two<C>(n.integer - 2);
  return choose(x > (kFloat<C> ? C(89.5) : C(710.5)), kInfinity<C>, result);
}

} // namespace math

// e^x. Error: 0.76 (float), 0.77 (double). It is infinite above 88.72 (float) or 709.78 (double), and 0 below -103.97
// or -745.13.
template <class C>
ELEMENTWISE_INLINE C exp(C x) {
  return math::exp_of<C>({x, C(-0.0)});
}

// 2^x. Error: 0.78 (float), 0.79 (double). It is infinite from 128 (float) or 1024 (double) on, and 0 up to -150 or
// -1075.
template <class C>
ELEMENTWISE_INLINE C exp2(C x) {
  using namespace math;
  const Nearest<C> n = nearest(x);
  const C fraction = x - n.value;
  const Words<C> r = product(fraction, kLn2<C>.high);
  C result = power(Reduced<C>({C(0), n.integer}, r.high, std::fma(fraction, kLn2<C>.low, r.low)));
  result = choose(x > (kFloat<C> ? C(129) : C(1025)), kInfinity<C>, result);
  return choose(x < (kFloat<C> ? C(-151) : C(-1076)), C(0), result);
}

// e^x - 1 = 2^n ((1 - 2^-n) + (e^r - 1)), accurate near 0 too. Error: 0.93 (float), 0.93 (double). It is infinite above
// 88.72 (float) or 709.78 (double), and -1 below -17.5 or -37.5.
template <class C>
ELEMENTWISE_INLINE C expm1(C x) {
  using namespace math;
  const Reduced<C> r = reduced(x);
  const Words<C> one = sum(C(1), power_of_two<C>(1 - r.n) * C(-0.5)); // 2^-n itself may be subnormal
  const Words<C> leading = sum_of_ordered(one.high, r.high);
  C result = (leading.high + r.rest(leading.low + one.low + r.low)) * 2 * power_of_two<C>(r.n - 1);
  result = choose(x > (kFloat<C> ? C(89) : C(710)), kInfinity<C>, result);
  result = choose(x < (kFloat<C> ? C(-17.5) : C(-37.5)), C(-1), result);
  return with_sign(result, x);
}

// 1 / (1 + e^-x). Error: 0.87 (float), 0.82 (double). It is 1 from 18 (float) or 38 (double) on, and 0 below -105 or
// -746.
//
// With n and r of -x it is 2^-n / (1 + 2^-n + (e^r - 1)). `guess`, the inverse of the divisor, is corrected by its own
// error and by `lost`, the rounding error of the divisor.
template <class C>
ELEMENTWISE_INLINE C sigmoid(C x) {
  using namespace math;
  const Reduced<C> r = reduced(-x);
  constexpr int kShift = kFloat<C> ? 64 : 512; // 2^-n may be subnormal or 0
  const C power = power_of_two<C>(kShift - r.n) * (kFloat<C> ? C(0x1p-64) : C(0x1p-512)), rest = r.shorter_rest();
  const C divisor = (1 + power) + (r.high + rest), lost = (((1 - divisor) + power) + r.high) + rest;
  const C guess = 1 / divisor, error = std::fma(-guess, lost, std::fma(-guess, divisor, C(1)));
  const C result = choose(x > (kFloat<C> ? C(18) : C(38)), C(1), std::fma(guess, error, guess) * power);
  return choose(x < (kFloat<C> ? C(-105) : C(-746)), C(0), result);
}

// The hyperbolic cosine. Error: 0.68 (float), 0.67 (double). It is infinite beyond |x| = 89.41 (float) or 710.47
// (double).
template <class C>
ELEMENTWISE_INLINE C cosh(C x) {
  return math::hyperbolic<C, true>(math::magnitude(x));
}

// The hyperbolic sine. Error: 0.68 (float), 0.76 (double). It is infinite beyond |x| = 89.41 (float) or 710.47
// (double).
template <class C>
ELEMENTWISE_INLINE C sinh(C x) {
  return math::with_sign(math::hyperbolic<C, false>(math::magnitude(x)), x);
}

// The hyperbolic tangent. Error: 0.95 (float), 0.78 (double). It is 1 or -1 beyond |x| = 20.
template <class C>
ELEMENTWISE_INLINE C tanh(C x) {
  using namespace math;
  const C a = magnitude(x);
  if constexpr (kFloat<C>) {
    // a + a^3 p(a^2) below 0.95. Above it is 1 - 2 / (e^2a + 1): the quotient is small there, and so is its error.
    const Reduced<C> r = reduced(a + a);
    const C power = power_of_two<C>(r.n);
    const C divisor = std::fma(power, r.high + r.shorter_rest(), power + 1);
    const C taken = choose(a > 20, C(0), 2 / divisor);
    const C square = a * a;
    const C rest = polynomial(
        square, {0x1.110e02p-3f, -0x1.b9a142p-5f, 0x1.61b5bcp-6f, -0x1.0a10fcp-7f, 0x1.408818p-9f, -0x1.a895d2p-12f});
    const C p = std::fma(square, rest, C(-0x1.555548p-2f));
    return with_sign(choose(a < C(0.95), std::fma(square * p, a, a), 1 - taken), x);
  } else {
    // (1 - e^y) / (1 + e^y) with y = -2a. With n and r of y it is (2^-n - e^r) / (2^-n + e^r).
    const Reduced<C> r = reduced(-2 * a);
    const C power = power_of_two<C>(-r.n);
    const Words<C> one = sum_of_ordered(C(1), r.high);
    const Words<C> above = sum_of_ordered(power, -one.high), below = sum_of_ordered(power, one.high);
    const C rest = r.rest(one.low + r.low);
    const Words<C> dividend = sum_of_ordered(above.high, -rest), divisor = sum_of_ordered(below.high, rest);
    const C inverse = 1 / divisor.high, guess = dividend.high * inverse;
    const C error = std::fma(-guess, divisor.high, dividend.high) +
                    std::fma(-guess, below.low + divisor.low, above.low + dividend.low);
    return with_sign(choose(a > 20, C(1), std::fma(error, inverse, guess)), x);
  }
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
