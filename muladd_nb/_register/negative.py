"""Lazily negated tensors, such as the imaginary part of a conjugate, as ``out`` of an operator that returns nothing.

torch resolves them as inputs of every operator, but its fallback looks for the written tensor among the results.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._library import implement
from .operator import WRITING, Form


def register(form: Form) -> None:
    """Register the kernel for lazily negated tensors of a form that returns nothing."""

    def resolved(*args: Any) -> None:
        *inputs, out = (x.resolve_neg() if isinstance(x, Tensor) else x for x in args)
        form.op(*inputs, out)
        if args[-1].is_neg():
            args[-1].copy_(out)

    if form.kind & WRITING:
        implement(form.op, resolved, "Negative")
