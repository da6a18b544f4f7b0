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

// asin(x) / x - 1 for 0 <= x <= 1/2, as a function of x^2.
template <class C>
ELEMENTWISE_INLINE C asin_rest(C square) {
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

// atan(x) / x - 1 for |x| <= 1/2, as a function of x^2; accurate enough for a result of type C.
template <class C, class D>
ELEMENTWISE_INLINE D atan_rest(D square) {
  if constexpr (kFloat<C>) {
    return square * polynomial(square, {-0x1.555514p-2, 0x1.997ba6p-3, -0x1.225174p-3, 0x1.a0474cp-4, -0x1.a4d854p-5});
  } else {
    return square *
           polynomial(
               square, {-0x1.5555555555518p-2, 0x1.99999999914d9p-3, -0x1.249249216fe02p-3, 0x1.c71c70968a2fdp-4,
                        -0x1.745cf54e6d8bcp-4, 0x1.3b11454529ef8p-4, -0x1.10f3675519bd9p-4, 0x1.dfed130205b4bp-5,
                        -0x1.a3a79728cf6b2p-5, 0x1.571e4d3bd7b7bp-5, -0x1.c1fbe91b4734cp-6, 0x1.4c2a26b4cb7d2p-7});
  }
}

// The argument of asin_rest. If |x| > 1/2, asin and acos use asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)).
template <class C>
struct HalfAngle {
  C x, low, square; // x + low is |argument| or sqrt((1 - |argument|) / 2); its square
};
template <class C>
ELEMENTWISE_INLINE HalfAngle<C> half_angle(C argument, bool is) {
  const C size = magnitude(argument);
  const C half = std::fma(size, C(-0.5), C(0.5));
  const C square = choose(is, half, size * size);
  const C root = std::sqrt(half);
  const C root_low = std::fma(-root, root, half) * (C(0.5) / choose(root == 0, C(1), root));
  return {choose(is, root, size), choose(is, root_low, C(0)), square};
}

} // namespace math

// The arc sine, for |x| <= 1, else NaN. Error: 0.68 (float), 0.8 (double).
template <class C>
ELEMENTWISE_INLINE C asin(C argument) {
  using namespace math;
  const bool is_half = magnitude(argument) > C(0.5);
  const HalfAngle<C> half = half_angle(argument, is_half);
  const C factor = choose(is_half, C(-2), C(1));
  const C base = choose(is_half, kHalfPi<C>, C(0)), base_low = choose(is_half, kHalfPiLow<C>, C(0));
  const C x = factor * half.x;
  const Words<C> high = sum_of_ordered(base, x);
  const C low = std::fma(x, asin_rest(half.square), std::fma(factor, half.low, base_low + high.low));
  return with_sign(high.high + low, argument);
}

// The arc cosine, for |x| <= 1, else NaN. Error: 0.67 (float), 0.77 (double).
template <class C>
ELEMENTWISE_INLINE C acos(C argument) {
  using namespace math;
  const bool is_half = magnitude(argument) > C(0.5);
  const HalfAngle<C> half = half_angle(argument, is_half);
  // pi/2 -+ asin(|x|) for |x| <= 1/2. Else, with h = asin(sqrt((1 - |x|) / 2)), 2 h for x > 0 and pi - 2 h for x < 0.
  const bool negative = argument < 0;
  const C base_of_half = choose(negative, C(2), C(0));
  const C base = choose(is_half, base_of_half, C(1));
  const C factor = choose(is_half, C(2), C(1)) * choose(negative == is_half, C(-1), C(1));
  const C x = factor * half.x;
  const Words<C> high = sum_of_ordered(base * kHalfPi<C>, x);
  const C low =
      std::fma(x, asin_rest(half.square), std::fma(factor, half.low, std::fma(base, kHalfPiLow<C>, high.low)));
  return high.high + low;
}

// The arc tangent, for all x. Error: 0.79 (float), 0.8 (double).
//
// We turn the point (1, |x|) back by 0, 1 or 2 eighths of a turn, so that it comes close to the axis. The new point is
// (|x| sine + cosine, |x| cosine - sine), up to a factor that does not matter. Its quotient t is at most 1/2 in
// magnitude, and the angle is quarters * pi/2 + atan(t), where `quarters` is 0, 1/2 or 1.
template <class C>
ELEMENTWISE_INLINE C atan(C argument) {
  using namespace math;
  constexpr C kLarge = C(0x1p100); // from here on it is pi/2
  const C size = choose(magnitude(argument) > kLarge, kLarge, magnitude(argument));
  const C sine = choose(size > C(0.5), C(1), C(0)), cosine = choose(size > 2, C(0), C(1));
  const C above = std::fma(size, cosine, -sine), below = std::fma(size, sine, cosine);
  const C below_low = std::fma(size, sine, cosine - below);
  const C quarters = std::fma(sine - cosine, C(0.5), C(0.5));
  const C reciprocal = 1 / below;
  const C x = above * reciprocal;
  const C x_low = std::fma(-x, below_low, std::fma(-x, below, above)) * reciprocal;
  const Words<C> high = sum_of_ordered(quarters * kHalfPi<C>, x);
  const C low = std::fma(x, atan_rest<C>(x * x), x_low + std::fma(quarters, kHalfPiLow<C>, high.low));
  return with_sign(high.high + low, argument);
}

// The angle of the point (abscissa, ordinate), from -pi to pi. Error: 0.59 (float), 1.45 (double).
template <class C>
ELEMENTWISE_INLINE C atan2(C ordinate, C abscissa) {
  using namespace math;
  using D = double; // in double, quotients of floats do not underflow
  const D y = magnitude(ordinate), x = magnitude(abscissa);
  const bool steep = y > x, same = y == x;
  const bool left = (bits(abscissa) & kSign<C>) != 0;
  // t = lesser / greater; infinity / infinity counts as 1, and 0 / 0 as 0. Large numbers are scaled, so that sums do
  // not overflow.
  constexpr D kMost = 0x1.fffffffffffffp+1023;
  const D most = choose(steep, y, x);
  const D scale = choose(most > 0x1p1000, 0x1p-100, D(1));
  D greater = choose(same, D(1), choose(most > kMost, D(1), most * scale));
  D lesser = choose(same, choose(most == 0, D(0), D(1)), choose(steep, x, y) * choose(most > kMost, D(0), scale));
  // As in atan: if t > 1/2, atan(t) = pi/4 + atan((t - 1) / (t + 1)).
  const bool middle = lesser + lesser > greater;
  const D above = choose(middle, lesser - greater, lesser);
  const Words<D> both = sum_of_ordered(greater, lesser);
  const D below = choose(middle, both.high, greater), below_low = choose(middle, both.low, D(0));
  const D t = above / below;
  const D t_low = std::fma(-t, below_low, std::fma(-t, below, above)) / below;
  // angle = quarters * pi/2 +- atan(t)
  const D sign = choose(left != steep, D(-1), D(1));
  const D quarters = std::fma(sign, choose(middle, D(0.5), D(0)), choose(steep, D(1), choose(left, D(2), D(0))));
  const D signed_t = sign * t;
  const Words<D> high = sum_of_ordered(quarters * kHalfPi<D>, signed_t);
  const D low =
      std::fma(signed_t, atan_rest<C>(t * t), std::fma(sign, t_low, std::fma(quarters, kHalfPiLow<D>, high.low)));
  return with_sign(C(high.high + low), ordinate);
}

} // namespace elementwise::inline ELEMENTWISE_TARGET
