"""Operators over rows: the dimensions that are reduced, and the shapes of the results.

``src/elementwise/rows/row.h`` says what such an operator is. Shapes are aligned at their last dimension: a tensor that
has one value for each row gets dimensions of one element where the others have those that are reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .operator import MOST_DIMS, Form, complete


def are_of_row(form: Form, args: Sequence[Any]) -> dict[str, bool]:
    """Return, for each tensor, whether it lacks the dimension that is reduced."""
    assert form.of_row
    kept = _keeps(form, args)  # if keepdim is true, tensors with the shape of a result keep that dimension, too
    return {
        name: of_row and not (kept and name.startswith(("grad__", "grad_tangent__", "reduced__")))
        for name, of_row in zip(form.inputs, form.of_row[1], strict=True)
    }


def _keeps(form: Form, args: Sequence[Any]) -> bool:
    return form.kinds.get("keepdim") == "bool" and complete(form.op, args, {})[form.integers["keepdim"]]


def count_reduced(form: Form, args: Sequence[Any]) -> int:
    """Return how many dimensions are one row."""
    return next((len(args[place]) for place in form.sizes.values()), 1)


def most_dims(form: Form, args: Sequence[Any]) -> int:
    of_row = are_of_row(form, args)
    return max(len(x.shape) for name, x in form.given(args).items() if not of_row[name])


def first_reduced(form: Form, args: Sequence[Any]) -> int:
    """Return which dimension is the first that is reduced, counted from the end: 1 is the last one."""
    for name, x in form.given(args).items():
        if len(x.shape) >= MOST_DIMS:
            must = f"{name} must have fewer than {MOST_DIMS} dimensions"
            raise RuntimeError(f"{form.name}: {must}, got {len(x.shape)}")
    dims = most_dims(form, args)
    if dims == 0:
        raise RuntimeError(f"{form.name}: {form.first} must have a dimension to reduce, got shape []")
    for name, place in form.sizes.items():
        _check_trailing_dimensions(form, args, name, args[place])
        return len(args[place])
    dim = complete(form.op, args, {})[form.integers["dim"]] if form.kinds.get("dim") == "int" else -1
    if not -dims <= dim < dims:
        raise IndexError(f"{form.name}: dim must be from {-dims} to {dims - 1}, got {dim}")
    return -dim if dim < 0 else dims - dim


def _check_trailing_dimensions(form: Form, args: Sequence[Any], sizes_name: str, sizes: Sequence[Any]) -> None:
    """Check that each tensor has the dimensions that are one row, or one element in their place."""
    if not sizes:
        raise RuntimeError(f"{form.name}: {sizes_name} must have a size, got []")
    of_row, given = are_of_row(form, args), form.given(args)

    def refusal(name: str) -> str:
        return f"{form.name}: {name} must end in {sizes_name}, {[*sizes]}, got shape {[*given[name].shape]}"

    found = False
    for name, x in given.items():
        if of_row[name]:
            continue
        trailing = [1] * (len(sizes) - len(x.shape)) + [*x.shape][-len(sizes) :]
        has_all = len(x.shape) >= len(sizes) and trailing == [*sizes]
        if not (has_all or all(size == 1 for size in trailing)):
            raise RuntimeError(refusal(name))
        found |= has_all
    if not found:
        raise RuntimeError(refusal(form.first))


def aligned(form: Form, args: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the shapes of the tensors as they are broadcast."""
    from_end, count, of_row = first_reduced(form, args), count_reduced(form, args), are_of_row(form, args)
    shapes = {}
    for name, x in form.given(args).items():
        shape = list(x.shape)
        at = len(shape) + count - from_end
        if of_row[name] and at >= 0:  # otherwise it has only dimensions after those that are reduced
            shape[at:at] = [1] * count
        shapes[name] = shape
    return shapes


def reduced(form: Form, args: Sequence[Any], shape: Sequence[Any]) -> range:
    """Return which dimensions of ``shape`` are reduced. The tensors are broadcast to that shape."""
    at = len(shape) - first_reduced(form, args)
    return range(at, at + count_reduced(form, args))


def result_shapes(form: Form, args: Sequence[Any], shape: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the shape of each result that is not a gradient, if the tensors are broadcast to ``shape``."""
    assert form.of_row
    dims = reduced(form, args, shape)
    reduced_shape = [*shape[: dims.start], *([1] * len(dims) if _keeps(form, args) else []), *shape[dims.stop :]]
    return [reduced_shape if is_of_row else shape for is_of_row in form.of_row[0]]
