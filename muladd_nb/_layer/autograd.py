"""Derivatives of the operators that return their result: their partial derivatives, as the table has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import contract, derivative
from ._library import implement, namespace
from .operator import FUNCTIONAL, TABLE, UPDATING, Form
from .short_way import before

_SIXTEEN_BITS = (torch.float16, torch.bfloat16)

# A number has no partial derivative, also where it comes as a tensor.
_INSTEAD = {FUNCTIONAL: f"give it a partial derivative in {TABLE}"}


def register(form: Form) -> None:
    """Register the derivative of a functional form; where nothing can require grad there is none."""
    promises = form.promises
    if form.kind & UPDATING and (promises.partials or promises.formula or promises.fused):
        raise ValueError(
            f"{form.name}: what it updates has no derivative, and compiled programs call its kernel; leave partials, "
            "formula and fused out of its row"
        )
    of_inputs = {x: _floats(form, form.own.get(x)) for x in form.inputs}
    if not form.kind & FUNCTIONAL or not any(of_inputs.values()):
        return
    _check(form, of_inputs)
    if not any(_floats(form, dtype) for dtype in form.of_results):
        implement(form.op, torch.library.fallthrough_kernel, "Autograd")
        return
    if not promises.differentiable:
        derivative.none(form.op)
        return
    times = promises.times
    if isinstance(times, str):
        times = getattr(getattr(torch.ops, namespace), times).default
    compiled = promises.fused == "formula"
    partials: Mapping[str, Any] = {**_constants(form), **promises.partials}
    kernels = _kernels(form)
    at_once = None
    if promises.one_pass or (not promises.partials and not kernels.keys() <= partials.keys()):
        at_once = next(((one.op, one.by) for one in form.family.values() if one.has_all_gradients), None)
    derivative.elementwise(
        form.op,
        partials,
        kernels=kernels,
        at_once=at_once,
        formula=promises.formula
        if compiled or {*form.inputs} - {*partials, *kernels}
        else None,  # what is said already
        compiled=compiled,
        times=times,
        node=promises.node,
        instead=promises.instead or _INSTEAD.get(form.kind),
        aten=promises.aten if form.kind == FUNCTIONAL else None,
        shortened=lambda kernel: before(kernel, form),
        mixed=_mixed(form),
        broadcasts=form.broadcasts,
    )


def _constants(form: Form) -> dict[str, Callable[[], float]]:
    """Return the partial derivatives of the first order that are the same everywhere."""
    if form.by:
        return {}
    found = {by[0]: one.constant for by, one in form.family.items() if one.constant is not None}
    return {x: _always(1 if constant == 1 else constant) for x, constant in found.items()}


def _always(constant: float) -> Callable[[], float]:
    return lambda: constant


def _kernels(form: Form) -> dict[str, tuple[list[str], Callable[..., Tensor] | None]]:
    """Return what the derivatives by each input read, and what computes them: operators of the form's family."""
    if not form.family:
        return {}
    order = len(form.by)
    arguments = [*form.kinds]
    # Those of a derivative are the operator's, the gradient, and from the second order on the places it is by.
    n = len(arguments) if order == 0 else len(arguments) - 1 - (order if order > 1 else 0)
    inputs, rest = arguments[:n], arguments[n:]
    kernels: dict[str, tuple[list[str], Callable[..., Tensor] | None]] = {}
    for place, x in enumerate(inputs):
        if x not in form.inputs or x in form.own:
            continue
        if order == 0:
            if (x,) in form.family:
                kernels[x] = _times(form, form.family[x,], inputs)
        elif order == 1 and x not in form.reads:
            kernels[x] = [], None
        elif higher := form.family.get(("",) * (order + 1)):
            before = [inputs.index(form.by[0])] if order == 1 else []
            kernels[x] = arguments, _times_product(higher.op, n, before, place)
        else:
            kernels[x] = arguments, _refuse(form)
    if order > 0:
        kernels[rest[0]] = _times(form, form, inputs, rest[1:])
    return kernels


def _times(
    of: Form, derivative: Form, inputs: list[str], by: Sequence[str] = ()
) -> tuple[list[str], Callable[..., Tensor]]:
    """Return what the partial derivative that an operator computes reads, and a gradient times it.

    Where it reads no tensor the gradient stands in for it: it has the dtype, and a shape that changes none.
    """
    read = [x for x in inputs if x in derivative.reads or of.kinds[x] != "Tensor"]
    places = [read.index(x) if x in read else -1 for x in inputs]

    def times(gradient: Tensor, *values: Any) -> Tensor:
        values_of = *values, gradient
        return derivative.op(*(values_of[place] for place in places), gradient, *values[len(read) :])

    return [*read, *by], times


def _times_product(op: Any, n: int, before: list[int], place: int) -> Callable[..., Tensor]:
    """Return the same of one more order: by the input in a place, too."""

    def product(gradient: Tensor, *read: Any) -> Tensor:
        inputs, grad, by = read[:n], read[n], (*before, *read[n + 1 :], place)
        if gradient.dtype in _SIXTEEN_BITS:  # for which those of higher orders are not compiled
            wide = (x.float() if isinstance(x, Tensor) and x.dtype == gradient.dtype else x for x in inputs)
            return op(*wide, gradient.float() * grad.float(), *by).to(gradient.dtype)
        return op(*inputs, gradient * grad, *by)

    return product


def _refuse(form: Form) -> Callable[..., Tensor]:
    name, order = form.name.removeprefix("_").removesuffix("_third"), len(form.by)

    def refuse(*_: Any) -> Tensor:
        raise RuntimeError(
            f"{name}: the functor gives derivatives up to order {order}, and one of order {order + 1} is asked "
            f"for: give the operator partial derivatives by hand in {TABLE}"
        )

    return refuse


def _floats(form: Form, own: torch.dtype | None) -> bool:
    """Return whether an operand is of floating-point numbers, of which a dtype of its own is known, or None."""
    return any(dtype.is_floating_point for dtype in (form.dtypes if own is None else [own]))


def _mixed(form: Form) -> dict[str, torch.dtype] | None:
    """Return the floating-point dtypes that tensors have of their own, or None if all of such a dtype share one."""
    own = [dtype for dtype in (*form.of_results, *form.own.values()) if dtype is not None and dtype.is_floating_point]
    return {x: dtype for x, dtype in form.own.items() if dtype.is_floating_point} if own else None


def _check(form: Form, of_inputs: dict[str, bool]) -> None:
    """Raise ``ValueError`` if something is promised of a derivative that there is not."""
    promises = form.promises
    for argument, functions in promises.partials.items():
        if not of_inputs.get(argument, True):
            raise ValueError(
                f"{form.name}: there is no derivative by {argument}, whose elements are "
                f"{contract.dtype_name(form.own[argument])}; leave it out of the partial derivatives"
            )
        given = functions if isinstance(functions, tuple) else [functions] * len(form.of_results)
        for dtype, function in zip(form.of_results, given, strict=False):
            if function is not None and not _floats(form, dtype):
                of_result = contract.dtype_name(dtype or form.dtypes[0])
                raise ValueError(
                    f"{form.name}: there is no derivative of a result of {of_result}; leave that by {argument} out"
                )
    if promises.aten is not None and (form.own or form.of_results != (None,) or form.inputs != form.required):
        raise ValueError(f"{form.name}: aten is for one result, and tensors that share its dtype and are always there")
