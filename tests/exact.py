"""The exact result of an operator, to the last bit, computed without torch."""

import math
from fractions import Fraction

import torch

# significand bits, exponent of the smallest normal number
FORMATS = {torch.float16: (11, -14), torch.bfloat16: (8, -126), torch.float32: (24, -126), torch.float64: (53, -1022)}
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(x):
    return x.view(BITS[x.element_size()])


def nearest(x, dtype):
    """Return the number of `dtype` nearest to the exact `x`, ties to even; infinity if `x` is too large."""
    digits, smallest = FORMATS[dtype]
    if x == 0:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, smallest) - digits + 1)
    rounded = round(x / unit) * unit
    if abs(rounded) > Fraction(torch.finfo(dtype).max):
        return float("inf") if x > 0 else float("-inf")
    return rounded


def rounded(x, dtype):
    """Convert a float to a number of `dtype`, and keep the sign of a zero."""
    return math.copysign(float(nearest(Fraction(x), dtype)), x) if math.isfinite(x) else x


def value(call, numbers, c, dtype):
    """Return the result of a call of calls.py in `dtype`; 16-bit dtypes are computed in float32, and so is `c`."""
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    c = rounded(c, compute) if call.form.numbers else 0.0

    def formula(kind):
        return call.expected(*map(kind, numbers), c=kind(c))

    if not all(map(math.isfinite, (*numbers, c))):
        return formula(lambda x: math.copysign(1, x) if x and math.isfinite(x) else x)  # a product could overflow
    exact = formula(Fraction)
    if exact == 0:  # the terms are zeros or cancel, so Python's floats are exact
        return formula(float)
    once = nearest(exact, compute)
    return math.copysign(rounded(float(once), dtype), 1 if exact > 0 else -1)


def hard_values(dtype):
    """Numbers with every exponent, and significands that lead to ties, carries and cancellation."""
    digits, smallest = FORMATS[dtype]
    generator = torch.Generator().manual_seed(7)
    ones = [1 + 2.0**-k for k in (1, digits // 2, digits - 1)] + [2 - 2.0 ** (1 - digits), 1.0]
    special = torch.tensor([s * x for x in ones for s in (1, -1)], dtype=torch.float64)
    tiny = torch.tensor([1, 3, 5, 2 ** (digits - 1) - 1], dtype=torch.float64) * 2.0 ** (smallest - digits + 1)
    largest = torch.tensor([torch.finfo(dtype).max, torch.finfo(dtype).max / 2], dtype=torch.float64)
    spread = torch.randn(200, generator=generator, dtype=torch.float64)
    spread = torch.ldexp(spread, torch.randint(smallest, -smallest, (200,), generator=generator))
    return torch.cat([special, tiny, largest, spread]).to(dtype)
