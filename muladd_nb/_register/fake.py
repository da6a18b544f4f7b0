"""Fake kernels: shape, strides, dtype and device of a result, for tracing and the meta device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from .. import _contract


def _write(op: str, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Do all that a write does where there is no memory: check, and count it."""
    _contract.check(op, a, b, out)
    increment_version(out)


@torch.library.register_fake("muladd_nb::mymuladd")
def mymuladd(a: Tensor, b: Tensor, c: float) -> Tensor:
    _contract.check("mymuladd", a, b)
    return torch.empty_like(a)


@torch.library.register_fake("muladd_nb::mymul")
def mymul(a: Tensor, b: Tensor) -> Tensor:
    _contract.check("mymul", a, b)
    return torch.empty_like(a)


@torch.library.register_fake("muladd_nb::myadd_out")
def myadd_out(a: Tensor, b: Tensor, out: Tensor) -> None:
    _write("myadd_out", a, b, out)


@torch.library.register_fake("muladd_nb::mymuladd_out")
def mymuladd_out(a: Tensor, b: Tensor, c: float, out: Tensor) -> None:
    _write("mymuladd_out", a, b, out)


@torch.library.register_fake("muladd_nb::mymuladd.tensor_c")
def mymuladd_tensor_c(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    _contract.check_scalar("mymuladd", c)
    return mymuladd(a, b, 0.0)


@torch.library.register_fake("muladd_nb::mymuladd_out.tensor_c")
def mymuladd_out_tensor_c(a: Tensor, b: Tensor, c: Tensor, out: Tensor) -> None:
    _contract.check_scalar("mymuladd_out", c)
    mymuladd_out(a, b, 0.0, out)


@torch.library.register_fake("muladd_nb::mymuladd.out")
def mymuladd_dot_out(a: Tensor, b: Tensor, c: float, *, out: Tensor) -> Tensor:
    _write("mymuladd.out", a, b, out)
    return out


@torch.library.register_fake("muladd_nb::mymul.out")
def mymul_dot_out(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    _write("mymul.out", a, b, out)
    return out
