"""Lazily negated tensors, such as the imaginary part of a conjugate, where an operator that returns nothing writes.

torch resolves them as inputs of every operator, but its fallback looks for the written tensor among the results.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._library import implement
from .operator import UPDATING, WRITING, Form


def register(form: Form) -> None:
    """Register the kernel for lazily negated tensors of a form that returns nothing."""

    def resolved(*args: Any, **numbers: Any) -> None:
        given = tuple(x.resolve_neg() if isinstance(x, Tensor) else x for x in args)
        form.op(*given, **numbers)
        written = form.targets(given, numbers)
        for name, x in form.targets(args, numbers).items():
            if x.is_neg():
                x.copy_(written[name])

    if form.kind & (WRITING | UPDATING):
        implement(form.op, resolved, "Negative")
