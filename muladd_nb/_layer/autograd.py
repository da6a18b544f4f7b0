"""Find the kernels that compute an operator's gradients and tangents.

C++ makes them from its functor (derivatives.h); together they are the operator's family. partials.py runs them. Only
operators that return new tensors have a derivative.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import derivative, recording, row_derivatives
from ._library import implement, refusing
from .fast_path import caller
from .formula import Formula
from .forward_mode import dual_of, register_value_and_tangent
from .operator import SECOND, SIXTEEN_BITS, TABLE, THIRD, VALUE_AND_TANGENT, Form
from .partials import Derivative, Partial, Times, added, gradients_at

_WITH_FORMULA = f"add a formula to its entry in {TABLE}"
_INSTEAD = f"add `differentiable` to its entry in src/operators.h, or a formula to its entry in {TABLE}"


def register(form: Form) -> None:
    """Register the derivative of a functional form, if any of its tensors can require grad."""
    promises = form.promises
    if form.of_row and (promises.fused or promises.aten):
        raise ValueError(
            f"{form.name}: autograd and compiled programs call the kernels of an operator over rows; leave fused and "
            "aten out of its entry"
        )
    if form.kind == "updating" and (promises.formula or promises.derivative or promises.fused):
        raise ValueError(
            f"{form.name}: an operator that updates its arguments has no derivative, and compiled programs call its "
            "kernel; leave formula, derivative and fused out of its entry"
        )
    if form.kind != "functional" or not _have_floats(form, map(form.own.get, form.inputs)):
        return
    if promises.aten is not None and (form.own or form.of_results != (None,) or form.inputs != form.required):
        raise ValueError(f"{form.name}: aten is for one result, and tensors that share its dtype and are not optional")
    if not _have_floats(form, form.of_results):
        implement(form.op, torch.library.fallthrough_kernel, "Autograd")
        return
    if not promises.differentiable:
        derivative.none(form.op)
        return
    if promises.derivative is not None:
        derivative.derivative(form.op, **dict[str, Any](promises.derivative), node=promises.node)
        return
    if form.of_row:
        if promises.formula and ("gradients",) not in form.family:
            derivative.derivative(form.op, formula=promises.formula, node=promises.node)
            return
        row_derivatives.register(form)
        return
    value_and_tangent = form.family.get(VALUE_AND_TANGENT)
    if form is value_and_tangent:
        register_value_and_tangent(form, _partials(form.family[()]))
        return
    made = Derivative(form, _partials(form))
    dual = None
    if value_and_tangent and not form.role:
        dual = dual_of(form, value_and_tangent, compiled=not made.is_compiled)
    advice = _WITH_FORMULA if len(form.family) > 1 else _INSTEAD  # the tensor may have a dtype of its own
    instead = promises.instead or (None if form.tensor_numbers else advice)
    rule = recording.Rule(
        made.save,
        made.vjp,
        made.jvp,
        vjp_by_fast_path=made.vjp_by_fast_path if made.in_c else None,
        in_forward_mode=dual,
        node=promises.node,
        without=made.without,
        instead=instead,
    )
    recording.register(form.op, rule, form)


def _partials(form: Form) -> dict[str, Partial]:
    """Return the partial derivatives that operators of the family compute, with respect to each tensor."""
    if len(form.family) < 2:
        return {}
    if form.gradients_of:
        of_each = [_partials(form.family[x,]) for x in form.gradients_of]
        parts = {x: [(i, one[x]) for i, one in enumerate(of_each) if x in one] for x in form.inputs}
        return {x: _sum_of(of_x) for x, of_x in parts.items() if of_x}
    if not form.role:
        return {x: _first(form, form.family[x,]) for x in form.kinds if (x,) in form.family}
    return _OfDerivative(form).partials()


def _kept(of: Form, read: Collection[str]) -> list[str]:
    """Return the arguments to save: those in ``read``, and those that no other tensor can replace."""
    return [x for x, kind in of.kinds.items() if x in read or kind != "Tensor" or x in of.own]


def _reads(form: Form) -> set[str]:
    """Return the arguments of the operator whose elements a derivative reads.

    A second derivative with respect to x and y reads only what both first derivatives read. The operator for a higher
    order learns x and y when it is called, so this returns the union over all pairs.
    """
    if len(form.role) == 1:
        return {*form.reads}
    by_one = [one for one in form.family.values() if len(one.role) == 1 and one.role != VALUE_AND_TANGENT]
    first = {one.role[0]: {*one.reads} for one in by_one}
    return set().union(*(of_x & of_y for of_x in first.values() for y, of_y in first.items() if y in of_x))


def _first(form: Form, by_x: Form) -> Partial:
    """Return the first derivative that the operator ``by_x`` of the family computes."""
    times = _times(by_x, [*form.kinds], form.of_c)
    constant = by_x.constant
    if constant is None:
        return Partial(_kept(form, by_x.reads), times)
    if constant == 0:
        return Partial([], None)

    def passed_on(gradients: Sequence[Any], _: Any) -> Any:
        return gradients[0] if constant == 1 else gradients[0] * constant

    def product(tangents: Sequence[Any], _: Any) -> Any:  # never the tangent itself
        return tangents[0] * constant

    # The kernel's tangent requires grad in the same cases as ATen's. But the kernel needs every argument that no other
    # tensor can replace.
    return Partial([], passed_on, product if _kept(form, ()) else times, constant)


def _times(form: Form, inputs: Sequence[str], sources: Sequence[int | None], by: Sequence[str] = ()) -> Times:
    """Return a function that multiplies gradients by the derivative that ``form`` computes.

    It passes the gradients of the results at the indices ``sources``, and zeros where an index is None. For a tensor
    that was not saved, it passes a gradient: its elements are not read, and it has the right dtype and shape.
    """
    call = caller(form)

    def times(gradients: Sequence[Tensor | None], values: Mapping[str, Any]) -> Tensor:
        given = gradients_at(sources, gradients)
        made: Tensor = call(*(values.get(x, given[0]) for x in inputs), *given, *(values[x] for x in by))
        return made

    return times


def _sum_of(parts: Sequence[tuple[int, Partial]]) -> Partial:
    """Return the sum of partial derivatives, each of which multiplies the gradient of the result at its index."""

    def sum_of(each: Sequence[tuple[int, Times | None]]) -> Times:
        def summed(gradients: Sequence[Any], values: Mapping[str, Any]) -> Tensor | None:
            there = [(gradients[i], times) for i, times in each if times and gradients[i] is not None]
            return added(times((gradient,), values) for gradient, times in there)

        return summed

    reads = [*dict.fromkeys(x for _, one in parts for x in one.reads)]
    return Partial(reads, sum_of([(i, x.times) for i, x in parts]), sum_of([(i, x.in_forward_mode) for i, x in parts]))


class _OfDerivative:
    """The partial derivatives of a derivative: those with respect to the operator's arguments are of the next order.

    A derivative's arguments are those of the operator (``inputs``), then the gradients (``grads``), then, from the
    second order on, the indices of the inputs that it differentiates with respect to (``by``).
    """

    def __init__(self, form: Form) -> None:
        self.form, self.operator, self.order = form, form.family[()], len(form.role)
        self.inputs = [*self.operator.kinds]
        after = [*form.kinds][len(self.inputs) :]
        self.grads, self.by = after[: len(self.operator.of_c)], after[len(self.operator.of_c) :]
        # The index of the input of a first derivative. A higher derivative gets the indices in each call.
        self.before = [self.inputs.index(form.role[0])] if self.order == 1 else []

    def partials(self) -> dict[str, Partial]:
        partials = {}
        for place, x in enumerate(self.inputs):
            if x in self.form.inputs and x not in self.form.own:
                partials[x] = self.next(x, place)
            elif x in self.form.inputs and _is_by_formula(self.operator, x):
                why = f"in forward mode there is no higher derivative by {x}, which has a dtype of its own"
                refused = refusing(self.operator.name, f"{why}: take reverse mode")
                partials[x] = Partial([*self.form.kinds], self.by_formula(place), refused)
        for x in self.grads:
            sources = [0 if x == other else None for other in self.grads]
            times = _times(self.form, self.inputs, sources, self.by)
            partials[x] = Partial([*_kept(self.operator, _reads(self.form)), *self.by], times)
        return partials

    def next(self, x: str, place: int) -> Partial:
        """Return the partial derivative with respect to ``x``, the input at ``place``."""
        family = self.form.family
        # It is zero if one of the first derivatives does not read x: x * y differentiated twice by x is 0.
        reads_x = [(y,) in family and x in family[y,].reads for y in self.inputs]
        if not all(reads_x[at] for at in self.before):
            return Partial([], None)

        def unless_zero(times: Times) -> Times:
            return lambda grads, values: times(grads, values) if all(reads_x[values[y]] for y in self.by) else None

        if self.order < 3 and (higher := family.get(SECOND if self.order == 1 else THIRD)):
            read = _reads(self.form) & {*family[x,].reads} if self.order == 1 else _reads(self.form)
            kept = [*_kept(self.operator, read), *self.grads, *self.by]
            return Partial(kept, unless_zero(self.by_kernel(higher, place)))
        # torch.func cannot differentiate a formula while an operator runs.
        in_reverse_mode, in_forward_mode = self.by_formula(place), self.refuse("take reverse mode")
        return Partial([*self.form.kinds], unless_zero(in_reverse_mode), unless_zero(in_forward_mode))

    def by_kernel(self, higher: Form, place: int) -> Times:
        """Return a function that multiplies a gradient by the next derivative, which ``higher`` computes."""
        call = caller(higher)

        def product(gradients: Sequence[Any], values: Mapping[str, Any]) -> Tensor:
            (gradient,) = gradients
            dtype = gradient.dtype
            wide = torch.float32 if dtype in SIXTEEN_BITS else dtype  # higher orders are not compiled for 16-bit dtypes
            products = [gradient.to(wide) * values[grad].to(wide) for grad in self.grads]
            given = [values.get(y, products[0]) for y in self.inputs]
            given = [y.to(wide) if isinstance(y, Tensor) and y.dtype == dtype else y for y in given]
            return call(*given, *products, *self.before, *(values[y] for y in self.by), place).to(dtype)

        return product

    def by_formula(self, place: int) -> Times:
        """Return a function that differentiates the operator's formula, because no kernel has the next derivative."""
        operator, function = self.operator, self.operator.promises.formula
        if function is None:
            return self.refuse(f"give the operator a formula in {TABLE}")
        formula = Formula(operator.op, function)
        unchecked = [None] * len(operator.of_results)

        def product(gradients: Sequence[Any], values: Mapping[str, Any]) -> Tensor:
            (gradient,) = gradients

            def of(*given: Any) -> Tensor:
                results = formula.compute(unchecked, dict(zip(self.inputs, given, strict=True)))
                return sum(values[grad] * results[i] for grad, i in zip(self.grads, operator.of_c, strict=True))

            for at in (*self.before, *(values[y] for y in self.by), place):
                of = torch.func.grad(lambda *given, of=of: of(*given).sum(), at)
            given = [values[x] for x in self.inputs]
            return gradient * of(*(x.expand(gradient.shape) if isinstance(x, Tensor) else x for x in given))

        return product

    def refuse(self, cure: str) -> Times:
        orders = f"up to order {self.order}, and one of order {self.order + 1} is asked for"
        return refusing(self.operator.name, f"the functor gives derivatives {orders}: {cure}")


def _is_by_formula(operator: Form, x: str) -> bool:
    """Return whether the gradient of ``x`` is the formula's: kernels have none for a tensor with a dtype of its own."""
    formula, dtype = operator.promises.formula, operator.own.get(x)
    return formula is not None and bool(dtype and dtype.is_floating_point) and x in Formula(operator.op, formula).reads


def _have_floats(form: Form, own_dtypes: Iterable[torch.dtype | None]) -> bool:
    """Return whether one of these tensors has floating-point numbers. A dtype of None is the shared one."""
    dtypes = [dtype for own in own_dtypes for dtype in (form.dtypes if own is None else [own])]
    return any(dtype.is_floating_point for dtype in dtypes)
