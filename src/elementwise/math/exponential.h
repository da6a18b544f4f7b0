// exp and its like: exp, exp2, expm1, sigmoid, sinh, cosh, tanh.
//
// All of them write x = n ln 2 + r with |r| <= ln 2 / 2, so that e^x = 2^n e^r, and take e^r from one polynomial. They
// differ in what they make of n and r, and none computes e^x and then something with it: where 1 is added to or taken
// from e^x, it is added to 2^n or 2^-n, where the sum is exact. What comes of an x whose result is known, 0, 1 or
// infinity, is replaced in the end.
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

// The integer next to a / ln 2.
template <class C>
ELEMENTWISE_MATH Nearest<C> nearest_power(C x) {
  const C shifted = std::fma(x, kLog2E<C>, kRound<C>);
  return {shifted - kRound<C>, bits(shifted) - bits(kRound<C>)};
}

// r = high + low, and e^r.
template <class C>
struct Reduced {
  bits_t<C> n; // two's complement
  C high, low;
  C r; // high + low, rounded

  ELEMENTWISE_MATH Reduced(Nearest<C> n, C high, C low)
      : n(n.integer),
        high(std::fma(n.value, -kLn2<C>.high, high)), // exact: a multiple of the last place of ln 2 or of x, below 1/2
        low(std::fma(n.value, -kLn2<C>.low, low)),
        r(this->high + this->low) {}

  // e^r - 1 is high and this with `others` = low: r^2 / 2 + r^3 p(r) + others.
  ELEMENTWISE_MATH C rest(C others) const {
    C p;
    if constexpr (kFloat<C>)
      p = polynomial(r, {0x1.555556p-3, 0x1.5554fp-5, 0x1.110fe2p-7, 0x1.6d438cp-10, 0x1.a28f22p-13});
    else
      p = polynomial(
          r, {0x1.5555555555559p-3, 0x1.5555555555557p-5, 0x1.111111110f642p-7, 0x1.6c16c16c15773p-10,
              0x1.a01a01b00fcc5p-13, 0x1.a01a01ab1a225p-16, 0x1.71ddf7e787cabp-19, 0x1.27e4d12ff642bp-22,
              0x1.af5f7e056c165p-26, 0x1.1f840ab1f87fcp-29});
    const C square = r * r;
    return std::fma(square * r, p, std::fma(square, C(0.5), others));
  }
};

// e^r 2^n
template <class C>
ELEMENTWISE_MATH C power(const Reduced<C>& x) {
  const Words<C> one = sum_of_ordered(C(1), x.high);
  return scale<C>(Words<C>{one.high, x.rest(one.low + x.low)}, x.n);
}

// e^(high + low). low is ignored where e^high is 0 or infinite.
template <class C>
ELEMENTWISE_MATH C exp_of(Words<C> x) {
  C result = power(Reduced<C>(nearest_power(x.high), x.high, x.low));
  result = choose(x.high > (kFloat<C> ? C(89) : C(710)), std::numeric_limits<C>::infinity(), result);
  return choose(x.high < (kFloat<C> ? C(-104) : C(-746)), C(0), result);
}

// cosh and sinh of x >= 0: (2^n e^r +- 2^-n e^-r) / 2. With e^r as an even and an odd part, cosh r + sinh r, and e^-r
// as their difference, that is 2^(n-1) ((1 +- 2^-2n) cosh r + (1 -+ 2^-2n) sinh r).
template <class C, bool is_cosh>
ELEMENTWISE_MATH C hyperbolic(C x) {
  const Nearest<C> n = nearest_power(x);
  const Reduced<C> reduced(n, x, C(-0.0));
  const C small = choose(n.value > 60, C(0), power_of_two<C>(-2 * n.integer));
  const Words<C> plus = sum_of_ordered(C(1), small), minus = sum_of_ordered(C(1), -small);
  const Words<C> a = is_cosh ? plus : minus, b = is_cosh ? minus : plus;
  // a cosh r + b sinh r
  const C r = reduced.r, square = r * r;
  C even, odd; // (cosh r - 1 - r^2 / 2) / r^2, (sinh r - r) / r^2
  if constexpr (kFloat<C>) {
    even = polynomial(square, {0x1.5554fp-5, 0x1.6d438cp-10}) * square;
    odd = polynomial(square, {0x1.555556p-3, 0x1.110fe2p-7, 0x1.a28f22p-13}) * r;
  } else {
    even = polynomial(
               square, {0x1.5555555555557p-5, 0x1.6c16c16c15773p-10, 0x1.a01a01ab1a225p-16, 0x1.27e4d12ff642bp-22,
                        0x1.1f840ab1f87fcp-29}) *
           square;
    odd = polynomial(
              square, {0x1.5555555555559p-3, 0x1.111111110f642p-7, 0x1.a01a01b00fcc5p-13, 0x1.71ddf7e787cabp-19,
                       0x1.af5f7e056c165p-26}) *
          r;
  }
  const Words<C> linear = product(b.high, reduced.high);
  const Words<C> leading = sum_of_ordered(a.high, linear.high);
  C rest = std::fma(b.high, reduced.low, std::fma(b.low, r, linear.low)) + (leading.low + a.low);
  rest = std::fma(square, a.high * C(0.5), rest);
  rest = std::fma(square, std::fma(a.high, even, b.high * odd), rest);
  const C result = (leading.high + rest) * 2 * power_of_two<C>(n.integer - 2);
  return choose(x > (kFloat<C> ? C(89.5) : C(710.5)), std::numeric_limits<C>::infinity(), result);
}

} // namespace math

// e^x
template <class C>
ELEMENTWISE_MATH C exp(C x) {
  return math::exp_of<C>({x, C(-0.0)});
}

// 2^x
template <class C>
ELEMENTWISE_MATH C exp2(C x) {
  using namespace math;
  const Nearest<C> n = nearest(x);
  const C fraction = x - n.value;
  const Words<C> r = product(fraction, kLn2<C>.high);
  C result = power(Reduced<C>({C(0), n.integer}, r.high, std::fma(fraction, kLn2<C>.low, r.low)));
  result = choose(x > (kFloat<C> ? C(129) : C(1025)), std::numeric_limits<C>::infinity(), result);
  return choose(x < (kFloat<C> ? C(-151) : C(-1076)), C(0), result);
}

// e^x - 1 = 2^n ((1 - 2^-n) + (e^r - 1))
template <class C>
ELEMENTWISE_MATH C expm1(C x) {
  using namespace math;
  const Reduced<C> r(nearest_power(x), x, C(-0.0));
  const Words<C> one = sum(C(1), power_of_two<C>(1 - r.n) * C(-0.5)); // 2^-n itself may be subnormal
  const Words<C> leading = sum_of_ordered(one.high, r.high);
  C result = (leading.high + r.rest(leading.low + one.low + r.low)) * 2 * power_of_two<C>(r.n - 1);
  result = choose(x > (kFloat<C> ? C(89) : C(710)), std::numeric_limits<C>::infinity(), result);
  result = choose(x < (kFloat<C> ? C(-17.5) : C(-37.5)), C(-1), result);
  return with_sign(result, x);
}

// 1 / (1 + e^-x) = 2^-n / ((1 + 2^-n) + (e^r - 1)), n and r of -x
template <class C>
ELEMENTWISE_MATH C sigmoid(C x) {
  using namespace math;
  const Reduced<C> r(nearest_power(-x), -x, C(-0.0));
  // 2^-n = shifted * kShift, which may be subnormal or 0
  constexpr C kShift = kFloat<C> ? C(0x1p-64) : C(0x1p-512);
  const C shifted = power_of_two<C>((kFloat<C> ? 64 : 512) - r.n);
  const Words<C> one = sum_of_ordered(C(1), shifted * kShift);
  const Words<C> leading = sum_of_ordered(one.high, r.high);
  const Words<C> divisor = sum_of_ordered(leading.high, r.rest(leading.low + one.low + r.low));
  const C guess = 1 / divisor.high;
  const C error = std::fma(-guess, divisor.low, std::fma(-guess, divisor.high, C(1)));
  const C result = std::fma(guess, error, guess) * shifted * kShift;
  return choose(x > (kFloat<C> ? C(17.5) : C(37.5)), C(1), choose(x < (kFloat<C> ? C(-104) : C(-746)), C(0), result));
}

template <class C>
ELEMENTWISE_MATH C cosh(C x) {
  return math::hyperbolic<C, true>(math::magnitude(x));
}

template <class C>
ELEMENTWISE_MATH C sinh(C x) {
  return math::with_sign(math::hyperbolic<C, false>(math::magnitude(x)), x);
}

// tanh |x| = (1 - e^y) / (1 + e^y), y = -2|x|: ((2^-n - 1) - (e^r - 1)) / ((2^-n + 1) + (e^r - 1)), n and r of y
template <class C>
ELEMENTWISE_MATH C tanh(C x) {
  using namespace math;
  const C y = -2 * magnitude(x);
  // n no further than where 2^-n - 1 and 2^-n + 1 are exact. r is then larger, but few bits of it count.
  constexpr C kLeast = kFloat<C> ? C(-23 / 1.4426950408889634) : C(-52 / 1.4426950408889634);
  const Reduced<C> r(nearest_power(choose(y < kLeast, kLeast, y)), y, C(-0.0));
  const C power = power_of_two<C>(-r.n);
  const Words<C> above = sum_of_ordered(power - 1, -r.high), below = sum_of_ordered(power + 1, r.high);
  const C rest = r.rest(r.low);
  const Words<C> dividend = sum_of_ordered(above.high, -rest), divisor = sum_of_ordered(below.high, rest);
  const C inverse = 1 / divisor.high;
  const C guess = dividend.high * inverse;
  const C error = std::fma(-guess, divisor.high, dividend.high) +
                  std::fma(-guess, below.low + divisor.low, above.low + dividend.low);
  return with_sign(choose(y < (kFloat<C> ? C(-18.4) : C(-38.4)), C(1), std::fma(error, inverse, guess)), x);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
