"""Refuses tensors for which there is no kernel: of other devices, sparse, quantized and so on.

The error says what to do; torch's own error would list backends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.masked import MaskedTensor

from . import contract
from ._library import implement
from .operator import Form, complete, named

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


def check(form: Form, args: Sequence[Any]) -> None:
    """Raise ``RuntimeError`` if one of the arguments is a tensor that no kernel takes."""
    for argument, x in named(form.op, args).items():
        if because := complaint(x):
            raise RuntimeError(f"{form.name}: {argument} {because}")


def register(form: Form) -> None:
    """Register kernels that raise an error, for every backend without a kernel."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        args = complete(form.op, args, kwargs)
        check(form, args)
        contract.check_defined(form, args, form.targets(args))
        raise RuntimeError(f"{form.name}: the tensors must be dense and all of one kind")

    for backend in _BACKENDS:
        implement(form.op, refuse, backend)
    torch.library.register_torch_dispatch(
        form.op.name(), MaskedTensor, lambda cls, op, types, args, kwargs=None: refuse(*args, **(kwargs or {}))
    )
