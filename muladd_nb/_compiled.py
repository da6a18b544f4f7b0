"""What the public functions put into a program that torch.compile, torch.export or a symbolic make_fx traces."""

from __future__ import annotations

import torch
from torch import Tensor

from . import config
from ._operators import DTYPES
from ._register.public import as_tensor, is_constant, no_slice

_ops = torch.ops.muladd_nb


def mymuladd(a: Tensor, b: Tensor, c: float | Tensor) -> Tensor:
    if _fuse(a, b, c):
        return a * b + c
    if isinstance(c, Tensor):
        return _ops.mymuladd.Tensor(a, b, c)
    return _ops.mymuladd.default(a, b, c) if is_constant(c) else _ops.mymuladd.tensor_c(a, b, as_tensor(c))


def mymuladd_out(a: Tensor, b: Tensor, c: float | Tensor, out: Tensor) -> None:
    if isinstance(c, Tensor):
        _ops.mymuladd_out.Tensor(*no_slice(a, b, c, out))
        return
    a, b, out = no_slice(a, b, out)
    if is_constant(c):
        _ops.mymuladd_out.default(a, b, c, out)
    else:
        _ops.mymuladd_out.tensor_c(a, b, as_tensor(c), out)


def mymul(a: Tensor, b: Tensor) -> Tensor:
    return a * b if _fuse(a, b, 0.0) else _ops.mymul.default(a, b)


def mymul_out(a: Tensor, b: Tensor, out: Tensor) -> None:
    # The compiler refuses operators that return an argument; adding -0.0 changes no bit of a product.
    mymuladd_out(a, b, -0.0, out)


def myadd_out(a: Tensor, b: Tensor, out: Tensor) -> None:
    _ops.myadd_out.default(*no_slice(a, b, out))


def _fuse(a: Tensor, b: Tensor, c: float | Tensor) -> bool:
    # What ATen would broadcast, promote or cast is left to the operator.
    return (
        config.fuse_when_compiling
        and all((a.shape, a.dtype, a.device) == (x.shape, x.dtype, x.device) for x in (b, c) if isinstance(x, Tensor))
        and a.dtype in DTYPES
        and not torch.is_autocast_enabled(a.device.type)
        and not isinstance(c, complex)
    )
