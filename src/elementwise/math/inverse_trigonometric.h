// asin, acos, atan and atan2.
#pragma once

#include "words.h"

namespace elementwise::inline ELEMENTWISE_TARGET {
namespace math {

// pi/2 as two words.
template <class C>
constexpr C kHalfPi = kFloat<C> ? C(0x1.921fb6p+0f) : C(0x1.921fb54442d18p+0);
template <class C>
constexpr C kHalfPiLow = kFloat<C> ? C(-0x1.777a5cp-25f) : C(0x1.1a62633145c07p-54);

// asin(x) / x - 1 for the square of 0 <= x <= 1/2.
template <class C>
ELEMENTWISE_MATH C asin_rest(C square) {
  if constexpr (kFloat<C>) {
    return square * polynomial(square, {0x1.5555cap-3, 0x1.33016ap-4, 0x1.748a2cp-5, 0x1.8bb536p-6, 0x1.59cc92p-5});
  } else {
    return square *
           polynomial(
               square, {0x1.5555555555387p-3, 0x1.333333336f881p-4, 0x1.6db6db41d4175p-5, 0x1.f1c72c6d3cbb3p-6,
                        0x1.6e89ef7b8c3bap-6, 0x1.1c6c27a3d0135p-6, 0x1.c6f87fe2afbeep-7, 0x1.8ee497cff9983p-7,
                        0x1.aab43041e3b6cp-8, 0x1.40b184aa7d665p-6, -0x1.0af440f7eedcbp-6, 0x1.05ce268faa74bp-5});
  }
}

// atan(x) / x - 1 for 0 <= x <= 1.
template <class C>
ELEMENTWISE_MATH C atan_rest(C x) {
  const C square = x * x;
  if constexpr (kFloat<C>) {
    return square * polynomial(
                        square, {-0x1.55554p-2, 0x1.999266p-3, -0x1.24262ap-3, 0x1.c0c8ep-4, -0x1.58bcecp-4,
                                 0x1.dc97d8p-5, -0x1.012e5ap-5, 0x1.6963fap-7, -0x1.dcc022p-10});
  } else {
    return square *
           polynomial(
               square, {-0x1.5555555555464p-2, 0x1.9999999985c96p-3, -0x1.2492491ffad05p-3, 0x1.c71c70b051ddp-4,
                        -0x1.745d03506035ap-4, 0x1.3b12be911544ap-4, -0x1.1108f18161cffp-4, 0x1.e17b8ff92a843p-5,
                        -0x1.ad40542c75528p-5, 0x1.7f0c58bc37931p-5, -0x1.4fa0f4a5b5ae8p-5, 0x1.17b6620dcbcdfp-5,
                        -0x1.a8d54f198e379p-6, 0x1.17e36a3a408a5p-6, -0x1.2f93ff7d6d931p-7, 0x1.ff2ba8655944fp-9,
                        -0x1.357a4b46314fcp-10, 0x1.dba27f43b6cc8p-13, -0x1.5a912039da20ap-16});
  }
}

// asin and acos of |x| > 1/2 are those of the half angle: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)).
template <class C>
struct HalfAngle {
  bool is;
  C x, low, square; // |x| or sqrt((1 - |x|) / 2), which low completes
};
template <class C>
ELEMENTWISE_MATH HalfAngle<C> half_angle(C argument) {
  const C size = magnitude(argument);
  const bool is = size > C(0.5);
  const C half = std::fma(size, C(-0.5), C(0.5));
  const C square = choose(is, half, size * size);
  const C root = std::sqrt(half);
  const C root_low = std::fma(-root, root, half) * (C(0.5) / choose(root == 0, C(1), root));
  return {is, choose(is, root, size), choose(is, root_low, C(0)), square};
}

} // namespace math

template <class C>
ELEMENTWISE_MATH C asin(C argument) {
  using namespace math;
  const HalfAngle<C> half = half_angle(argument);
  const C factor = choose(half.is, C(-2), C(1));
  const C base = choose(half.is, kHalfPi<C>, C(0)), base_low = choose(half.is, kHalfPiLow<C>, C(0));
  const C x = factor * half.x;
  const Words<C> high = sum_of_ordered(base, x);
  const C low = std::fma(x, asin_rest(half.square), std::fma(factor, half.low, base_low + high.low));
  return with_sign(high.high + low, argument);
}

template <class C>
ELEMENTWISE_MATH C acos(C argument) {
  using namespace math;
  const HalfAngle<C> half = half_angle(argument);
  // pi/2 -+ asin(|x|), or the half angle twice, or pi less that.
  const bool negative = argument < 0;
  const C base_of_half = choose(negative, C(2), C(0));
  const C base = choose(half.is, base_of_half, C(1));
  const C factor = choose(half.is, C(2), C(1)) * choose(negative == half.is, C(-1), C(1));
  const C x = factor * half.x;
  const Words<C> high = sum_of_ordered(base * kHalfPi<C>, x);
  const C low =
      std::fma(x, asin_rest(half.square), std::fma(factor, half.low, std::fma(base, kHalfPiLow<C>, high.low)));
  return high.high + low;
}

template <class C>
ELEMENTWISE_MATH C atan(C argument) {
  using namespace math;
  constexpr C kLarge = C(0x1p100); // from here on it is pi/2
  const C size = choose(magnitude(argument) > kLarge, kLarge, magnitude(argument));
  const bool inverse = size > 1; // atan(x) = pi/2 - atan(1 / x)
  const C x = choose(inverse, C(1) / size, size);
  const C lack = std::fma(-x, choose(inverse, size, C(1)), choose(inverse, C(1), x)); // of x, times 1 / x
  const C base = choose(inverse, kHalfPi<C>, C(0)), base_low = choose(inverse, kHalfPiLow<C>, C(0));
  const C term = choose(inverse, -x, x);
  const Words<C> high = sum_of_ordered(base, term);
  const C low = std::fma(term, atan_rest(x) + lack, base_low + high.low);
  return with_sign(high.high + low, argument);
}

// The angle of the point (x, y), in (-pi, pi].
template <class C>
ELEMENTWISE_MATH C atan2(C ordinate, C abscissa) {
  using namespace math;
  using D = double; // a quotient of floats does not underflow in double
  const D y = magnitude(ordinate), x = magnitude(abscissa);
  const bool steep = y > x;
  const bool left = (bits(abscissa) & kSign<C>) != 0;
  const D quotient = choose(steep, x, y) / choose(steep, y, x);
  // 0/0 counts as 0, infinity/infinity as 1.
  const D t = choose(x == y, choose(x == 0, D(0), D(1)), quotient);
  const D t_negative = choose(left != steep, -t, t);
  const D quarters = choose(steep, D(1), choose(left, D(2), D(0)));
  const Words<D> high = sum_of_ordered(quarters * kHalfPi<D>, t_negative);
  const D low = std::fma(t_negative, D(atan_rest(C(t))), std::fma(quarters, kHalfPiLow<D>, high.low));
  return with_sign(C(high.high + low), ordinate);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
