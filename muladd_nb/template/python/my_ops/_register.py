"""What Python adds to the operator: a fake kernel, a derivative and a batching rule.

``torch.library.register_autograd`` gives reverse mode alone: ``torch.func.grad`` refuses such an operator, and
forward mode (``torch.func.jvp``) takes its derivative to be zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_mymul = torch.ops.my_ops.mymul.default


@torch.library.register_fake("my_ops::mymul")
def _fake(a: Tensor, b: Tensor) -> Tensor:
    # What src/inputs.h refuses. torch._check, not `if`: a symbolic size becomes a runtime assertion.
    torch._check(a.dtype in (torch.float32, torch.float64), lambda: "mymul: a must be float32 or float64")
    torch._check(a.device == b.device, lambda: "mymul: a and b must be on the same device")
    torch._check(a.dtype == b.dtype, lambda: "mymul: a and b must have the same dtype")
    torch._check(a.shape == b.shape, lambda: "mymul: a and b must have the same shape")
    # The strides of the real kernel's result: compiled code relies on them.
    return a.new_empty(a.shape)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    a, b = inputs
    # Each gradient reads the other input; saving more would keep memory for nothing.
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    # Made of operators alone, so that it can be compiled and differentiated again.
    return (
        _mymul(grad, b) if ctx.needs_input_grad[0] else None,
        _mymul(grad, a) if ctx.needs_input_grad[1] else None,
    )


torch.library.register_autograd("my_ops::mymul", _backward, setup_context=_setup_context)


@torch.library.register_vmap("my_ops::mymul")
def _batched(info: Any, in_dims: tuple[int | None, ...], a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    def batch_first(x: Tensor, dim: int | None) -> Tensor:
        return x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)

    return _mymul(batch_first(a, in_dims[0]), batch_first(b, in_dims[1])), 0
