"""Refuses tensors for which there is no kernel: of other devices, sparse, quantized and so on.

The error says what to do; torch's own error would list backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.masked import MaskedTensor

from . import contract
from . import torch_private as private
from ._library import implement
from .operator import Form

_BACKENDS = ("SparseCPU", "SparseCUDA", "SparseMeta", "SparseCsrCPU", "SparseCsrCUDA", "SparseCsrMeta", "MkldnnCPU",
             "QuantizedCPU", "QuantizedCUDA", "NestedTensorCPU", "NestedTensorCUDA", "MPS")  # fmt: skip


def complaint(x: Any) -> str | None:
    """Return why no kernel takes a tensor, and what to do, or None if a kernel takes it."""
    if not isinstance(x, Tensor):
        return None
    if x.device.type == "mps":
        return f'must be on the CPU or a CUDA device, got {x.device}; call to("cpu") first'
    if isinstance(x, MaskedTensor):
        return "must not be masked; call it on get_data(), and keep the mask beside it"
    if x.is_quantized:
        return "must not be quantized; call dequantize() first"
    if x.is_nested and x.layout is torch.strided:
        return "must not be a nested tensor of the strided layout; make it with layout=torch.jagged"
    if x.layout not in (torch.strided, torch.jagged):
        return f"must be a dense tensor, got the layout {x.layout}; call to_dense() first"
    return None


def check(form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ``RuntimeError`` if one of the arguments is a tensor that no kernel takes."""
    check_each(form.name, (*zip(private.argument_names(form.op), args, strict=False), *kwargs.items()))


def check_each(op: str, arguments: Iterable[tuple[str, Any]]) -> None:
    """Raise ``RuntimeError`` if one of these pairs of a name and an argument has a tensor that no kernel takes."""
    for argument, x in arguments:
        if because := complaint(x):
            raise RuntimeError(f"{op}: {argument} {because}")


def register(form: Form) -> None:
    """Register kernels that raise an error, for every backend without a kernel."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        check(form, args, kwargs)
        contract.check_defined(form, args, form.targets(args, kwargs))
        raise RuntimeError(f"{form.name}: the tensors must be dense and all of one kind")

    implement_refusal(form.op, refuse)


def implement_refusal(op: Any, refuse: Callable[..., Any]) -> None:
    """Register a function that raises an error as the kernel of every backend without one."""
    for backend in _BACKENDS:
        implement(op, refuse, backend)
    torch.library.register_torch_dispatch(
        op.name(), MaskedTensor, lambda cls, op, types, args, kwargs=None: refuse(*args, **(kwargs or {}))
    )
