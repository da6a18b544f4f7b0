"""Derivatives of ``mymuladd`` and ``mymul``, in reverse and forward mode, under every torch.func transform.

``torch.library.register_autograd`` is not enough: its operators raise under ``torch.func.grad``, and
their forward-mode derivative is silently zero. Here each operator has one kernel at the dispatch key
``Autograd``. torch.func runs that kernel once per level of nested transforms, on the tensors of that
level, so what it records there is one level's derivative: an ``autograd.Function`` of the kind torch.func
itself generates for a single level. Its forward redispatches to the next level, and in the end to the
C++ kernel, so the values under a transform are bit for bit those outside it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _torch_private as private
from ._library import implement, name

_mymuladd = torch.ops.muladd_nb.mymuladd.default
_mymuladd_tensor_c = torch.ops.muladd_nb.mymuladd.tensor_c
_mymul = torch.ops.muladd_nb.mymul.default


def _save(ctx: Any, a: Tensor, b: Tensor) -> None:
    needs_a, needs_b = ctx.needs_input_grad[1:3]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
    if private.may_be_dual():
        ctx.save_for_forward(a, b)


def _gradients(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    grad_a = _mymul(grad, b) if grad is not None and ctx.needs_input_grad[1] else None
    grad_b = _mymul(grad, a) if grad is not None and ctx.needs_input_grad[2] else None
    return grad_a, grad_b


def _tangent(ctx: Any, tangent_a: Tensor | None, tangent_b: Tensor | None) -> Tensor:
    # This level's tangents are taken off, and recording is turned on again, for the levels below: a
    # derivative of this one (jvp of jvp) would otherwise lose every term made here.
    a, b = (private.primal(x) for x in ctx.saved_tensors)
    with private.record_at_lower_levels():
        terms = [_mymul(x, y) for x, y in ((tangent_a, b), (tangent_b, a)) if x is not None]
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]


class MyMulAdd(private.SingleLevelFunction):
    # The old form, without setup_context, is 10 us cheaper a call.
    @staticmethod
    def forward(ctx: Any, keyset: Any, a: Tensor, b: Tensor, c: float | Tensor) -> Tensor:
        _save(ctx, a, b)
        return _below(_mymuladd_tensor_c if isinstance(c, Tensor) else _mymuladd, keyset, a, b, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *_gradients(ctx, grad), None

    @staticmethod
    def jvp(ctx: Any, _: Any, tangent_a: Tensor | None, tangent_b: Tensor | None, __: Any) -> Tensor:
        return _tangent(ctx, tangent_a, tangent_b)


class MyMul(private.SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, keyset: Any, a: Tensor, b: Tensor) -> Tensor:
        _save(ctx, a, b)
        return _below(_mymul, keyset, a, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *_gradients(ctx, grad)

    @staticmethod
    def jvp(ctx: Any, _: Any, tangent_a: Tensor | None, tangent_b: Tensor | None) -> Tensor:
        return _tangent(ctx, tangent_a, tangent_b)


def _below(op: Any, keyset: Any, *args: Any) -> Tensor:
    if not private.transforms_active():
        return op.redispatch(keyset & private.after_autograd, *args)
    with private.record_at_lower_levels():
        return op.redispatch(keyset & private.after_autograd, *args)


def _record(function: Any, *args: Any) -> Tensor:
    if not private.transforms_active():
        return function.apply(*args)
    with private.record_at_this_level():
        return function.apply(*args)


def mymuladd(keyset: Any, a: Tensor, b: Tensor, c: float) -> Tensor:
    if private.nothing_to_record(a, b):
        return _mymuladd.redispatch(keyset & private.after_autograd, a, b, c)
    return _record(MyMulAdd, keyset, a, b, c)


def refuse_gradient_of_c(op: Any, c: Tensor) -> None:
    if c.requires_grad or (private.differentiating() and private.has_tangent(c)):
        raise RuntimeError(f"{name(op)}: c has no gradient, but requires one; detach c, or write a * b + c")


def mymuladd_tensor_c(keyset: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    refuse_gradient_of_c(_mymuladd_tensor_c, c)
    if private.nothing_to_record(a, b):
        return _mymuladd_tensor_c.redispatch(keyset & private.after_autograd, a, b, c)
    return _record(MyMulAdd, keyset, a, b, c)


def mymul(keyset: Any, a: Tensor, b: Tensor) -> Tensor:
    if private.nothing_to_record(a, b):
        return _mymul.redispatch(keyset & private.after_autograd, a, b)
    return _record(MyMul, keyset, a, b)


implement(_mymuladd, mymuladd, "Autograd", with_keyset=True)
implement(_mymuladd_tensor_c, mymuladd_tensor_c, "Autograd", with_keyset=True)
implement(_mymul, mymul, "Autograd", with_keyset=True)
