"""Derivatives of the operators that return their result: their partial derivatives, as the table has them."""

from __future__ import annotations

import torch

from . import derivative
from ._library import implement, namespace
from .operator import FUNCTIONAL, TABLE, UNRECORDED, Form
from .short_way import before

# A number has no partial derivative, also where it comes as a tensor.
_INSTEAD = {FUNCTIONAL: f"give it a partial derivative in {TABLE}"}


def register(form: Form) -> None:
    """Register the derivative of a functional form; where nothing can require grad there is none."""
    if form.kind & UNRECORDED:
        implement(form.op, torch.library.fallthrough_kernel, "Autograd")
        return
    if not form.kind & FUNCTIONAL or not any(dtype.is_floating_point for dtype in form.dtypes):
        return
    promises = form.promises
    if not promises.differentiable:
        derivative.none(form.op)
        return
    times = promises.times
    if isinstance(times, str):
        times = getattr(getattr(torch.ops, namespace), times).default
    derivative.elementwise(
        form.op,
        promises.partials,
        formula=promises.formula,
        times=times,
        node=promises.node,
        instead=promises.instead or _INSTEAD.get(form.kind),
        aten=promises.aten if form.below else None,
        shortened=lambda kernel: before(kernel, form),
    )
