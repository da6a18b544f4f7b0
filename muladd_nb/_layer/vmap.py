"""Batching rules: they move the batch dimension to the front, and expand inputs without one, which copies nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import contract, rows
from . import torch_private as private
from ._library import implement
from .operator import Form, by_position, complete


def register(form: Form) -> None:
    """Register the batching rule of an operator."""
    call = by_position(form.op, form.op)
    operator = form.family.get((), form)
    instead = "" if form.kind == "updating" else ", or use the operator that returns its result"

    if form.of_row:
        implement_rule(form, rows.batching_rule(form, call), call)
        return

    def rule(info: Any, in_dims: tuple[int | None, ...], /, *args: Any, **numbers: Any) -> tuple[Any, Any]:
        contract.check_defined(form, args, {x: args[place] for x, place in form.writes.items()})
        for x, place in form.writes.items():
            if in_dims[place] is None:  # all samples would be written to the same place
                others = " or ".join(other for other in form.inputs if other != x)
                raise RuntimeError(
                    f"{form.name}: {x} must have a batch dimension under vmap where {others} has one, got {x} of shape "
                    f"{list(args[place].shape)} without; pass it through vmap too{instead}"
                )
        # Makes no view that is not needed: in inference mode torch makes no views of a tensor that is differentiated.
        moved = [x.movedim(dim, 0) if dim else x for x, dim in zip(args, in_dims, strict=True)]
        places = [form.inputs[x] for x in form.given(args)]
        dims = max(args[place].dim() - (in_dims[place] is not None) for place in places)
        for place in places:
            if in_dims[place] is None:
                x = args[place]
                # One copy for the whole batch, so that the kernel of its gradient sums over the batch.
                once = form.broadcasts and form.kind == "functional" and not form.gradients_of
                moved[place] = x.unsqueeze(0) if once else x.expand(info.batch_size, *x.shape)
            for _ in range(dims + 1 - moved[place].dim() if form.broadcasts else 0):
                moved[place] = moved[place].unsqueeze(1)  # dimensions are added after that of the batch
        result = call(*moved, **numbers)
        if form.gradients_of and form.broadcasts:
            pairs = zip(result, (form.inputs[x] for x in form.gradients_of), strict=True)
            result = tuple(y.reshape(info.batch_size, *_one(args[place], in_dims[place])) for y, place in pairs)
        if form.by == ("",) and all(in_dims[place] is None for place in operator.inputs.values()):
            # Only the tangents have a batch dimension, as in jacfwd. Then the value has none, either.
            return (by_position(operator.op, operator.op)(*args[: len(operator.kinds)]), result[1]), (None, 0)
        return result, (0,) * len(result) if isinstance(result, tuple) else None if result is None else 0

    implement_rule(form, rule, call)


def implement_rule(form: Form, rule: Callable[..., Any], call: Callable[..., Any]) -> None:
    """Register a batching rule. torch.library.register_vmap cannot, if an operator has a keyword-only tensor."""
    has_keyword = any(x.kwarg_only and "Tensor" in str(x.type) for x in private.arguments(form.op))
    refuse = private.VMAP_OF_OUT.refusal(form.name)
    if refuse and not has_keyword:
        torch.library.register_vmap(form.op.name(), private.skip_in_dynamo(rule))
        return
    kernel = refuse or private.vmap_kernel(form.name, private.skip_in_dynamo(rule), call)

    def by_place(*args: Any, **kwargs: Any) -> Any:
        return kernel(*complete(form.op, args, kwargs))

    implement(form.op, by_place if has_keyword else kernel, "FuncTorchBatched")


def _one(x: Tensor, dim: int | None) -> Sequence[int]:
    """Return the shape of one sample of a batch."""
    return x.shape if dim is None else [size for place, size in enumerate(x.shape) if place != dim % x.dim()]
