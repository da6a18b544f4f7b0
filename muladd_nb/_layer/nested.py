"""Jagged nested tensors: an element-wise operator computes with their values, which are packed in one tensor.

Other operators refuse them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import contract, unsupported
from . import torch_private as private
from ._library import implement
from .operator import Form, as_tuple, complete, named


def register(form: Form) -> None:
    """Register the rule for jagged tensors of an operator."""
    assert_later = private.COMPILED_LENGTHS.refusal(form.name) or private.assert_later

    def rule(cls: Any, op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        args = complete(form.op, args, kwargs or {})
        targets = form.targets(args)
        unsupported.check(form, args)
        # Equal shapes mean equal offsets, because the ragged dimension identifies them. With lengths it identifies only
        # these, so the offsets are compared below.
        contract.check(form, args, targets)
        tensors = form.given(args) | targets
        nested = {name: x for name, x in tensors.items() if isinstance(x, private.NestedTensor)}
        first, *others = nested.items()
        for name, x in tensors.items():
            _check_dims(form.name, name, x, *first)
        for name, x in others:
            if x.lengths() is not None and x.offsets() is not first[1].offsets():
                must = f"{form.name}: {first[0]} and {name} must have the same offsets, and not only the same lengths"
                if type(x.offsets()) is Tensor:
                    raise RuntimeError(must)
                # A compiler may see one offsets tensor as two. Only the compiled program can compare them.
                assert_later((x.offsets() == first[1].offsets()).all(), must)
        result = form.call(*map(_values, args))
        if targets:
            return targets["out"] if form.kind == "out" else None
        results = as_tuple(result)
        # A gradient is nested if its tensor is, and if it is asked for.
        wanted = form.wanted(args)
        like = [x in nested and x in wanted for x in form.gradients_of] or [True] * len(results)
        of_results = tuple(
            private.jagged_like(first[1], values) if is_nested else values
            for values, is_nested in zip(results, like, strict=True)
        )
        return of_results if isinstance(result, tuple) else of_results[0]

    refuse = private.JAGGED.refusal(form.name)
    if refuse or form.of_row or form.kind == "kernel":

        def refuse_nested(*args: Any, **kwargs: Any) -> None:
            args = complete(form.op, args, kwargs)
            unsupported.check(form, args)
            if refuse:
                refuse()
            nested = next(name for name, x in named(form.op, args).items() if isinstance(x, Tensor) and x.is_nested)
            instead = f"call it on {nested}.values()"
            raise RuntimeError(f"{form.name}: an operator that is not element-wise takes no nested tensor; {instead}")

        implement(form.op, refuse_nested, "AutogradNestedTensor")
    else:
        torch.library.register_torch_dispatch(form.op.name(), private.NestedTensor, private.skip_in_dynamo(rule))


def _check_dims(op: str, name: str, x: Tensor, first: str, a: Any) -> None:
    """Raise ``RuntimeError`` unless broadcasting is the same when all values are packed in one tensor."""
    is_nested = isinstance(x, private.NestedTensor)
    most = a.dim() if is_nested else a.dim() - 1 - private.ragged_dim(a)
    if x.dim() > most or (is_nested and x.dim() < a.dim()):
        expected = (
            f"as many dimensions as {first}, {a.dim()},"
            if is_nested
            else f"at most {most} dimensions, as {first} has after its ragged one,"
        )
        raise RuntimeError(f"{op}: {name} must have {expected} got {x.dim()}; expand it")


def _values(x: Any) -> Any:
    return private.jagged_values(x) if isinstance(x, private.NestedTensor) else x
