"""What a write means to autograd: no derivative passes through it, and it is not silent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import contract, unsupported
from . import torch_private as private
from ._library import implement
from .fast_path import with_fast_path
from .operator import Form, by_position, complete
from .recording import no_gradient, refuse_gradients

_warned: set[str] = set()


def register(form: Form) -> None:
    """Register the Autograd kernel of a form that writes."""
    if form.kind == "functional":
        return
    op = form.op

    def targets_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
        targets = form.targets(args, kwargs)
        contract.check_defined(form, args, targets)
        return targets

    def autograd(keyset: Any, *args: Any, **kwargs: Any) -> Tensor | None:
        if form.tensor_numbers:
            for number, place in form.numbers.items():
                if args[place] is not None and (args[place].requires_grad or _has_tangent(args[place])):
                    raise no_gradient(op, number, form.promises.instead)
        tensors = form.given(args) | targets_of(args, kwargs)
        if form.kind == "updating":
            refuse_gradients_of_updates(op, tensors)
        else:
            _refuse_or_warn(form, tensors.values())
        return op.redispatch(private.below_autograd(keyset), *args, **kwargs)

    implement(op, with_fast_path(autograd, form), "Autograd", with_keyset=True)
    count_writes(op, lambda args, kwargs: targets_of(args, kwargs).values(), form)
    if form.functional is not None and (form.kind == "out" or form.promises.fused == "formula"):
        _compile(form)


def _compile(form: Form) -> None:
    """Register what a compiled program has in place of an operator that writes into ``out``.

    That is the operator that returns its result, and a copy: for one that returns ``out``, which torch 2.13 and later
    take by themselves where it has ``torch.Tag.out``, and then lose what is written to the result; and for one whose
    formula is compiled, which writes nothing.
    """

    def functionalized(*args: Any, **kwargs: Any) -> Tensor | None:
        if private.transforms_active():  # which would also cast what autocast has already left as it is
            advice = "use the operator that returns its result"
            raise RuntimeError(f"{form.name}: torch.func.functionalize takes no out; {advice}")
        targets = form.targets(args, kwargs)
        unsupported.check(form, args, kwargs)
        contract.check(form, args, targets)
        inputs = complete(form.op, args, kwargs)[: len(form.kinds)]
        written: Tensor = targets["out"].copy_(by_position(form.functional, form.functional)(*inputs))
        return written if form.kind == "out" else None

    implement(form.op, functionalized, "Functionalize")


def count_writes(
    op: Any,
    written: Callable[[tuple[Any, ...], dict[str, Any]], Iterable[Tensor]],
    form: Form | None = None,
) -> None:
    """Count each write of an operator into the tensors of a call that it writes to."""

    # This is where ATen counts a write, also in inference mode, where nothing comes to Autograd. The backend's kernel
    # counts its own only where nothing is between: no dispatch mode, and no wrapper subclass, whose tensors are others.
    def counted(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in written(args, kwargs) if not x.is_inference()]  # which have no counter
        versions = [private.version(x) for x in tensors]
        result = op.redispatch(private.below_version_counter(keyset), *args, **kwargs)
        for x, version in zip(tensors, versions, strict=True):
            if private.version(x) == version:
                increment_version(x)
        return result

    implement(op, with_fast_path(counted, form), "ADInplaceOrView", with_keyset=True)


def refuse_gradients_of_updates(op: Any, tensors: Mapping[str, Tensor]) -> None:
    """Do so for an operator that writes to arguments which it also reads."""
    why, instead = "what it writes to has no derivative", "call it under torch.no_grad()"
    # To ask for a tangent is recorded by what traces; Inductor, which traces writes twice, wants the same of both.
    refuse_gradients(op, tensors, why, instead, may_be_dual=private.differentiating())


def _has_tangent(tensor: Tensor) -> bool:
    return private.differentiating() and private.has_tangent(tensor)


def _refuse_or_warn(form: Form, tensors: Iterable[Tensor]) -> None:
    op = form.name
    advice = "use the operator that returns its result"
    if any(_has_tangent(tensor) for tensor in tensors):
        raise RuntimeError(f"{op}: tangents do not pass through out; {advice}")
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return
    if private.transforms_active():
        raise RuntimeError(f"{op}: gradients do not pass through out; {advice}")
    if op not in _warned or torch.is_warn_always_enabled():
        _warned.add(op)
        message = f"{op}: no gradient is recorded through out, but an argument requires grad; {advice}"
        warnings.warn(message, stacklevel=4)  # the caller, past torch._ops
