"""Fake kernels: shape, strides, dtype and device of a result, for tracing and the meta device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import contract, lowering, rows, unsupported
from .operator import Form, complete


def register(form: Form) -> None:
    """Register the fake kernel of an operator: the contract's checks, and its result."""

    def fake(*args: Any, **kwargs: Any) -> Any:
        lowering.register_waiting()
        unsupported.check(form, args, kwargs)
        contract.check_numbers(form, args)
        targets = form.targets(args, kwargs)
        if form.of_row:  # the shape of a result depends on numbers
            args = complete(form.op, args, kwargs)
        shape = contract.check(form, args, targets)
        if form.kind == "functional":
            like = contract.like(form, args, shape)
            if like is None:
                like = args[form.inputs[form.first]].new_empty(shape)
            results = tuple(_empty_like(like, dtype) for dtype in form.result_dtypes(args))
            if form.of_row:
                shapes = rows.result_shapes(form, args, shape)
                of_each = zip(results, shapes, rows.are_like_tensors(form), strict=True)
                results = tuple(y if is_like else y.new_empty(own) for y, own, is_like in of_each)
            if form.has_all_gradients:
                shapes = [args[form.inputs[x]].shape for x in form.by]
                pairs = zip(results, shapes, strict=True)
                results = tuple(y if contract.is_shape(own, shape) else y.new_empty(own) for y, own in pairs)
            return results if len(results) > 1 else results[0]
        for x in targets.values():
            increment_version(x)  # what a write does where there is no memory
        return targets["out"] if form.kind == "out" else None

    torch.library.register_fake(form.op.name(), fake)


def _empty_like(a: Tensor, dtype: torch.dtype) -> Tensor:
    # The fake empty_like forgets the strides of dimensions of size one, and of tensors without elements; the real one
    # keeps all strides of a tensor without gaps. Symbolic ones are not compared: the program would be specialized.
    shape, strides = a.shape, a.stride()
    if all(type(x) is int for x in (*shape, *strides)) and contract.has_no_gaps(shape, strides):
        return torch.empty_strided(shape, strides, dtype=dtype, device=a.device)
    return torch.empty_like(a, dtype=dtype)
