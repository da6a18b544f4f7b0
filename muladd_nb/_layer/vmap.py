"""Batching rules: they move the batch dimension to the front.

Inputs without one get a dimension of size 1, or are expanded. Neither copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from . import contract, rows
from . import torch_private as private
from ._library import implement
from .operator import VALUE_AND_TANGENT, Form, as_tuple, complete


def register(form: Form) -> None:
    """Register the batching rule of an operator."""
    if form.of_row:
        implement_rule(form, _over_rows(form))
        return
    operator = form.family.get((), form)

    def rule(info: Any, in_dims: tuple[int | None, ...], /, *args: Any, **numbers: Any) -> tuple[Any, Any]:
        contract.check_defined(form, args, form.targets(args))
        _check_batched(form, in_dims, args)
        # Make only the views that are needed: in inference mode torch cannot view a tensor that is differentiated.
        moved = [x.movedim(dim, 0) if dim else x for x, dim in zip(args, in_dims, strict=True)]
        places = [form.inputs[x] for x in form.given(args)]
        dims = max(args[place].dim() - (in_dims[place] is not None) for place in places)
        for place in places:
            if in_dims[place] is None:
                x = args[place]
                # With a dimension of size 1, the kernel of the gradient sums over the batch.
                once = form.broadcasts and form.kind == "functional" and not form.gradients_of
                moved[place] = x.unsqueeze(0) if once else x.expand(info.batch_size, *x.shape)
            for _ in range(dims + 1 - moved[place].dim() if form.broadcasts else 0):
                moved[place] = moved[place].unsqueeze(1)  # new dimensions come after the batch dimension
        result = form.call(*moved, **numbers)
        if form.gradients_of:
            return _gradients(info, form, in_dims, args, result)
        if form.role == VALUE_AND_TANGENT and all(in_dims[place] is None for place in operator.inputs.values()):
            # Only the tangents have a batch dimension, as in jacfwd. Then the value has no batch dimension.
            return (operator.call(*args[: len(operator.kinds)]), result[1]), (None, 0)
        return result, (0,) * len(result) if isinstance(result, tuple) else None if result is None else 0

    implement_rule(form, rule)


def _over_rows(form: Form) -> Callable[..., Any]:
    """Return the batching rule of an operator over rows: the batch comes first, and each sample has its own rows."""

    def rule(info: Any, in_dims: tuple[int | None, ...], /, *args: Any, **numbers: Any) -> tuple[Any, Any]:
        args = complete(form.op, args, numbers)
        given, of_row = form.given(args), rows.are_of_row(form, args)
        _check_batched(form, in_dims, args)
        of = {name: in_dims[form.inputs[name]] for name in given}
        sample = list(args)
        for name, x in given.items():
            sample[form.inputs[name]] = SimpleNamespace(shape=_one(x.shape, of[name]))
        # This raises an error if a sample is refused outside of vmap.
        dims = max(map(len, rows.aligned(form, sample).values()))
        # A sample gets a dimension before its row, so that row.index() of a single row is 0, and not its index in the
        # batch.
        count = rows.count_reduced(form, args)
        rank = max(dims, count + 1)
        # A gradient has the shape of its tensor in each sample, and so has the gradient of a tangent. In the last case
        # only out is batched.
        expands = form.gradients_of or form.role == ("tangent",) or {*of.values()} == {None}
        moved = list(args)
        for name, x in given.items():
            dim, place = of[name], form.inputs[name]
            x = x.unsqueeze(0) if dim is None else x.movedim(dim, 0)
            for _ in range(rank + 1 - count * of_row[name] - x.dim()):
                x = x.unsqueeze(1)
            if dim is None and expands:
                x = x.expand(info.batch_size, *x.shape[1:])
            moved[place] = x
        if form.kinds.get("dim") == "int":
            moved[form.integers["dim"]] = -rows.first_reduced(form, sample)
        for x, place in form.writes.items():
            if x not in form.inputs:  # out
                out = args[place].movedim(in_dims[place], 0)
                moved[place] = out.unsqueeze(1) if rank > dims else out
        result = form.call(*moved)
        if result is None:
            return None, None
        results = as_tuple(result)
        if form.gradients_of:
            results, out_dims = _gradients(info, form, in_dims, args, results)
        else:
            results, out_dims = tuple(y.squeeze(1) if rank > dims else y for y in results), (0,) * len(results)
        return (results, out_dims) if isinstance(result, tuple) else (results[0], out_dims[0])

    return rule


def implement_rule(form: Form, rule: Callable[..., Any]) -> None:
    """Register a batching rule. torch.library.register_vmap cannot, if an operator has a keyword-only tensor."""
    of_keywords = [str(x.type) for x in private.arguments(form.op) if x.kwarg_only]
    refuse = private.VMAP_OF_OUT.refusal(form.name)
    if refuse and not any("Tensor" in x for x in of_keywords):
        torch.library.register_vmap(form.op.name(), private.skip_in_dynamo(rule))
        return
    kernel = refuse or private.vmap_kernel(form.name, private.skip_in_dynamo(rule), form.call)

    # An argument that is passed by name may be called `op`, as a parameter of torch's helper is.
    def by_place(*args: Any, **kwargs: Any) -> Any:
        return kernel(*complete(form.op, args, kwargs))

    implement(form.op, by_place if of_keywords else kernel, "FuncTorchBatched")


def _gradients(
    info: Any, form: Form, in_dims: Sequence[int | None], args: Sequence[Any], results: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    """Return the gradients, in the shapes of their tensors in each sample, and their batch dimensions."""
    shapes = {x: _one(tensor.shape, in_dims[form.inputs[x]]) for x, tensor in form.wanted(args).items()}
    pairs = [*zip(form.gradients_of, results, strict=True)]
    return (
        tuple(y.reshape(info.batch_size, *shapes[x]) if x in shapes else y for x, y in pairs),
        tuple(0 if x in shapes else None for x, _ in pairs),
    )


def _check_batched(form: Form, in_dims: Sequence[int | None], args: Sequence[Any]) -> None:
    for x, place in form.writes.items():
        if in_dims[place] is None:
            raise without_batch(form, x, args[place])


def without_batch(form: Form, written: str, x: Tensor) -> RuntimeError:
    """Return the error about a written tensor without a batch dimension: all samples would be written to one place."""
    instead = ", or use the operator that returns its result" * (form.kind in ("writing", "out"))
    return RuntimeError(
        f"{form.name}: {written} must have a batch dimension under vmap where another argument has one, got {written} "
        f"of shape {list(x.shape)} without; pass it through vmap too{instead}"
    )


def _one(shape: Sequence[int], dim: int | None) -> Sequence[int]:
    """Return the shape of one sample of a batch."""
    return shape if dim is None else [size for place, size in enumerate(shape) if place != dim % len(shape)]
