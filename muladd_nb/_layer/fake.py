"""Fake kernels: they return a result's shape, strides, dtype and device, for tracing and the meta device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import contract, lowering, rows, unsupported
from .operator import Form, complete


def register(form: Form) -> None:
    """Register the fake kernel of an operator, which makes the checks of the contract and returns its result."""

    def results_of(*args: Any) -> Any:
        contract.check_numbers(form, args)
        targets = form.targets(args)
        shape = contract.check(form, args, targets)
        if form.kind == "functional":
            # The result has the strides of this tensor's `empty_like`.
            like = next((x for x in form.given(args).values() if contract.is_shape(x.shape, shape)), None)
            if like is None:
                like = args[form.inputs[form.first]].new_empty(shape)
            dtypes = form.result_dtypes(args)
            # Whether each result has the strides of `like`, or is contiguous.
            shapes, are_like = [shape] * len(dtypes), [True] * len(dtypes)
            if form.gradients_of:
                wanted = form.wanted(args)
                shapes = [wanted[x].shape if x in wanted else (0,) for x in form.gradients_of]
                pairs = zip(form.gradients_of, shapes, strict=True)
                are_like = [not form.of_row and x in wanted and contract.is_shape(own, shape) for x, own in pairs]
            elif form.of_row:
                shapes = rows.result_shapes(form, args, shape)
                are_like = [not (form.sizes or is_of_row) for is_of_row in form.of_row[0]]
            results = tuple(
                _empty_like(like, dtype) if is_like else like.new_empty(own, dtype=dtype)
                for dtype, own, is_like in zip(dtypes, shapes, are_like, strict=True)
            )
            return results if len(results) > 1 else results[0]
        return targets["out"] if form.kind == "out" else None

    implement_fake(form, results_of)


def implement_fake(form: Form, results_of: Callable[..., Any]) -> None:
    """Register a fake kernel. ``results_of`` takes all arguments of a call by position."""

    def fake(*args: Any, **kwargs: Any) -> Any:
        lowering.register_waiting()
        args = complete(form.op, args, kwargs)
        unsupported.check(form, args)
        results = results_of(*args)
        for x in form.targets(args).values():
            increment_version(x)  # as a real write does
        return results

    torch.library.register_fake(form.op.name(), fake)


def _empty_like(a: Tensor, dtype: torch.dtype) -> Tensor:
    # The real empty_like keeps all strides of a tensor without gaps. The fake one changes those of dimensions of size
    # one and of tensors without elements, so they are set here. Symbolic strides are not compared, which would
    # specialize the program.
    shape, strides = a.shape, a.stride()
    if all(type(x) is int for x in (*shape, *strides)) and contract.has_no_gaps(shape, strides):
        return torch.empty_strided(shape, strides, dtype=dtype, device=a.device)
    return torch.empty_like(a, dtype=dtype)
