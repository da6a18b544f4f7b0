"""Autograd for forms that write: no derivative passes through them, and a call that would lose one raises or warns."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import contract
from . import torch_private as private
from ._library import implement
from .fast_path import with_fast_path
from .operator import Form, complete, named, tensors_in
from .recording import refuse_gradients, refuse_gradients_of_numbers

_warned: set[str] = set()


def register(form: Form) -> None:
    """Register the Autograd kernel of a form that writes, and the one that increments version counters."""
    if not form.writes:
        return
    op = form.op

    def autograd(keyset: Any, *args: Any, **kwargs: Any) -> Tensor | None:
        given = complete(op, args, kwargs)
        if form.tensor_numbers:
            refuse_gradients_of_numbers(form, given)
        contract.check_defined(form, given, form.targets(given))
        if form.kind in ("writing", "out"):
            _refuse_or_warn(form.name, tuple(tensors_in(given)))
        else:
            why, instead = "what it writes to has no derivative", "call it under torch.no_grad()"
            # Tracing records the check for a tangent. Inductor traces writes twice, and expects the same both times.
            may_be_dual = private.differentiating()
            refuse_gradients(form.name, named(op, given), why, instead, may_be_dual=may_be_dual)
        return op.redispatch(private.below_autograd(keyset), *args, **kwargs)

    # ATen counts writes at this key, too. In inference mode the key Autograd is not called. The backend's kernel counts
    # its writes, but does not reach these tensors through a dispatch mode, or if they are wrapper subclasses.
    def counted(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        given = complete(op, args, kwargs)
        targets = form.targets(given)
        contract.check_defined(form, given, targets)
        tensors = [x for x in targets.values() if not x.is_inference()]  # inference tensors have no counter
        versions = [private.version(x) for x in tensors]
        result = op.redispatch(private.below_version_counter(keyset), *args, **kwargs)
        for x, version in zip(tensors, versions, strict=True):
            if private.version(x) == version:
                increment_version(x)
        return result

    implement(op, with_fast_path(autograd, form), "Autograd", with_keyset=True)
    implement(op, with_fast_path(counted, form), "ADInplaceOrView", with_keyset=True)


def _refuse_or_warn(op: str, tensors: tuple[Tensor, ...]) -> None:
    advice = "use the operator that returns its result"
    if private.differentiating() and any(map(private.has_tangent, tensors)):
        raise RuntimeError(f"{op}: tangents do not pass through out; {advice}")
    if not private.is_recorded(tensors):
        return
    if private.transforms_active():
        raise RuntimeError(f"{op}: gradients do not pass through out; {advice}")
    if op not in _warned or torch.is_warn_always_enabled():
        _warned.add(op)
        message = f"{op}: no gradient is recorded through out, but an argument requires grad; {advice}"
        warnings.warn(message, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """Return the ``stacklevel`` of the program's line that calls the operator, for a warning of our caller."""
    ours = f"{__package__}.", "torch._ops"
    levels = enumerate(inspect.stack(context=0))
    return next((i for i, x in levels if not x.frame.f_globals.get("__name__", "").startswith(ours)), 1)
