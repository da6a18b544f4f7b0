"""Operators over rows: which dimension is reduced, what shape that gives, and what follows for each subsystem.

``src/elementwise/rows/row.h`` says what such an operator is. Shapes are aligned at their last dimension: a tensor that
has one value for each row gets a dimension of one element where the others have the one that is reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from ._library import implement
from .operator import Form, complete


def are_of_row(form: Form, args: Sequence[Any]) -> dict[str, bool]:
    """Return of each tensor whether it is without the dimension that is reduced."""
    assert form.of_row
    kept = _keeps(form, args)  # and then the gradient of a result has it, too
    return {
        name: of_row and not (kept and name.startswith(("grad__", "grad_tangent__")))
        for name, of_row in zip(form.inputs, form.of_row[1], strict=True)
    }


def _keeps(form: Form, args: Sequence[Any]) -> bool:
    return form.kinds.get("keepdim") == "bool" and complete(form.op, args, {})[form.integers["keepdim"]]


def _from_end(form: Form, args: Sequence[Any]) -> int:
    """Return which dimension is reduced, counted from the end: 1 is the last one."""
    of_row = are_of_row(form, args)
    dims = max(len(x.shape) for name, x in form.given(args).items() if not of_row[name])
    if dims == 0:
        raise RuntimeError(f"{form.name}: {form.first} must have a dimension to reduce, got shape []")
    dim = complete(form.op, args, {})[form.integers["dim"]] if form.kinds.get("dim") == "int" else -1
    if not -dims <= dim < dims:
        raise RuntimeError(f"{form.name}: dim must be from {-dims} to {dims - 1}, got {dim}")
    return -dim if dim < 0 else dims - dim


def aligned(form: Form, args: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the shapes of the tensors as they are broadcast."""
    from_end, of_row = _from_end(form, args), are_of_row(form, args)
    shapes = {}
    for name, x in form.given(args).items():
        shape = list(x.shape)
        if of_row[name]:
            if len(shape) + 1 < from_end:
                raise RuntimeError(f"{form.name}: {name} must have one value for each row, got shape {shape}")
            shape.insert(len(shape) + 1 - from_end, 1)
        shapes[name] = shape
    return shapes


def reduced(form: Form, args: Sequence[Any], shape: Sequence[Any]) -> int:
    """Return which dimension of ``shape`` is reduced, to which the tensors are broadcast."""
    return len(shape) - _from_end(form, args)


def result_shapes(form: Form, args: Sequence[Any], shape: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the shape of each result, where the tensors are broadcast to ``shape``."""
    assert form.of_row
    if form.by in (("gradients",), ("second",)):
        given = _wanted(form, args)
        return [given[x].shape if x in given else [0] for x in form.reads]
    at = reduced(form, args, shape)
    keeps = _keeps(form, args)
    of_row = [*shape[:at], *([1] if keeps else []), *shape[at + 1 :]]
    return [of_row if is_of_row else shape for is_of_row in form.of_row[0]]


def _wanted(form: Form, args: Sequence[Any]) -> dict[str, Tensor]:
    """Return the tensors whose gradients a call asks for."""
    needs = args[form.integers["needs__"]] if "needs__" in form.kinds else -1
    given = form.given(args)
    return {x: given[x] for i, x in enumerate(form.reads) if x in given and needs >> i & 1}


def are_like_tensors(form: Form) -> list[bool]:
    """Return of each result whether it has the strides of the first tensor of its shape; others are contiguous."""
    assert form.of_row
    is_gradient = form.by in (("gradients",), ("second",))
    return [not is_gradient and not is_of_row for is_of_row in form.of_row[0]]


# ---- Derivatives: of kernels that are made of the functor (src/elementwise/rows/family.h).


def register_derivative(form: Form) -> None:
    """Register the derivative of an operator over rows that returns its results, or that it has none."""
    if form.kind != "functional":
        return
    if not any(dtype.is_floating_point for dtype in form.dtypes):
        implement(form.op, torch.library.fallthrough_kernel, "Autograd")
        return
    from . import derivative

    operator = form.family[()]
    if ("gradients",) not in form.family or ("tangent",) not in form.family or not operator.promises.differentiable:
        derivative.none(form.op)
        return
    by = form.by[0] if form.by else ""
    rules = {"": _of_operator, "gradients": _of_gradients, "tangent": _of_tangent, "second": _of_second}
    vjp, jvp = rules[by](operator)
    more = (None,) * form.tensor_numbers  # the gradient of `is_number`, which only tells two overloads apart
    derivative.derivative(
        form.op,
        save=lambda needs, inputs, results: inputs[: len(inputs) - len(more)],
        vjp=lambda *given: (*vjp(*given), *more),
        jvp=lambda saved, *tangents: jvp(saved, *tangents[: len(tangents) - len(more)]),
        node=operator.promises.node if not by else None,
    )


class _Family:
    """The operators that are made of one functor, and how their arguments go together."""

    def __init__(self, operator: Form) -> None:
        self.operator, self.family = operator, operator.family
        self.tensors = operator.family["gradients",].reads
        self.count = len(operator.kinds)
        self.places = [[*operator.kinds].index(x) for x in self.tensors]

    def gradients(self, args: Sequence[Any], grads: Sequence[Tensor], needs: Sequence[bool]) -> tuple[Tensor, ...]:
        wanted = sum(1 << i for i, place in enumerate(self.places) if needs[place])
        return _tuple(self.family["gradients",].op(*args, *grads, wanted))

    def tangent(self, args: Sequence[Any], tangents: Sequence[Any]) -> tuple[Tensor, ...]:
        return _tuple(self.family["tangent",].op(*args, *self._there(args, tangents)))

    def second(
        self, args: Sequence[Any], grads: Sequence[Tensor], tangents: Sequence[Any], grad_tangents: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        if ("second",) not in self.family:
            raise RuntimeError(
                f"{self.operator.name}: a derivative of the second order is asked for, and an operator over rows with "
                "as many tensors has none"
            )
        given = [zeros_of(grad) if x is None else x for grad, x in zip(grads, grad_tangents, strict=True)]
        return _tuple(self.family["second",].op(*args, *grads, *self._there(args, tangents), *given))

    def _there(self, args: Sequence[Any], tangents: Sequence[Any]) -> list[Tensor]:
        first = args[self.operator.inputs[self.operator.first]]
        pairs = zip(self.places, tangents, strict=True)
        return [first.new_zeros(()) if x is None or args[place] is None else x for place, x in pairs]

    def of_arguments(self, args: Sequence[Any], gradients: Sequence[Tensor]) -> list[Tensor | None]:
        """Return a gradient or None for each argument of the operator."""
        by_place = dict(zip(self.places, gradients, strict=True))
        return [by_place.get(place) if args[place] is not None else None for place in range(self.count)]

    def of_tensors(self, tangents: Sequence[Any]) -> list[Any]:
        return [tangents[place] for place in self.places]


def zeros_of(x: Tensor) -> Tensor:
    """Return zeros of a shape that take no memory."""
    return x.new_zeros(()).expand_as(x)


def _tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


_Rules = tuple[Callable[..., Any], Callable[..., Any]]


def _of_operator(operator: Form) -> _Rules:
    family, of_c = _Family(operator), operator.of_c

    def vjp(needs: Any, args: Sequence[Any], *grads: Tensor) -> Any:
        return tuple(family.of_arguments(args, family.gradients(args, [grads[i] for i in of_c], needs)))

    def jvp(args: Sequence[Any], *tangents: Any) -> Any:
        made = dict(zip(of_c, family.tangent(args, family.of_tensors(tangents)), strict=True))
        results = tuple(made.get(i) for i in range(len(operator.of_results)))
        return results if len(results) > 1 else results[0]

    return vjp, jvp


def _of_gradients(operator: Form) -> _Rules:
    family = _Family(operator)
    n = family.count

    def wanted(args: Sequence[Any], of_each: Sequence[Tensor]) -> list[Tensor | None]:
        return [x if args[-1] >> i & 1 else None for i, x in enumerate(of_each)]

    def vjp(needs: Any, args: Sequence[Any], *cotangents: Tensor) -> Any:
        grads, by = args[n:-1], wanted(args, cotangents)
        by_arguments = family.of_arguments(args, family.second(args[:n], grads, by, [None] * len(grads)))
        return *by_arguments, *family.tangent(args[:n], by), None

    def jvp(args: Sequence[Any], *tangents: Any) -> Any:
        made = family.second(args[:n], args[n:-1], family.of_tensors(tangents), tangents[n:-1])
        pairs = zip(wanted(args, made), made, strict=True)
        made = tuple(y.new_zeros(0) if x is None else x for x, y in pairs)
        return made if len(made) > 1 else made[0]

    return vjp, jvp


def _of_tangent(operator: Form) -> _Rules:
    family = _Family(operator)
    n = family.count

    def vjp(needs: Any, args: Sequence[Any], *grads: Tensor) -> Any:
        by_arguments = family.of_arguments(args, family.second(args[:n], grads, args[n:], [None] * len(grads)))
        return *by_arguments, *family.gradients(args[:n], grads, [True] * n)

    def jvp(args: Sequence[Any], *tangents: Any) -> NoReturn:
        raise RuntimeError(
            f"{operator.name}: a tangent of a tangent is asked for, and there is none of an operator over rows: take "
            "reverse mode for one of the two"
        )

    return vjp, jvp


def _of_second(operator: Form) -> _Rules:
    def refuse(*_: Any) -> NoReturn:
        raise RuntimeError(
            f"{operator.name}: the functor gives derivatives up to order 2, and one of order 3 is asked for"
        )

    return (lambda needs, saved, *grads: refuse()), (lambda saved, *tangents: refuse())


# ---- The other subsystems.


def batching_rule(form: Form, call: Callable[..., Any], written: Mapping[str, int]) -> Callable[..., Any]:
    """Return the rule of vmap: the batch is one more dimension at the front, of which each element has its rows."""
    are_gradients = form.by in (("gradients",), ("second",))

    def rule(info: Any, in_dims: tuple[int | None, ...], /, *args: Any, **numbers: Any) -> tuple[Any, Any]:
        args = complete(form.op, args, numbers)
        given, of_row = form.given(args), are_of_row(form, args)
        for x, place in written.items():
            if in_dims[place] is None:
                raise RuntimeError(
                    f"{form.name}: {x} must have a batch dimension under vmap where another argument has one, got {x} "
                    f"of shape {list(args[place].shape)} without; pass it through vmap too"
                )
        of = {name: in_dims[form.inputs[name]] for name in given}
        # At least two: the index of the only row of an element of the batch is 0, and not its place in the batch.
        dims = max(x.dim() - (of[name] is not None) for name, x in given.items() if not of_row[name])
        rank = max(dims, 2)
        moved = list(args)
        for name, x in given.items():
            dim, place = of[name], form.inputs[name]
            x = x.unsqueeze(0) if dim is None else x.movedim(dim, 0)
            for _ in range(rank + (not of_row[name]) - x.dim()):
                x = x.unsqueeze(1)
            if dim is None and are_gradients:
                x = x.expand(info.batch_size, *x.shape[1:])
            moved[place] = x
        if form.kinds.get("dim") == "int" and args[form.integers["dim"]] >= 0:
            moved[form.integers["dim"]] = args[form.integers["dim"]] - dims
        for x, place in written.items():
            if x not in form.inputs:  # out
                out = args[place].movedim(in_dims[place], 0)
                moved[place] = out.unsqueeze(1) if rank > dims else out
        result = call(*moved)
        if result is None:
            return None, None
        results = _tuple(result)
        if are_gradients:
            there = _wanted(form, args)
            shapes = [(info.batch_size, *_one(there[x].shape, of[x])) if x in there else (0,) for x in form.reads]
            results = tuple(y.reshape(shape) for y, shape in zip(results, shapes, strict=True))
            out_dims: Any = tuple(0 if x in there else None for x in form.reads)
        else:
            results = tuple(y.squeeze(1) if rank > dims else y for y in results)
            out_dims = (0,) * len(results)
        return (results, out_dims) if isinstance(result, tuple) else (results[0], out_dims[0])

    return rule


def _one(shape: Sequence[int], dim: int | None) -> list[int]:
    """Return the shape of one of a batch."""
    return [size for place, size in enumerate(shape) if dim is None or place != dim % len(shape)]


def refusal_of_jagged(form: Form) -> Callable[..., NoReturn] | None:
    """Return what refuses jagged tensors, of an operator over rows."""
    if not form.of_row:
        return None

    def refuse() -> NoReturn:
        raise RuntimeError(f"{form.name}: an operator over rows takes no nested tensor; call it on x.values()")

    return refuse
