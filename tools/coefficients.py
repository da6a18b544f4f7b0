"""Make the coefficients of the polynomials in src/elementwise/math, and print them as the headers have them.

Remez's exchange algorithm (E. Remez, 1934), in 200 bits, finds the polynomial whose largest error is smallest. Then we
round the coefficients to the type, one after the other from the lowest power on, and fit the others again after each;
after ``fits`` of these steps we round the rest together. Usage, after `pip install mpmath`::

    python tools/coefficients.py [NAME ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpmath import mp, mpf

mp.prec = 200
POINTS = 1500  # where the error is evaluated

Function = Callable[[mpf], mpf]


@dataclass
class Polynomial:
    """``function(x)`` as the sum of ``c[k] * x**k`` on an interval, with ``weight(x)`` times the error small."""

    function: Function
    interval: tuple[mpf, mpf]
    degree: int
    bits: int  # the length of the coefficients' significands: 24 or 53
    weight: Function = lambda x: mpf(1)
    exact: int = 0  # the number of lowest coefficients that have twice the bits, as two words
    fits: int = 99  # after this many fits, round the rest: with many coefficients, most fits do not converge


def exp_tail(x: mpf) -> mpf:
    """Return ``(e^x - 1 - x) / x^2``."""
    return (mp.expm1(x) - x) / x**2 if abs(x) > mpf(2) ** -60 else mpf(1) / 2 + x / 6


def log1p_tail(x: mpf) -> mpf:
    """Return ``(log(1 + x) - x + x^2 / 2) / x^3``."""
    return (mp.log1p(x) - x + x**2 / 2) / x**3 if abs(x) > mpf(2) ** -40 else mpf(1) / 3 - x / 4


def atanh_tail(z: mpf) -> mpf:
    """Return ``(atanh(s) / s - 1 - z / 3) / z^2`` with ``s = sqrt(z)``."""
    s = mp.sqrt(z)
    return (mp.atanh(s) / s - 1 - z / 3) / z**2 if z > mpf(2) ** -40 else mpf(1) / 5 + z / 7 + z**2 / 9


def by_square(function: Function, power: int, first: Function = lambda x: mpf(0)) -> Function:
    """Return ``(function(x) - first(x)) / x^power`` as a function of ``z = x^2``."""

    def rest(z: mpf) -> mpf:
        x = mp.sqrt(abs(z) + mpf(2) ** -60)
        return (function(x) - first(x)) / x**power

    return rest


def identity(x: mpf) -> mpf:
    return x


def erf_head(t: mpf) -> mpf:
    """Return ``erf(x) / x - 1`` as a function of ``t = x^2``."""
    return (mp.erf(mp.sqrt(t)) / mp.sqrt(t) if t > mpf(2) ** -180 else 2 / mp.sqrt(mp.pi)) - 1


def erf_rest(low: float, high: float, degree: int, bits: int) -> Polynomial:
    """Return the polynomial for ``sqrt(1 - erf(1 + u))``, with ``1 + u`` on this interval."""
    return Polynomial(
        lambda u: mp.sqrt(mp.erfc(1 + u)),
        (mpf(low) - 1, mpf(high) - 1),
        degree,
        bits,
        weight=lambda u: 2 * mp.sqrt(mp.erfc(1 + u)),  # so that the error of the square counts
        fits=1,
    )


def erfc_factor(t: mpf) -> mpf:
    """Return ``e^(x^2) erfc(x) (1 + 2 x)`` as a function of ``t = (x - 4) / (x + 4)``."""
    x = 4 * (1 + t) / (1 - t)
    return mp.exp(x**2) * mp.erfc(x) * (1 + 2 * x)


def erfc_factor_from(low: float, high: float, degree: int, bits: int) -> Polynomial:
    """Return the polynomial for ``erfc_factor`` with x on this interval."""
    interval = tuple((mpf(x) - 4) / (mpf(x) + 4) for x in (low, high))
    return Polynomial(erfc_factor, interval, degree, bits, exact=1, fits=1)


LN2_HALF = mp.log(2) / 2 * mpf("1.001")
LOG = (mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1)


def tan_numerator(z: mpf) -> mpf:
    """Return ``tan(y) / x`` times the denominator of Pade's approximation, ``y = x pi / 2``, ``z = x^2``."""
    y = mp.sqrt(abs(z) + mpf(2) ** -80) * mp.pi / 2
    return mp.tan(y) / y * mp.pi / 2 * (1 - 4 * y**2 / 9 + y**4 / 63)


POLYNOMIALS = {
    # expm1 adds this to x. The first coefficient is 1/2, which the header does not list.
    "exp float": Polynomial(exp_tail, (-LN2_HALF, LN2_HALF), 5, 24, weight=abs, fits=2),
    "exp double": Polynomial(exp_tail, (-LN2_HALF, LN2_HALF), 10, 53, weight=abs, fits=3),
    # The same with the absolute error, because 1 is added to the result.
    "sigmoid float": Polynomial(exp_tail, (-LN2_HALF, LN2_HALF), 4, 24, weight=lambda x: x**2, fits=2),
    "tanh float": Polynomial(by_square(mp.tanh, 3, identity), (mpf(0), mpf("0.9025")), 6, 24, weight=lambda z: z),
    "log float": Polynomial(log1p_tail, (mpf("0.6953125") - 1, mpf("0.390625")), 8, 24, weight=lambda x: x**2, fits=1),
    "log double": Polynomial(log1p_tail, LOG, 18, 53, weight=lambda x: x**2, fits=1),
    "pow double": Polynomial(atanh_tail, (mpf(0), (LOG[1] / (2 + LOG[1])) ** 2), 7, 53, weight=lambda z: z**2),
    # These are polynomials in z, the square of the argument. "half turns" and tan are for float, computed in double;
    # the remainder of a large number of turns can be slightly more than 1/2.
    "sin half turns": Polynomial(by_square(mp.sinpi, 1), (mpf(0), mpf("0.277")), 5, 53),
    "tan quarter turns": Polynomial(tan_numerator, (mpf(0), mpf("0.304")), 2, 53),
    "sin quarter turns": Polynomial(
        by_square(lambda x: mp.sinpi(x / 2), 3, lambda x: mp.pi / 2 * x), (mpf(0), mpf("0.2501")), 5, 53, lambda z: z
    ),
    "cos quarter turns": Polynomial(
        by_square(lambda x: mp.cospi(x / 2), 2, lambda x: mpf(1)), (mpf(0), mpf("0.2501")), 6, 53, lambda z: z
    ),
    "asin float": Polynomial(by_square(mp.asin, 3, identity), (mpf(0), mpf("0.25")), 4, 24, weight=lambda z: z),
    "asin double": Polynomial(by_square(mp.asin, 3, identity), (mpf(0), mpf("0.25")), 11, 53, weight=lambda z: z),
    "atan float": Polynomial(by_square(mp.atan, 3, identity), (mpf(0), mpf("0.25")), 4, 24, weight=lambda z: z),
    "atan double": Polynomial(by_square(mp.atan, 3, identity), (mpf(0), mpf("0.25")), 11, 53, weight=lambda z: z),
    "erf head float": Polynomial(erf_head, (mpf(0), mpf(1)), 6, 24),
    "erf head double": Polynomial(erf_head, (mpf(0), mpf(1)), 11, 53),
    "erf rest float": erf_rest(0.9375, 4, 11, 24),
    "erf rest double": erf_rest(1, 6, 26, 53),
    "erfc float": erfc_factor_from(0.7, 10.1, 9, 24),
    "erfc double": erfc_factor_from(0.7, 27.3, 21, 53),
}


def rounded(x: mpf, bits: int) -> mpf:
    """Round to this many bits of significand."""
    if x == 0:
        return x
    unit = mpf(2) ** (mp.floor(mp.log(abs(x), 2)) + 1 - bits)
    return mp.nint(x / unit) * unit


def remez(function: Function, powers: Sequence[int], interval: tuple[mpf, mpf], weight: Function) -> list[mpf]:
    """Return the coefficients of these powers that minimise the largest weighted error."""
    n = len(powers)
    low, high = interval

    def chebyshev(count: int) -> list[mpf]:
        return [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]

    def scale(x: mpf) -> mpf:  # odd powers change sign at 0; the errors must alternate nevertheless
        return weight(x) * (-1 if x < 0 and powers[0] % 2 else 1)

    grid = chebyshev(POINTS)
    weighted = [([x**k * scale(x) for k in powers], function(x) * scale(x)) for x in grid]
    at = [round((POINTS - 1) * i / n) for i in range(n + 1)]  # the grid is denser towards the ends
    for _ in range(30):
        matrix = mp.matrix([[*weighted[i][0], (-1) ** k] for k, i in enumerate(at)])
        solution = mp.lu_solve(matrix, mp.matrix([weighted[i][1] for i in at]))
        coefficients = list(solution)[:n]
        errors = [wanted - mp.fdot(coefficients, terms) for terms, wanted in weighted]
        # The extreme of each stretch with the same sign.
        extremes: list[int] = []
        for i, error in enumerate(errors):
            if extremes and (error > 0) == (errors[extremes[-1]] > 0):
                if abs(error) > abs(errors[extremes[-1]]):
                    extremes[-1] = i
            else:
                extremes.append(i)
        while len(extremes) > n + 1:  # drop the smaller end
            extremes.pop(0 if abs(errors[extremes[0]]) < abs(errors[extremes[-1]]) else -1)
        if len(extremes) < n + 1 or extremes == at:
            break
        at = extremes
    return coefficients


def coefficients(polynomial: Polynomial) -> tuple[list[mpf], mpf]:
    """Return the rounded coefficients, and the largest weighted error."""
    found: list[mpf] = []

    def left(x: mpf) -> mpf:
        return polynomial.function(x) - mp.polyval(found[::-1], x) if found else polynomial.function(x)

    for k in range(polynomial.degree + 1):
        if k < polynomial.fits:
            fitted = remez(left, range(k, polynomial.degree + 1), polynomial.interval, polynomial.weight)
        found.append(rounded(fitted.pop(0), polynomial.bits * (2 if k < polynomial.exact else 1)))
    low, high = polynomial.interval
    points = (low + (high - low) * i / POINTS for i in range(POINTS + 1))
    return found, max(abs(left(x) * polynomial.weight(x)) for x in points)


def literal(x: mpf, bits: int) -> str:
    """Return a number in C++'s hexadecimal notation, as two words if it has more bits than one word."""
    high = rounded(x, bits)
    text = float(high).hex().replace("0p", "p") if high else "0.0"
    mantissa, _, exponent = text.partition("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    text = f"{mantissa}p{exponent}" if exponent else "0.0"
    return text if high == x else f"{text} + {literal(x - high, bits)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(POLYNOMIALS)}; by default all")
    for name in parser.parse_args().names or POLYNOMIALS:
        polynomial = POLYNOMIALS[name]
        found, error = coefficients(polynomial)
        print(f"// {name}: error {mp.nstr(mp.log(error, 2), 5)} bits")
        print("{" + ", ".join(literal(c, polynomial.bits) for c in found) + "}", flush=True)


if __name__ == "__main__":
    main()
