"""What the public functions put into a program that torch.compile, torch.export or a symbolic make_fx traces."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _torch_private as private
from . import config
from ._operators import DTYPES

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_ops = torch.ops.muladd_nb


def mymuladd(a: Tensor, b: Tensor, c: float | Tensor) -> Tensor:
    if _fuse(a, b, c):
        return a * b + c
    if isinstance(c, Tensor):
        return _ops.mymuladd.Tensor(a, b, c)
    return _ops.mymuladd.default(a, b, c) if _constant(c) else _ops.mymuladd.tensor_c(a, b, _as_tensor(c))


def mymuladd_out(a: Tensor, b: Tensor, c: float | Tensor, out: Tensor) -> None:
    if isinstance(c, Tensor):
        _ops.mymuladd_out.Tensor(*_no_slice(a, b, c, out))
        return
    a, b, out = _no_slice(a, b, out)
    if _constant(c):
        _ops.mymuladd_out.default(a, b, c, out)
    else:
        _ops.mymuladd_out.tensor_c(a, b, _as_tensor(c), out)


def mymul(a: Tensor, b: Tensor) -> Tensor:
    return a * b if _fuse(a, b, 0.0) else _ops.mymul.default(a, b)


def mymul_out(a: Tensor, b: Tensor, out: Tensor) -> None:
    # The compiler refuses operators that return an argument; adding -0.0 changes no bit of a product.
    mymuladd_out(a, b, -0.0, out)


def myadd_out(a: Tensor, b: Tensor, out: Tensor) -> None:
    _ops.myadd_out.default(*_no_slice(a, b, out))


def _no_slice(*tensors: Tensor) -> list[Tensor]:
    """Return views of the tensors, the last of which is written, that torch does not take for slices.

    Of a slice of an input that itself starts past its storage, auto_functionalize takes the start for one in that
    input, and the write goes elsewhere. It takes for a slice what has as many dimensions as its base, and its strides.
    """
    out = tensors[-1]
    alike = all(x.dim() == out.dim() and all(map(_equal, x.shape, out.shape)) for x in tensors)
    if not alike or any(map(private.is_wrapper_subclass, tensors)):
        return list(tensors)  # whose sentence has their shapes; and a wrapper is no view of memory
    return [x[None, None, ..., None, None] for x in tensors]


def _equal(x: int, y: int) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(x == y)


def _fuse(a: Tensor, b: Tensor, c: float | Tensor) -> bool:
    # What ATen would broadcast, promote or cast is left to the operator.
    return (
        config.fuse_when_compiling
        and all((a.shape, a.dtype, a.device) == (x.shape, x.dtype, x.device) for x in (b, c) if isinstance(x, Tensor))
        and a.dtype in DTYPES
        and not torch.is_autocast_enabled(a.device.type)
        and not isinstance(c, complex)
    )


def _constant(c: float) -> bool:
    """Return whether ``c`` is a constant of the program, not a value that changes from call to call."""
    from torch.fx.experimental.symbolic_shapes import has_static_value

    # What is no real number is left to the operator, which refuses it.
    return isinstance(c, complex) or (isinstance(c, _NUMBERS) and has_static_value(c))


def _as_tensor(c: float) -> Tensor:
    if not isinstance(c, _NUMBERS):  # a NumPy scalar, which Dynamo traces as an array
        return torch.as_tensor(c).to("cpu", torch.float64)
    # An addition, because it is among the few operations for which the compiler keeps a float an input: of
    # torch.tensor(c) it makes a constant. Adding to -0.0 changes no bit.
    return torch.full((), -0.0, dtype=torch.float64, device="cpu") + c
