"""What a write into ``out`` means to autograd: no derivative passes through it, and it is not silent."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from .. import _torch_private as private
from ._library import implement, name
from .autograd import refuse_gradient_of_c

_ops = torch.ops.muladd_nb
_warned: set[str] = set()


def _refuse_or_warn(op: Any, tensors: tuple[Tensor, ...]) -> None:
    advice = "use the operator that returns its result"
    if private.differentiating() and any(private.has_tangent(tensor) for tensor in tensors):
        raise RuntimeError(f"{name(op)}: tangents do not pass through out; {advice}")
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return
    if private.transforms_active():
        raise RuntimeError(f"{name(op)}: gradients do not pass through out; {advice}")
    if name(op) not in _warned or torch.is_warn_always_enabled():
        _warned.add(name(op))
        message = f"{name(op)}: no gradient is recorded through out, but an argument requires grad; {advice}"
        warnings.warn(message, stacklevel=4)  # the caller, past torch._ops


def _count_write(out: Tensor) -> None:
    # The kernel counts a write into the tensor it sees. A wrapper subclass around it has a counter of its own.
    if type(out) is not Tensor and private.is_wrapper_subclass(out):
        increment_version(out)


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
    return tuple(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))


def _register(op: Any) -> None:
    def autograd(keyset: Any, *args: Any, **kwargs: Any) -> Tensor | None:
        if op is _ops.mymuladd_out.tensor_c:
            refuse_gradient_of_c(op, args[2])
        _refuse_or_warn(op, _tensors(args, kwargs))
        result = op.redispatch(keyset & private.after_autograd, *args, **kwargs)
        _count_write(kwargs["out"] if kwargs else args[-1])
        return result

    implement(op, autograd, "Autograd", with_keyset=True)


_register(_ops.myadd_out.default)
_register(_ops.mymuladd_out.default)
_register(_ops.mymuladd_out.tensor_c)
_register(_ops.mymuladd.out)
_register(_ops.mymul.out)
