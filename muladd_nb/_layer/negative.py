"""Writes into lazily negated tensors, such as the imaginary part of a conjugate.

torch's fallback resolves such tensors. But it looks for a written tensor among the results, so it does not work for an
operator that returns nothing.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from . import contract
from ._library import implement
from .operator import Form, complete, with_tensors


def register(form: Form) -> None:
    """Register the kernel for lazily negated tensors of a form that writes, unless torch's works."""
    if form.kind == "out" or not form.writes:
        return

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args = complete(form.op, args, kwargs)
        targets = form.targets(args)
        contract.check_apart(form, targets)
        given = [with_tensors(Tensor.resolve_neg, x) for x in args]
        returned = form.call(*given)
        written = form.targets(given)
        for name, x in targets.items():
            if x.is_neg():
                x.copy_(written[name])
        return returned

    implement(form.op, kernel, "Negative")
