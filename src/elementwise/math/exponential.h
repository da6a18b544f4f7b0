// exp and its like: exp, exp2, expm1, sigmoid, sinh, cosh, tanh.
//
// All of them write x = n ln 2 + r with |r| <= ln 2 / 2, so that e^x = 2^n e^r, and take e^r - 1 = r + r^2 p(r) from
// one polynomial p. They differ in what they make of n and r, and none computes e^x and then something with it: where 1
// is added to or taken from e^x, it is added to 2^n or 2^-n, where the sum is exact.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// x as n ln 2 + high + low, and what p is made of.
template <class C>
struct Reduced {
  C count;     // n
  bits_t<C> n; // and as an integer, two's complement
  C high, low; // r; high + low, rounded, has lost something of low
  C square;    // r^2
  C even, odd; // e^r - 1 - r - r^2 / 2 is r^2 of their sum

  // e^r - 1 is high and this with `others` = low.
  ELEMENTWISE_MATH C rest(C others) const {
    return std::fma(square, even + odd, std::fma(square, C(0.5), others));
  }
};

// n is `count` where that is given, else the nearest; high + low is the number.
template <class C>
ELEMENTWISE_MATH Reduced<C> reduced(Nearest<C> n, C high, C low) {
  Reduced<C> x;
  x.count = n.value;
  x.n = n.integer;
  // ln 2 as two words. The first step is exact: what is left is a multiple of the last place of ln 2 or of x, and less
  // than 1/2.
  constexpr C kHigh = kFloat<C> ? C(0x1.62e43p-1) : C(0x1.62e42fefa39efp-1);
  constexpr C kLow = kFloat<C> ? C(-0x1.05c61p-29) : C(0x1.abc9e3b39803fp-56);
  x.high = std::fma(n.value, -kHigh, high);
  x.low = std::fma(n.value, -kLow, low);
  const C r = x.high + x.low;
  x.square = r * r;
  if constexpr (kFloat<C>) {
    x.even = polynomial(x.square, {0x1.5554fp-5, 0x1.6d438cp-10}) * x.square;
    x.odd = polynomial(x.square, {0x1.555556p-3, 0x1.110fe2p-7, 0x1.a28f22p-13}) * r;
  } else {
    x.even = polynomial(
                 x.square, {0x1.5555555555557p-5, 0x1.6c16c16c15773p-10, 0x1.a01a01ab1a225p-16, 0x1.27e4d12ff642bp-22,
                            0x1.1f840ab1f87fcp-29}) *
             x.square;
    x.odd = polynomial(
                x.square, {0x1.5555555555559p-3, 0x1.111111110f642p-7, 0x1.a01a01b00fcc5p-13, 0x1.71ddf7e787cabp-19,
                           0x1.af5f7e056c165p-26}) *
            r;
  }
  return x;
}

template <class C>
constexpr C kLog2E = C(1.44269504088896340736);

template <class C>
ELEMENTWISE_MATH Reduced<C> reduced(C high, C low) {
  return reduced(nearest(high * kLog2E<C>), high, low);
}

// e^r * 2^n.
template <class C>
ELEMENTWISE_MATH C power(const Reduced<C>& r) {
  const Words<C> one = sum_of_ordered(C(1), r.high);
  return scale(one.high + r.rest(one.low + r.low), r.n);
}

template <class C>
ELEMENTWISE_MATH C clamped(C x, C least, C most) {
  return choose(x < least, least, choose(x > most, most, x));
}

// e^(high + low). low is ignored where e^high is 0 or infinite.
template <class C>
ELEMENTWISE_MATH C exp_of(Words<C> x) {
  constexpr C kMost = kFloat<C> ? C(89) : C(710);
  constexpr C kLeast = kFloat<C> ? C(-104) : C(-746);
  const C high = clamped(x.high, kLeast, kMost);
  return power(reduced(high, choose(high == x.high, x.low, C(0))));
}

// cosh and sinh of |x|, x not 0: (2^n e^r +- 2^-n e^-r) / 2. With e^r as an even and an odd part, cosh r + sinh r, and
// e^-r as their difference, that is 2^(n-1) ((1 +- 2^-2n) cosh r + (1 -+ 2^-2n) sinh r).
template <class C, bool is_cosh>
ELEMENTWISE_MATH C hyperbolic(C x) {
  constexpr C kMost = kFloat<C> ? C(89.5) : C(710.5); // the result is infinite
  x = choose(x > kMost, kMost, x);
  const Reduced<C> r = reduced(x, C(-0.0));
  const C small = choose(r.count > 60, C(0), power_of_two<C>(-2 * r.n));
  const Words<C> plus = sum_of_ordered(C(1), small), minus = sum_of_ordered(C(1), -small);
  const Words<C> a = is_cosh ? plus : minus, b = is_cosh ? minus : plus;
  // a cosh r + b sinh r
  const Words<C> linear = product(b.high, r.high);
  const Words<C> leading = sum_of_ordered(a.high, linear.high);
  C rest = std::fma(b.high, r.low, std::fma(b.low, r.high, linear.low)) + (leading.low + a.low);
  rest = std::fma(r.square, a.high * C(0.5), rest);
  rest = std::fma(r.square, std::fma(a.high, r.even, b.high * r.odd), rest);
  return (leading.high + rest) * 2 * power_of_two<C>(r.n - 2);
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
  x = kFloat<C> ? clamped(x, C(-151), C(129)) : clamped(x, C(-1076), C(1025));
  const Nearest<C> n = nearest(x);
  constexpr C kHigh = kFloat<C> ? C(0x1.62e43p-1) : C(0x1.62e42fefa39efp-1);
  constexpr C kLow = kFloat<C> ? C(-0x1.05c61p-29) : C(0x1.abc9e3b39803fp-56);
  const C f = x - n.value;
  const Words<C> r = product(f, kHigh);
  Reduced<C> e = reduced(Nearest<C>{C(0), n.integer}, r.high, std::fma(f, kLow, r.low));
  return power(e);
}

// e^x - 1 = 2^n ((1 - 2^-n) + (e^r - 1))
template <class C>
ELEMENTWISE_MATH C expm1(C x) {
  using namespace math;
  constexpr C kMost = kFloat<C> ? C(89) : C(710);
  constexpr C kLeast = kFloat<C> ? C(-17.5) : C(-37.5); // e^x - 1 rounds to -1
  const Reduced<C> r = reduced(clamped(x, kLeast, kMost), C(-0.0));
  const Words<C> one = sum(C(1), power_of_two<C>(1 - r.n) * C(-0.5)); // 2^-n itself may be subnormal
  const Words<C> leading = sum_of_ordered(one.high, r.high);
  const C result = leading.high + r.rest(leading.low + one.low + r.low);
  return with_sign(result * 2 * power_of_two<C>(r.n - 1), x);
}

// 1 / (1 + e^-x) = 2^-n / ((1 + 2^-n) + (e^r - 1)), n and r of -x
template <class C>
ELEMENTWISE_MATH C sigmoid(C x) {
  using namespace math;
  constexpr C kMost = kFloat<C> ? C(104) : C(746);      // e^-x: the result is 0
  constexpr C kLeast = kFloat<C> ? C(-17.5) : C(-37.5); // the result is 1
  const Reduced<C> r = reduced(clamped(-x, kLeast, kMost), C(-0.0));
  // 2^-n = shifted * kShift, which may be subnormal or 0
  constexpr C kShift = kFloat<C> ? C(0x1p-64) : C(0x1p-512);
  const C shifted = power_of_two<C>((kFloat<C> ? 64 : 512) - r.n);
  const Words<C> one = sum_of_ordered(C(1), shifted * kShift);
  const Words<C> leading = sum_of_ordered(one.high, r.high);
  const Words<C> divisor = sum_of_ordered(leading.high, r.rest(leading.low + one.low + r.low));
  const C guess = 1 / divisor.high;
  const C error = std::fma(-guess, divisor.low, std::fma(-guess, divisor.high, C(1)));
  return std::fma(guess, error, guess) * shifted * kShift;
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
  constexpr C kLeast = kFloat<C> ? C(-18.4) : C(-38.4); // the result is 1
  // No further than where 2^-n - 1 and 2^-n + 1 are exact. r is then larger, but few bits of it count.
  constexpr C kLeastCount = kFloat<C> ? C(-23) : C(-52);
  C y = -2 * magnitude(x);
  y = choose(y < kLeast, kLeast, y);
  C count = y * kLog2E<C>;
  count = choose(count < kLeastCount, kLeastCount, count);
  const Reduced<C> r = reduced(nearest(count), y, C(-0.0));
  const C power = power_of_two<C>(-r.n);
  const Words<C> above = sum_of_ordered(power - 1, -r.high), below = sum_of_ordered(power + 1, r.high);
  const C rest = r.rest(r.low);
  const Words<C> dividend = sum_of_ordered(above.high, -rest), divisor = sum_of_ordered(below.high, rest);
  const C inverse = 1 / divisor.high;
  const C guess = dividend.high * inverse;
  const C error = std::fma(-guess, divisor.high, dividend.high) +
                  std::fma(-guess, below.low + divisor.low, above.low + dividend.low);
  return with_sign(std::fma(error, inverse, guess), x);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
