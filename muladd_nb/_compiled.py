"""What the public functions put into a program that torch.compile or torch.export traces."""

from __future__ import annotations

import torch
from torch import Tensor

from . import config

_ops = torch.ops.muladd_nb


def mymuladd(a: Tensor, b: Tensor, c: float) -> Tensor:
    if config.fuse_when_compiling and _alike(a, b):
        return a * b + c
    return _ops.mymuladd.default(a, b, c) if _constant(c) else _ops.mymuladd.tensor_c(a, b, _as_tensor(c))


def mymuladd_out(a: Tensor, b: Tensor, c: float, out: Tensor) -> None:
    if _constant(c):
        _ops.mymuladd_out.default(a, b, c, out)
    else:
        _ops.mymuladd_out.tensor_c(a, b, _as_tensor(c), out)


def mymul(a: Tensor, b: Tensor) -> Tensor:
    return a * b if config.fuse_when_compiling and _alike(a, b) else _ops.mymul.default(a, b)


def mymul_out(a: Tensor, b: Tensor, out: Tensor) -> None:
    # The compiler refuses operators that return an argument; adding -0.0 changes no bit of a product.
    _ops.mymuladd_out.default(a, b, -0.0, out)


def _alike(a: Tensor, b: Tensor) -> bool:
    # What ATen would broadcast or promote is left to the operator, which refuses it.
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and a.is_floating_point()


def _constant(c: float) -> bool:
    """Return whether ``c`` is a constant of the program, not an input that changes from call to call.

    Dynamo hides the difference from ``isinstance``. But of an input it knows no bound, and asking so sets no guard.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(c <= 0) or statically_known_true(c > 0)


def _as_tensor(c: float) -> Tensor:
    # An addition, because it is among the few operations for which the compiler keeps a float an input: of
    # torch.tensor(c) it makes a constant. Adding to -0.0 changes no bit.
    return torch.full((), -0.0, dtype=torch.float64, device="cpu") + c
