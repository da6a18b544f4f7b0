"""
An exponential, rounded half as often
=====================================

The exponential function of a mathematics library is, at its heart, a polynomial, and Horner's scheme evaluates it in
steps of the form ``p * x + c`` with a number ``c``. Each step is one :func:`muladd_nb.mymuladd`, which rounds once
where a product and a sum round twice. This page compares both with float64.
"""

import math

import matplotlib.pyplot as plt
import torch

import muladd_nb

# %%
# The Taylor polynomial of degree 7, on the interval to which the argument of an exponential is reduced first.

coefficients = [1 / math.factorial(n) for n in range(7, -1, -1)]
x = torch.linspace(-math.log(2) / 2, math.log(2) / 2, 100_001)


def horner(step):
    """Evaluate the polynomial at ``x``, from the highest coefficient down."""
    p = torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        p = step(p, x, c)
    return p


results = {
    "p * x + c": horner(lambda p, x, c: p * x + c),
    "mymuladd(p, x, c)": horner(muladd_nb.mymuladd),
}

# %%
# The error in *ulps*, the distance from one float32 number to the next. The best possible result, the float32 number
# nearest to the exact value, is never off by more than half an ulp.

exact = torch.exp(x.double())
nearest = exact.float()
ulp = (torch.nextafter(nearest, torch.tensor(math.inf)) - nearest).double()
errors = {name: (result.double() - exact).abs() / ulp for name, result in results.items()}
correct = {}
for name, result in results.items():
    correct[name] = (result == nearest).double().mean().item()
for name, error in errors.items():
    share = f"correctly rounded {correct[name]:.1%}"
    print(f"{name:17}  at most {error.max():.2f} ulp, {share}")

# %%
# The largest error in each of a hundred parts of the interval:

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
parts = 100
middle = x[:-1].view(parts, -1).mean(1)
for name, error in errors.items():
    axes.step(middle, error[:-1].view(parts, -1).amax(1), where="mid", label=name)
axes.axhline(0.5, color="gray", linewidth=1)
axes.annotate(
    "the best there is",
    (x[0], 0.5),
    (2, -11),
    textcoords="offset points",
    color="gray",
    fontsize=9,
)
axes.set(xlabel="x", ylabel="largest error in ulps", ylim=(0.4, None))
axes.set_title("one rounding a step is closer to the best there is")
axes.legend(frameon=False)
plt.show()
