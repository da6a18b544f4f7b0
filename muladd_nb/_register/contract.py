"""The contract of the operators for tensors without data: fake and meta ones.

``src/elementwise/contract.h`` says the same, in the same order and the same words, for tensors with data. What only
memory can tell, a partial overlap of ``out`` with an input, is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _C
from .operator import FUNCTIONAL, TENSOR_NUMBERS, Form


def check(form: Form, args: tuple[Any, ...], out: Tensor | None = None) -> None:
    """Raise ``RuntimeError`` unless the tensors in ``args``, and ``out``, are what an operator takes."""
    check_defined(form, args, out)
    first = form.first
    a = args[form.inputs[first]]
    if a.dtype not in form.dtypes:
        *most, last = map(name, form.dtypes)
        expected = f"{', '.join(most)} or {last}" if most else last
        raise RuntimeError(f"{form.name}: {first} must be {expected}, got {name(a.dtype)}")
    for other, place in form.inputs.items():
        if other != first:
            _check_beside(form.name, first, a, other, args[place], form.own.get(other))
    if out is not None:
        _check_beside(form.name, first, a, "out", out, form.of_results[0])
        _check_not_self_overlapping(form.name, out)


def check_defined(form: Form, args: tuple[Any, ...], out: Tensor | None = None) -> None:
    """Raise ``RuntimeError`` if one of the tensors is None, which torch takes for any tensor."""
    for argument, place in form.inputs.items():
        if args[place] is None:
            raise RuntimeError(f"{form.name}: {argument} must be a tensor, got None")
    if out is None and not form.kind & FUNCTIONAL:
        raise RuntimeError(f"{form.name}: out must be a tensor, got None")


def check_numbers(form: Form, args: tuple[Any, ...]) -> None:
    """Raise ``RuntimeError`` unless the numbers that come as tensors are what an operator takes."""
    for number, place in form.numbers.items() if form.kind & TENSOR_NUMBERS else ():
        c = args[place]
        if c is None:
            raise RuntimeError(f"{form.name}: {number} must be a number, got None")
        if c.dim() != 0 or c.dtype != torch.float64 or c.device.type != "cpu":
            overload = form.op.name().partition(".")[2]
            raise RuntimeError(
                f"{form.name}: {number} must be a number, or for {overload} a float64 tensor of shape [] on cpu, got "
                f"one of {name(c.dtype)}, shape {list(c.shape)}, on {c.device}"
            )


def check_in_storage(form: Form, argument: str, x: Tensor) -> None:
    """Raise ``RuntimeError`` if the storage of ``x`` was shrunk below it, which ATen's conversions do not ask."""
    try:
        size = x.untyped_storage().nbytes() if type(x) is Tensor and x.numel() else None
    except (NotImplementedError, RuntimeError):  # what is wrapped for a transform has none
        return
    shape, strides, offset = list(x.shape), list(x.stride()), x.storage_offset()
    extent = offset + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if size is not None and extent * x.element_size() > size:
        raise RuntimeError(
            f"{form.name}: {argument} must lie in its storage, got shape {shape}, strides {strides} and offset "
            f"{offset} in a storage of {size} bytes"
        )


def _check_beside(op: str, first: str, a: Tensor, x_name: str, x: Tensor, own: torch.dtype | None) -> None:
    def unlike(what: str, got: Any, cure: str) -> str:
        cure = "make out with torch.empty_like" if x_name == "out" else cure
        return f"{op}: {first} and {x_name} must {what}, got {got(a)} and {got(x)}; {cure}"

    def of_shapes() -> str:
        cure = f"nothing is broadcast, use {x_name}.expand_as({first}) or {first}.expand_as({x_name})"
        return unlike("have the same shape", lambda y: list(y.shape), cure)

    if a.device != x.device:
        raise RuntimeError(unlike("be on the same device", lambda y: y.device, f"use {x_name}.to({first}.device)"))
    if own is not None and x.dtype != own:
        raise RuntimeError(f"{op}: {x_name} must be {name(own)}, got {name(x.dtype)}")
    if own is None and a.dtype != x.dtype:
        cure = f"nothing is promoted, use {x_name}.to({first}.dtype)"
        raise RuntimeError(unlike("have the same dtype", lambda y: name(y.dtype), cure))
    # torch._check, not `if`: a symbolic size becomes a runtime assertion of the compiled program.
    torch._check(a.dim() == x.dim(), of_shapes)
    for of_a, of_x in zip(a.shape, x.shape, strict=True):
        torch._check(of_a == of_x, of_shapes)


def _check_not_self_overlapping(op: str, out: Tensor) -> None:
    shape, strides = list(out.shape), list(out.stride())
    # Symbolic sizes are left to the real kernel, which knows them: a comparison here would specialize the
    # program, or fail where they depend on data.
    if all(type(x) is int for x in shape + strides) and _C.overlaps_itself(shape, strides):
        raise RuntimeError(f"{op}: out must not overlap itself, got shape {shape} and strides {strides}")


def has_no_gaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the elements of a tensor lie side by side in memory, in whichever order, each once."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    numel = math.prod(shape)
    return numel == 0 or (extent == numel and not _C.overlaps_itself(shape, strides))


def name(dtype: torch.dtype) -> str:
    """Return the name of ``dtype`` as C++ and Python both print it."""
    return str(dtype).removeprefix("torch.")
