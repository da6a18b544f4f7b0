"""Derivatives of operators over rows, computed by kernels that are made from the functor.

``src/elementwise/rows/family.h`` says which kernels there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import derivative, recording
from . import torch_private as private
from ._library import implement, refusing
from .fast_path import direct_caller
from .operator import Form, as_tuple
from .recording import TENSOR, Cache, Rule, picker
from .rows import are_of_row, dims_of_rows


def register(form: Form) -> None:
    """Register the derivative of an operator over rows that returns its results, or register that it has none."""
    if form.kind != "functional":
        return
    if not any(dtype.is_floating_point for dtype in form.dtypes):
        implement(form.op, torch.library.fallthrough_kernel, "Autograd")
        return
    operator = form.family[()]
    by_hand = form.promises.derivative
    if by_hand is not None:
        derivative.derivative(form.op, **dict[str, Any](by_hand), node=form.promises.node)
        return
    if ("gradients",) not in form.family or ("tangent",) not in form.family or not operator.promises.differentiable:
        derivative.none(form.op)
        return
    by = form.by[0] if form.by else ""
    rules = {"gradients": _of_gradients, "tangent": _of_tangent, "second": _of_second}
    vjp, jvp = rules[by](operator) if by in rules else _of_forward(form)
    count = len(form.kinds)
    is_forward = by in ("", "recorded")
    read = _read_results(operator) if is_forward else ()
    # Autograd keeps the tensors, and the node keeps the other arguments.
    are_tensors = [str(argument.type) in TENSOR for argument in private.arguments(form.op)[:count]]
    tensors_at = [place for place, is_tensor in enumerate(are_tensors) if is_tensor] + [count + i for i in read]
    others_at = [place for place, is_tensor in enumerate(are_tensors) if not is_tensor]
    kept_at = tensors_at + others_at
    to_tensors, to_others = picker(tensors_at), picker(others_at)

    def save(needs: Sequence[bool], inputs: Sequence[Any], results: Sequence[Tensor]) -> tuple[Sequence[Tensor], Any]:
        given = (*inputs, *results)
        return to_tensors(given), (needs, to_others(given))

    def put_together(tensors: Sequence[Tensor], others: Sequence[Any]) -> list[Any]:
        given = (*tensors, *others)
        return [given[kept_at.index(place)] for place in sorted(kept_at)]

    def of_saved_vjp(tensors: Sequence[Tensor], kept: Any, *grads: Tensor) -> Any:
        needs, others = kept
        return vjp(needs, put_together(tensors, others), *grads)

    def of_saved_jvp(tensors: Sequence[Tensor], kept: Any, *tangents: Tensor | None) -> Any:
        return jvp(put_together(tensors, kept[1])[:count], *tangents)

    rule = Rule(
        save,
        of_saved_vjp,
        of_saved_jvp,
        vjp_by_fast_path=_by_fast_path(form, kept_at) if is_forward else None,
        without=[x for x, dtype in operator.own.items() if dtype.is_floating_point],
        constants=[i for i in range(len(form.of_results)) if i not in form.of_c] if is_forward else (),
        recorded=None if by else operator.family.get(("recorded",)),
        node=operator.promises.node if is_forward else None,
        materialize=True,
    )
    recording.register(form.op, rule, form)


def _by_fast_path(form: Form, kept_at: Sequence[int]) -> Callable[..., Any]:
    """Return the function that computes the gradients of a small call, or returns None.

    ``kept_at`` has, for each value that a node keeps, its index among the arguments and the results. In a small call
    each step takes noticeable time, so the function puts the arguments together in C.
    """
    family = _Family(form.family[()])
    compute = direct_caller(family.operator.family["gradients",], lambda *_: None)
    count, kept = family.count, len(kept_at)
    args, read = ([kept_at.index(x) for x in sorted(kept_at) if (x < count) is is_arg] for is_arg in (True, False))
    to_kernel = picker([*args, *(kept + i for i in form.of_c), *read])

    def wanted(*needs: bool) -> tuple[int, Callable[[Any], Any]]:
        """Return which gradients are asked for, and a function that picks them from None and all gradients."""
        order = [1 + family.places.index(place) if need else 0 for place, need in enumerate(needs)]
        return family.wanted(needs), picker([0, *order])

    all_wanted = Cache(wanted)

    def vjp_by_fast_path(tensors: Sequence[Tensor], kept: Any, grads: Sequence[Tensor]) -> Any:
        needs, others = kept
        bits, to_gradients = all_wanted[needs]
        made = compute(*to_kernel((*tensors, *others, *grads)), bits)
        return None if made is None else to_gradients((None, *as_tuple(made)))

    return vjp_by_fast_path


def _read_results(operator: Form) -> list[int]:
    """Return which results of a recorded call the kernel of the gradients reads."""
    first = {"softmax__": 0, "reduced__": len(operator.of_results)}  # the reductions follow the results
    names = [(x[: len("softmax__")], x) for x in operator.family["gradients",].kinds]
    return [first[kind] + int(x.removeprefix(kind)) for kind, x in names if kind in first]


class _Family:
    """The operators that are made from one functor, and the order of their arguments."""

    def __init__(self, operator: Form) -> None:
        self.operator, self.family = operator, operator.family
        self.tensors = operator.family["gradients",].reads
        self.count = len(operator.kinds)
        self.places = [[*operator.kinds].index(x) for x in self.tensors]
        self.compute_gradients = operator.family["gradients",].op

    def wanted(self, needs: Sequence[bool]) -> int:
        """Return which gradients are asked for, a bit for each, as the operator that computes them takes it."""
        return sum(1 << i for i, place in enumerate(self.places) if needs[place])

    def tangent(self, args: Sequence[Any], tangents: Sequence[Any]) -> tuple[Tensor, ...]:
        return as_tuple(self.family["tangent",].op(*args, *self._there(args, tangents)))

    def second(
        self, args: Sequence[Any], grads: Sequence[Tensor], tangents: Sequence[Any], grad_tangents: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        if ("second",) not in self.family:
            # 12 is kMaxOperands of operator.h.
            count = len(self.operator.inputs) + 2 * len(self.tensors) + 2 * len(self.operator.of_c)
            raise RuntimeError(
                f"{self.operator.name}: a derivative of the second order is asked for, and there is none: its kernel "
                f"would have {count} tensors, and over rows there may be at most 12"
            )
        given = [zeros_of(grad) if x is None else x for grad, x in zip(grads, grad_tangents, strict=True)]
        return as_tuple(self.family["second",].op(*args, *grads, *self._there(args, tangents), *given))

    def _there(self, args: Sequence[Any], tangents: Sequence[Any]) -> list[Tensor]:
        form = self.operator
        first, of_row = args[form.inputs[form.first]], are_of_row(form, args)

        def zeros(name: str) -> Tensor:
            # If `dim` is not the last dimension, a tensor with one value for each row needs the dimensions after it.
            made: Tensor = first.new_zeros((1,) * dims_of_rows(form, args) if of_row[name] else ())
            return made

        each = zip(self.tensors, self.places, tangents, strict=True)
        return [zeros(name) if x is None or args[place] is None else x for name, place, x in each]

    def of_arguments(self, args: Sequence[Any], gradients: Sequence[Tensor]) -> list[Tensor | None]:
        """Return a gradient or None for each argument of the operator."""
        of_each: list[Tensor | None] = [None] * self.count
        for place, gradient in zip(self.places, gradients, strict=True):
            if args[place] is not None:
                of_each[place] = gradient
        return of_each

    def of_tensors(self, tangents: Sequence[Any]) -> list[Any]:
        return [tangents[place] for place in self.places]


def zeros_of(x: Tensor) -> Tensor:
    """Return zeros of a shape that take no memory."""
    return x.new_zeros(()).expand_as(x)


_Rules = tuple[Callable[..., Any], Callable[..., Any]]


def _of_forward(form: Form) -> _Rules:
    family, of_c = _Family(form.family[()]), form.of_c

    def vjp(needs: Any, saved: Sequence[Any], *grads: Tensor) -> Any:
        args, read = saved[: family.count], saved[family.count :]
        if torch.is_grad_enabled():
            read = [y.detach() for y in read]  # gradients are differentiated with respect to the arguments only
        # An embedding of the result, for example, has a sparse gradient.
        given = [grads[i] if grads[i].layout is torch.strided else grads[i].to_dense() for i in of_c]
        made = family.compute_gradients(*args, *given, *read, family.wanted(needs))
        return family.of_arguments(args, as_tuple(made))

    def jvp(args: Sequence[Any], *tangents: Any) -> Any:
        made = dict(zip(of_c, family.tangent(args, family.of_tensors(tangents)), strict=True))
        results = tuple(made.get(i) for i in range(len(form.of_results)))
        return results if len(results) > 1 else results[0]

    return vjp, jvp


def _of_gradients(operator: Form) -> _Rules:
    family = _Family(operator)
    n, end = family.count, family.count + len(operator.of_c)  # the arguments from n to end are gradients

    def wanted(args: Sequence[Any], of_each: Sequence[Tensor]) -> list[Tensor | None]:
        return [x if args[-1] >> i & 1 else None for i, x in enumerate(of_each)]

    def vjp(needs: Any, args: Sequence[Any], *cotangents: Tensor) -> Any:
        grads, by = args[n:end], wanted(args, cotangents)
        by_arguments = family.of_arguments(args, family.second(args[:n], grads, by, [None] * len(grads)))
        return *by_arguments, *family.tangent(args[:n], by), *(None for _ in args[end:])

    def jvp(args: Sequence[Any], *tangents: Any) -> Any:
        made = family.second(args[:n], args[n:end], family.of_tensors(tangents), tangents[n:end])
        pairs = zip(wanted(args, made), made, strict=True)
        made = tuple(y.new_zeros(0) if x is None else x for x, y in pairs)
        return made if len(made) > 1 else made[0]

    return vjp, jvp


def _of_tangent(operator: Form) -> _Rules:
    family, read = _Family(operator), _read_results(operator)
    n, forward = family.count, operator.family.get(("recorded",), operator).op

    def vjp(needs: Any, args: Sequence[Any], *grads: Tensor) -> Any:
        by_arguments = family.of_arguments(args, family.second(args[:n], grads, args[n:], [None] * len(grads)))
        results = as_tuple(forward(*args[:n])) if read else ()
        made = family.compute_gradients(*args[:n], *grads, *(results[i] for i in read), family.wanted([True] * n))
        return *by_arguments, *as_tuple(made)

    return vjp, refusing(
        operator.name,
        "an operator over rows has no tangent of a tangent: take reverse mode for one of the two",
    )


def _of_second(operator: Form) -> _Rules:
    refuse = refusing(operator.name, "the functor gives derivatives up to order 2, and one of order 3 is asked for")
    return refuse, refuse
