"""Derivatives of the operators that return their result: their partial derivatives, as the table has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from . import contract, derivative, rows
from ._library import implement, namespace
from .fast_path import caller
from .formula import checked_formula
from .forward_mode import dual_of
from .operator import TABLE, Form
from .partials import Derivative, Kernel, Partial

_SIXTEEN_BITS = (torch.float16, torch.bfloat16)

# A number has no partial derivative, also where it comes as a tensor.
_INSTEAD = f"give it a partial derivative in {TABLE}"


def register(form: Form) -> None:
    """Register the derivative of a functional form; where nothing can require grad there is none."""
    promises = form.promises
    if form.of_row:
        rows.register_derivative(form)
        return
    if form.kind == "updating" and (promises.partials or promises.formula or promises.fused):
        raise ValueError(
            f"{form.name}: what it updates has no derivative, and compiled programs call its kernel; leave partials, "
            "formula and fused out of its row"
        )
    of_inputs = {x: _floats(form, form.own.get(x)) for x in form.inputs}
    if form.kind != "functional" or not any(of_inputs.values()):
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
    lacks_some = not form.inputs.keys() <= {*partials, *kernels}
    at_once = None
    if promises.one_pass or not (form.by or promises.partials or kernels.keys() <= partials.keys()):
        at_once = next((_at_once(form, one) for one in form.family.values() if one.has_all_gradients), None)
    Derivative(
        form.op,
        partials,
        kernels=kernels,
        short=_short(form),
        at_once=at_once,
        formula=promises.formula if compiled or lacks_some else None,
        compiled=compiled,
        times=times,
        aten=None if form.tensor_numbers else promises.aten,
        mixed=_mixed(form),
        broadcasts=form.broadcasts,
    ).register(
        in_forward_mode=_value_and_tangent(form),
        node=promises.node,
        instead=promises.instead or (None if form.tensor_numbers else _INSTEAD),
        form=form,
    )


def _constants(form: Form) -> dict[str, Callable[[], float]]:
    """Return the partial derivatives of the first order that are the same everywhere."""
    if form.by:
        return {}
    found = {by[0]: one.constant for by, one in form.family.items() if by and one.constant is not None}
    return {x: _always(1 if constant == 1 else constant) for x, constant in found.items()}


def _always(constant: float) -> Callable[[], float]:
    return lambda: constant


def _kernels(form: Form) -> dict[str, Partial]:
    """Return what the derivatives by each input read, and what computes them: operators of the form's family."""
    if form.by == ("",):
        return _of_value_and_tangent(form)
    if len(form.family) < 2:
        return {}
    order, of = len(form.by), form.family[()]
    arguments = [*form.kinds]
    if form.has_all_gradients:
        of_each = [_kernels(form.family[x,]) for x in form.by]
        parts = {x: [(i, one[x]) for i, one in enumerate(of_each) if x in one] for x in form.inputs}
        return {x: _sum_of(of_x, arguments) for x, of_x in parts.items() if of_x}
    # Those of a derivative are the operator's, the gradients, and from the second order on the places it is by.
    results = of.of_c
    n, first_by = len(of.kinds), len(of.kinds) + len(results)
    inputs, grads, by = arguments[:n], arguments[n:first_by], arguments[first_by:]
    kernels: dict[str, Partial] = {}
    for place, x in enumerate(inputs):
        if x not in form.inputs or x in form.own:
            continue
        if order == 0:
            if (x,) in form.family:
                kernels[x] = _times(form, form.family[x,], inputs, results)
        elif order == 1 and x not in form.reads:
            kernels[x] = Partial([], None)
        elif higher := form.family.get(("",) * (order + 1)):
            before = [inputs.index(form.by[0])] if order == 1 else []
            product = _times_product(higher, n, first_by, before, place)
            kernels[x] = Partial(arguments, _unless_zero(form, first_by, x, product))
        else:
            # torch.func differentiates no formula while an operator runs.
            in_forward_mode = _refuse(form, "take reverse mode, or give the operator")
            made = _by_formula(form, n, first_by, place), in_forward_mode
            kernels[x] = Partial(arguments, *(_unless_zero(form, first_by, x, kernel) for kernel in made))
    if order > 0:
        for x in grads:
            kernels[x] = _times(form, form, inputs, [0 if x == other else None for other in grads], by)
    return kernels


def _times(
    of: Form, derivative: Form, inputs: list[str], sources: Sequence[int | None], by: Sequence[str] = ()
) -> Partial:
    """Return what an operator of the family reads, and the function that multiplies gradients by its derivatives.

    Of the gradients of the results the operator is given those from the places in ``sources``, and zeros for None.
    Where it reads no tensor a gradient stands in for it: it has the dtype, and a shape that changes none.
    """
    read = [x for x in inputs if x in derivative.reads or of.kinds[x] != "Tensor"]
    places = [read.index(x) if x in read else -1 for x in inputs]
    call = caller(derivative)

    def times(gradients: Sequence[Tensor | None], *values: Any) -> Tensor:
        given = gradients[:1] if sources == [0] else _with_zeros(gradients, sources)
        values_of = *values, given[0]
        return call(*(values_of[place] for place in places), *given, *values[len(read) :])

    return Partial([*read, *by], times)


def _of_value_and_tangent(form: Form) -> dict[str, Partial]:
    """Return the same of an operator's result and its tangent: the sum of its derivatives times the tangents."""
    n, arguments = len(form.family[()].kinds), [*form.kinds]
    inputs = arguments[:n]
    parts: dict[str, list[tuple[int, Partial]]] = {x: [] for x in arguments}
    for x, tangent in zip((x for x in inputs if (x,) in form.family), arguments[n:], strict=True):
        by_x = form.family[x,]
        times = _times(form, by_x, inputs, [0])
        parts[x].append((0, times))
        parts[tangent].append((1, times))
        # Where it reads no tensor the tangent stands in for it.
        reads = [y if y in by_x.reads or form.kinds[y] != "Tensor" else tangent for y in inputs]
        for y, partial in _kernels(by_x).items():
            if y in inputs and partial.times:
                parts[y].append((1, Partial([*reads, tangent], partial.times, partial.in_forward_mode)))
    return {
        x: _sum_of(of_x, [y for y in arguments if any(y in partial.reads for _, partial in of_x)])
        for x, of_x in parts.items()
        if of_x
    }


def _sum_of(parts: Sequence[tuple[int, Partial]], reads: list[str]) -> Partial:
    """Return the sum of what partial derivatives make of the gradients of the results in these places."""

    def summed(kernel_of: Callable[[Partial], Kernel | None]) -> Kernel:
        def times(gradients: Sequence[Tensor | None], *read: Any) -> Tensor | None:
            values = dict(zip(reads, read, strict=True))
            # Results may be summed: what is computed has the shape of all that is read.
            shape = torch.broadcast_shapes(*(x.shape for x in (*gradients, *read) if isinstance(x, Tensor)))
            products: list[Any] = [
                kernel((gradient.expand(shape),), *(values[x] for x in partial.reads))
                for i, partial in parts
                if (kernel := kernel_of(partial)) and (gradient := gradients[i]) is not None
            ]
            there = [x for x in products if x is not None]
            return reduce(torch.add, there) if there else None

        return times

    return Partial(reads, summed(lambda one: one.times), summed(lambda one: one.in_forward_mode or one.times))


def _with_zeros(gradients: Sequence[Tensor | None], sources: Sequence[int | None]) -> list[Tensor]:
    given = [None if i is None else gradients[i] for i in sources]
    some: Any = next(x for x in gradients if x is not None)
    zeros = some.new_zeros(()).expand_as(some) if some.layout is torch.strided else torch.zeros_like(some)
    return [zeros if x is None else x for x in given]


def _short(form: Form) -> dict[tuple[str, ...], Callable[..., Any]]:
    """Return the fast path of each derivative, by the arguments that it is by; none unless all results have one."""
    if form.by or form.tensor_numbers or len(form.of_c) != len(form.of_results):
        return {}
    return {by: caller(one, otherwise=lambda *_: None) for by, one in form.family.items() if by and "" not in by}


def _at_once(form: Form, all_gradients: Form) -> tuple[Callable[..., Sequence[Tensor]], Sequence[str]]:
    call = caller(all_gradients)

    def at_once(gradients: Sequence[Tensor | None], *arguments: Any) -> Sequence[Tensor]:
        return call(*arguments, *(gradients[:1] if form.of_c == [0] else _with_zeros(gradients, form.of_c)))

    return at_once, all_gradients.by


def _value_and_tangent(form: Form) -> Callable[..., Tensor | None] | None:
    """Return what computes the operator's result and its tangent by one kernel, where there is one and it is faster."""
    promises, one = form.promises, None if form.by else form.family.get(("",))
    if one is None or promises.fused == "formula" or (promises.partials and not promises.one_pass):
        return None
    return dual_of(form, one, compiled=not promises.partials)


def _times_product(higher: Form, n: int, first_by: int, before: list[int], place: int) -> Kernel:
    """Return the kernel of one more order: it is by the input in ``place``, too."""
    call = caller(higher)

    def product(gradients: Sequence[Any], *read: Any) -> Tensor:
        (gradient,) = gradients
        inputs, grads, by = read[:n], read[n:first_by], (*before, *read[first_by:], place)
        if gradient.dtype in _SIXTEEN_BITS:  # for which those of higher orders are not compiled
            wide = (x.float() if isinstance(x, Tensor) and x.dtype == gradient.dtype else x for x in inputs)
            return call(*wide, *(gradient.float() * grad.float() for grad in grads), *by).to(gradient.dtype)
        return call(*inputs, *(gradient * grad for grad in grads), *by)

    return product


def _unless_zero(form: Form, first_by: int, x: str, kernel: Kernel) -> Kernel:
    """Return a kernel, which is by ``x`` too, that computes nothing where it is zero: as ``x * y`` by x twice is.

    A derivative by several arguments depends only on what each of the first derivatives by one of them reads.
    """
    inputs = [*form.kinds][: len(form.family[()].kinds)]
    is_read = [(y,) in form.family and x in form.family[y,].reads for y in inputs]

    def unless_zero(gradients: Sequence[Any], *read: Any) -> Tensor | None:
        return kernel(gradients, *read) if all(is_read[by] for by in read[first_by:]) else None

    return unless_zero


def _by_formula(form: Form, n: int, first_by: int, place: int) -> Kernel:
    """Return what takes the place of a kernel of one more order, where there is none: the operator's formula."""
    operator = form.family[()]
    if operator.promises.formula is None:
        return _refuse(form)
    compute, reads = checked_formula(operator.op, operator.promises.formula)
    unchecked = [None] * len(operator.of_results)
    places = [[*operator.kinds].index(x) for x in reads]

    def product(gradients: Sequence[Any], *read: Any) -> Tensor:
        (gradient,) = gradients
        grads = read[n:first_by]

        def of(*inputs: Any) -> Tensor:
            results = compute(unchecked, *(inputs[at] for at in places))
            return sum(grad * results[i] for grad, i in zip(grads, operator.of_c, strict=True))

        for by in (*read[first_by:], place):
            of = torch.func.grad(lambda *inputs, of=of: of(*inputs).sum(), by)
        return gradient * of(*(x.expand(gradient.shape) if isinstance(x, Tensor) else x for x in read[:n]))

    return product


def _refuse(form: Form, instead: str = "give the operator a formula, or") -> Kernel:
    name, order = form.family[()].name, len(form.by)

    def refuse(*_: Any) -> Tensor:
        raise RuntimeError(
            f"{name}: the functor gives derivatives up to order {order}, and one of order {order + 1} is asked "
            f"for: {instead} partial derivatives by hand in {TABLE}"
        )

    return refuse


def _floats(form: Form, own: torch.dtype | None) -> bool:
    """Return whether an operand has floating-point numbers. ``own`` is its dtype, or None if it is the shared one."""
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
