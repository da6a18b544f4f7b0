"""The contract of the operators for tensors without data: fake and meta ones.

``src/contract.h`` says the same, in the same order and the same words, for tensors with data. What only
memory can tell, a partial overlap of ``out`` with an input, is left to it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _C

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check(op: str, a: Tensor, b: Tensor, out: Tensor | None = None) -> None:
    """Raise ``RuntimeError`` unless ``a``, ``b`` and ``out`` are what the operator ``op`` takes."""
    if a.dtype not in DTYPES:
        message = f"{op}: a must be float16, bfloat16, float32 or float64, got {name(a.dtype)}"
        raise RuntimeError(message)
    _check_same(op, a, "b", b)
    if out is not None:
        _check_same(op, a, "out", out)
        _check_not_self_overlapping(op, out)


def check_scalar(op: str, c: Tensor) -> None:
    """Raise ``RuntimeError`` unless ``c`` is what the overload ``tensor_c`` of the operator ``op`` takes."""
    if c.dim() != 0 or c.dtype != torch.float64 or c.device.type != "cpu":
        raise RuntimeError(
            f"{op}: c must be a number, or for tensor_c a float64 tensor of shape [] on cpu, got one of "
            f"{name(c.dtype)}, shape {list(c.shape)}, on {c.device}"
        )


def _check_same(op: str, a: Tensor, x_name: str, x: Tensor) -> None:
    pair = f"{op}: a and {x_name} must"
    if a.device != x.device:
        raise RuntimeError(f"{pair} be on the same device, got {a.device} and {x.device}")
    if a.dtype != x.dtype:
        raise RuntimeError(f"{pair} have the same dtype, got {name(a.dtype)} and {name(x.dtype)}")
    # torch._check, not `if`: a symbolic size becomes a runtime assertion of the compiled program.
    torch._check(a.dim() == x.dim(), lambda: f"{pair} have the same shape, got {list(a.shape)} and {list(x.shape)}")
    for of_a, of_x in zip(a.shape, x.shape, strict=True):
        torch._check(of_a == of_x, lambda: f"{pair} have the same shape, got {list(a.shape)} and {list(x.shape)}")


def _check_not_self_overlapping(op: str, out: Tensor) -> None:
    shape, strides = list(out.shape), list(out.stride())
    # Symbolic sizes are left to the real kernel, which knows them: a comparison here would specialize the
    # program, or fail where they depend on data.
    if all(type(x) is int for x in shape + strides) and _C.overlaps_itself(shape, strides):
        raise RuntimeError(f"{op}: out must not overlap itself, got shape {shape} and strides {strides}")


def name(dtype: torch.dtype) -> str:
    """Return the name of ``dtype`` as C++ and Python both print it."""
    return str(dtype).removeprefix("torch.")
