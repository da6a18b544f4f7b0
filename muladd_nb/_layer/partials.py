"""Compute gradients and tangents of an element-wise operator: products with its partial derivatives.

For y = f(a, b), reverse mode returns ``grad * df/da`` and ``grad * df/db``, and forward mode
``tangent_a * df/da + tangent_b * df/db``. Only arguments that the wanted partial derivatives read are saved.

A plan says how each gradient is computed. autograd.py finds the kernel of each partial derivative:

- One kernel computes several gradients in one pass, and sums those of tensors that were broadcast.
- One kernel for each gradient multiplies the gradient of the result by the partial derivative. If this is a constant,
  no kernel is needed.
- torch differentiates the formula: if there is no kernel, or if a compiled program contains the formula.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import eq
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import contract
from . import torch_private as private
from ._library import name
from .aten_node import node_of, order_of
from .fast_path import caller, direct_caller
from .formula import Formula, Like
from .operator import Form
from .recording import TENSOR, Cache, checked_arguments, picker

_DENSE = (torch.strided, torch.jagged)

# Up to this size, one kernel that writes all gradients is faster than passing on a multiple of the result's gradient.
_FEW = 1 << 18  # elements

# Multiplies gradients by a partial derivative. It takes the gradient of each result, or None, and the arguments that
# the partial derivative reads, by their names.
Times = Callable[[Sequence[Tensor | None], Mapping[str, Any]], Tensor | None]


class Partial(NamedTuple):
    """A partial derivative of an operator with respect to one tensor."""

    reads: Sequence[str]  # the arguments whose values ``times`` needs
    times: Times | None  # None if the derivative is zero
    for_tangents: Times | None = None  # None if ``times`` is for tangents, too
    constant: float | None = None  # its value, if that does not depend on the arguments

    @property
    def in_forward_mode(self) -> Times | None:
        """Return the function that multiplies a tangent, or None if the derivative is zero."""
        return self.for_tangents or self.times


def added(products: Iterable[Tensor | None]) -> Tensor | None:
    """Return the sum of the products that are not None, or None if there is none."""
    there = [x for x in products if x is not None]
    return reduce(torch.add, there) if there else None


# The shape and strides of a tensor that is not saved. A plain tuple is the fastest to make in a small call.
Layout = tuple[Sequence[int], Sequence[int]]


def gradients_at(sources: Sequence[int | None], gradients: Sequence[Any]) -> Sequence[Tensor]:
    """Return the gradients at these indices, and zeros in place of those that are missing."""
    if sources == [0]:
        return gradients[:1]
    given = [None if i is None else gradients[i] for i in sources]
    some = next(x for x in gradients if x is not None)
    zeros = zeros_of(some, some.shape)
    return [zeros if x is None else x for x in given]


def zeros_of(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return zeros that take no memory, unless ``like`` is jagged: then they have its shape."""
    if like.layout is torch.jagged:
        return torch.zeros_like(like)
    is_strided = like.layout is torch.strided
    zero = like.new_zeros(()) if is_strided else torch.zeros((), dtype=like.dtype, device=like.device)
    return zero.expand(shape)


def _layout(x: Tensor) -> Layout:
    return x.shape, x.stride() if x.layout is torch.strided else ()


class _Schedule(NamedTuple):
    """Which kernels compute the gradients of a plan: one pass computes several, and the others have one kernel each."""

    together: Sequence[str]
    others: Sequence[str]
    needs: Sequence[int]  # the last argument of the kernel for one pass; empty if there is no such pass
    fast_paths: Sequence[Callable[..., Any]] | None  # the pass first; None if one of the kernels has no fast path
    # Each picks from a tuple:
    to_together: Callable[[Any], Any]  # from all results of the pass
    to_gradients: Callable[[Any], Any]  # from None, the gradients of the pass and the others; one for each argument


@dataclasses.dataclass(frozen=True)
class _Plan:
    """Names what to save and what to compute. There is one for each set of arguments that require grad."""

    tensors: Sequence[str]  # saved by autograd
    numbers: Sequence[str]  # kept by the node, as are absent tensors, which are None, and the layouts
    layouts: Sequence[str]  # of tensors that are not saved
    by_kernel: Sequence[str]
    by_formula: Sequence[str]
    one_by_one: _Schedule
    in_one_pass: _Schedule  # those that are not a constant times the gradient of the result, if there are several
    all_in_one_pass: _Schedule  # for sums on the CPU, and for few elements
    leaves_some_out: bool  # whether in_one_pass leaves out a gradient that is passed on unchanged or times a constant
    # Each picks from a tuple:
    to_tensors: Callable[[Any], Any]  # from all arguments
    to_numbers: Callable[[Any], Any]  # from all arguments
    to_arguments: Callable[[Any], Any]  # from the gradients of the results, the saved tensors and the numbers


# A node stores this tuple. It has the plan, the numbers that the plan names, and the layouts by the names of their
# tensors. If the results are gradients, the last item says which are wanted, and the shape to which they are expanded.
Kept = tuple[_Plan, tuple[Any, ...], Mapping[str, Layout], tuple[Sequence[bool], Sequence[int]]]

_NOTHING: Mapping[Any, Any] = {}


class Derivative:
    """The derivative of a functional form: what its calls save, and which functions compute gradients and tangents.

    Parameters
    ----------
    form
        The form. Its formula is used in compiled programs if Inductor can fuse it, and for tensors without a kernel.
    partials
        The partial derivatives that kernels compute, keyed by tensor. They decide what is saved: only the arguments
        that the wanted gradients read.
    """

    def __init__(self, form: Form, partials: Mapping[str, Partial]) -> None:
        self.op, self.partials = form.op, partials
        self.of_c = form.of_c
        family = {} if form.role else form.family
        # The operator that computes several gradients in one pass. On the CPU it sums those of tensors that were
        # broadcast. Its last argument says which gradients the caller asks for: bit i stands for the i-th. It returns
        # the others too, without elements.
        several = next((one for one in family.values() if one.gradients_of), None)
        self.by_pass = several.gradients_of if several else ()
        self.one_pass: Any = several and caller(several)
        # The fast paths of these kernels, keyed by the tensors with respect to which they differentiate. Each takes all
        # arguments and the gradient of each result, so there is none if a result is never differentiated. It returns
        # gradients, or None if the fast path declines the call.
        self.in_c: Mapping[tuple[str, ...], Callable[..., Any]] = _NOTHING
        if not form.tensor_numbers and len(form.of_c) == len(form.of_results):
            self.in_c = {by: direct_caller(one, lambda *_: None) for by, one in family.items() if by and "" not in by}
        self.broadcasts = form.broadcasts
        # Set if the operator returns gradients. The gradient of a tensor that was broadcast is a sum.
        self.gradient_form = form if form.gradients_of else None
        self.arguments = checked_arguments(form.op)
        self.n = len(private.results(form.op))
        self.tensors = [x.name for x in private.arguments(form.op) if str(x.type) in TENSOR]
        self.has_optional = form.inputs != form.required
        lacks_some = not form.inputs.keys() <= partials.keys()
        function, self.fused = form.promises.formula, form.promises.fused
        self.is_compiled = function is not None and self.fused is not None  # whether programs may contain the formula
        self.formula: Any = None
        if function is not None and (self.is_compiled or lacks_some):
            self.formula = Formula(form.op, function)
        self.formula_reads: list[str] = self.formula.reads if self.formula else []
        # A number that is passed as a tensor has no gradient, though a formula may read it.
        numbers = form.numbers if form.tensor_numbers and not lacks_some else ()
        has_derivative = {*self.partials, *self.formula_reads}.difference(numbers)
        self.without = [x for x in self.tensors if x not in has_derivative]
        self.read_by_partials = {y for one in self.partials.values() for y in one.reads}
        self.places = {x: place for place, x in enumerate(self.arguments)}
        self.saved_order = self.tensors
        # ATen's node records some calls. Checkpointing matches saved tensors by their order, so the node made here
        # saves the same tensors in the same order.
        if form.promises.aten is not None and not form.tensor_numbers:
            reads = {x: [y for y in self.partials[x].reads if y in self.tensors] for x in self.tensors}
            saved = order_of(form.op, form.promises.aten, reads)
            form.aten_node = node_of(form.promises.aten)
            self.saved_order = saved + [x for x in self.tensors if x not in saved]
        self.plans = Cache(self.plan)

    def compiles_formula(self) -> bool:
        """Return whether a program is being compiled that differentiates the formula, even if kernels exist.

        If ``fused`` is ``"formula"``, Inductor replaces the operator itself by its formula. Otherwise only its
        gradients are compiled as the formula's, so that Inductor fuses them.
        """
        return self.is_compiled and (private.decomposes(self.op) if self.fused == "formula" else private.traces())

    def plan(self, in_formula: bool, needs: Sequence[bool], is_absent: Sequence[bool] = ()) -> _Plan:
        wanted = {x for x, need in zip(self.arguments, needs, strict=True) if need}
        absent = {x for x, is_none in zip(self.arguments, is_absent, strict=False) if is_none}
        by_formula = [
            x
            for x in self.formula_reads
            if x in wanted and x not in self.without and (in_formula or x not in self.partials)
        ]
        by_kernel = [x for x in self.arguments if x in wanted and x in self.partials and x not in by_formula]
        read = {y for x in by_kernel for y in self.partials[x].reads} | {*(self.formula_reads if by_formula else ())}
        varying = {x for x, one in self.partials.items() if one.times and one.constant is None}
        can_be = [x for x in by_kernel if x in self.by_pass and self.partials[x].times]
        together = [x for x in can_be if x in varying]
        unread = [x for x in self.tensors if x not in read and x not in absent]
        tensors = [x for x in self.saved_order if x in read and x not in absent]
        numbers = [x for x in self.arguments if x in read and x not in tensors]
        given = [*range(self.n), *tensors, *numbers]
        return _Plan(
            tensors,
            numbers,
            # The order of a sum depends on the shapes of all tensors.
            layouts=[x for x in unread if x in by_kernel or (together and self.broadcasts and x in self.partials)],
            by_kernel=by_kernel,
            by_formula=by_formula,
            one_by_one=self.schedule(by_kernel, []),
            in_one_pass=self.schedule(by_kernel, together if len(together) > 1 else []),
            all_in_one_pass=self.schedule(by_kernel, can_be if together else []),
            leaves_some_out=1 < len(together) < len(can_be),
            to_tensors=picker([self.arguments.index(x) for x in tensors]),
            to_numbers=picker([self.arguments.index(x) for x in numbers]),
            to_arguments=picker([given.index(x) if x in given else 0 for x in self.arguments]),
        )

    def schedule(self, by: Sequence[str], together: Sequence[str]) -> _Schedule:
        """Return the kernels that compute the gradients ``by``; one pass computes those of ``together``."""
        others = [x for x in by if x not in together]
        places = [self.by_pass.index(x) for x in together]
        calls: list[Any] = [self.in_c.get(self.by_pass)] * bool(together) + [self.fast_path(x) for x in others]
        order = [None, *together, *others]
        return _Schedule(
            together,
            others,
            [sum(1 << place for place in places)] if together else [],
            calls if all(calls) else None,
            to_together=picker(places),
            to_gradients=picker([0, *(order.index(x) if x in order else 0 for x in self.arguments)]),
        )

    def fast_path(self, x: str) -> Callable[..., Any] | None:
        """Return the fast path of one gradient, if there is one."""
        times, constant = self.partials[x].times, self.partials[x].constant
        if times is None or constant is None:
            return self.in_c.get((x,)) if times else None

        def product(*given: Any) -> Tensor | None:
            if private.transforms_active() or private.dispatch_modes():  # the functions in C decline such calls, too
                return None
            return times(given[-self.n :], _NOTHING)  # the gradients follow the arguments

        return product

    def save(
        self, needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]
    ) -> tuple[Sequence[Tensor], Kept]:
        # torch.func differentiates the formula, and does not support jagged tensors.
        in_formula = self.compiles_formula() and not any(map(_is_jagged, inputs))
        is_absent = tuple([x is None for x in inputs]) if self.has_optional else ()
        plan: _Plan = self.plans[in_formula, needs, is_absent]
        layouts = {x: _layout(inputs[self.places[x]]) for x in plan.layouts} if plan.layouts else _NOTHING
        of_results: Any = ((), ())
        if self.gradient_form:
            given, wanted = self.gradient_form.given(inputs).values(), self.gradient_form.wanted(inputs)
            shape = torch.broadcast_shapes(*(x.shape for x in given))
            of_results = [x in wanted for x in self.gradient_form.gradients_of], shape
        return plan.to_tensors(inputs), (plan, plan.to_numbers(inputs), layouts, of_results)

    def vjp_by_fast_path(
        self, tensors: tuple[Tensor, ...], kept: Kept, grads: tuple[Any, ...]
    ) -> tuple[Tensor | None, ...] | None:
        (plan, numbers, layouts, _), grad = kept, grads[0]
        if plan.by_formula or grad is None or grad.layout is not torch.strided:
            return None
        given = plan.to_arguments(grads + tensors + numbers)
        sums = self.broadcasts and self.has_sums(plan.by_kernel, given, layouts, grad)
        schedule = _choose_schedule(plan, grad, sums)
        if not schedule.fast_paths:
            return None
        if layouts:
            given = self.with_stand_ins(given, layouts, grad)
        made: Any = ()
        needs = schedule.needs
        for call in schedule.fast_paths:
            of_call = call(*given, *grads, *needs)
            if of_call is None:
                return None
            made += schedule.to_together(of_call) if needs else (of_call,)
            needs = ()  # the other kernels have no such argument
        if layouts or sums:
            gradients = dict(zip((*schedule.together, *schedule.others), made, strict=True))
            self.lay_out(gradients, layouts, given, sums=sums)
            made = gradients.values()
        in_order: tuple[Tensor | None, ...] = schedule.to_gradients((None, *made))
        return in_order

    def vjp(self, tensors: Sequence[Tensor], kept: Kept, *grads: Tensor | None) -> list[Tensor | None]:
        gradients: dict[str, Tensor] = {}
        if self.gradient_form:
            are_wanted, shape = kept[-1]
            pairs = zip(grads, are_wanted, strict=True)
            grads = tuple(grad.expand(shape) if grad is not None and wanted else None for grad, wanted in pairs)
        some = next((grad for grad in grads if grad is not None), None)
        if some is not None:
            plan, numbers, layouts, _ = kept
            values = _values(plan, tensors, numbers)
            given = [values.get(x, some) for x in self.arguments]
            sums = self.broadcasts and self.has_sums(plan.by_kernel, given, layouts, some)
            schedule = _choose_schedule(plan, some, sums)
            if schedule.together:
                arguments = self.with_stand_ins(given, layouts, some)
                made = self.one_pass(*arguments, *gradients_at(self.of_c, grads), *schedule.needs)
                by_pass = dict(zip(self.by_pass, made, strict=True))
                gradients = {x: by_pass[x] for x in schedule.together}
            for x in schedule.others:
                of_x = self.partials[x]
                read = {y: values[y] for y in of_x.reads if y in values}
                gradient = self.through(of_x.times, grads, read) if of_x.times else None
                if gradient is None:
                    # Zeros, as in ATen: torch.autograd.grad raises an error for an undefined gradient.
                    gradient = zeros_of(some, layouts[x][0] if x in layouts else values[x].shape)
                gradients[x] = gradient
            if not (private.transforms_active() or private.traces()):
                self.lay_out(gradients, layouts, given, sums=sums)
            if plan.by_formula:
                if any(map(_is_jagged, grads)):
                    raise RuntimeError(
                        f"{name(self.op)}: on jagged nested tensors the formula has no derivative; call the operator "
                        "on their values()"
                    )
                gradients |= self.formula.pull(values, plan.by_formula, grads)
        return [gradients.get(x) for x in self.arguments]

    def has_sums(self, by: Sequence[str], given: Sequence[Any], layouts: Mapping[str, Layout], grad: Tensor) -> bool:
        """Return whether the gradient of one of these tensors is a sum, because the tensor was broadcast."""
        shape = grad.shape
        is_shape = eq if type(grad) is Tensor else contract.is_shape  # of a traced tensor, a size may depend on data
        for x in by:  # noqa: SIM110 (a generator takes longer than this loop)
            if not is_shape(layouts[x][0] if x in layouts else given[self.places[x]].shape, shape):
                return True
        return False

    def with_stand_ins(self, given: Sequence[Any], layouts: Mapping[str, Layout], grad: Tensor) -> list[Any]:
        """Return the arguments of the kernel, with other tensors in place of those whose elements are not read.

        They have the same shape and, if there is such a tensor, the same strides.
        """
        arguments = [*given]
        for x, (shape, strides) in layouts.items():
            same = None
            for y in (grad, *given):
                if isinstance(y, Tensor) and y.shape == shape and y.dtype == grad.dtype:
                    same = y
                    if y.layout is torch.strided and y.stride() == strides:
                        break
            arguments[self.places[x]] = grad.new_empty(()).expand(shape) if same is None else same
        return arguments

    def lay_out(
        self, gradients: dict[str, Tensor], layouts: Mapping[str, Layout], given: Sequence[Any], *, sums: bool
    ) -> None:
        """Give some gradients the shapes and layouts of their tensors, which were broadcast or not saved."""
        for x in gradients if sums else layouts:  # a sum that the pass returns has the right shape, but is contiguous
            gradient = gradients.get(x)
            if gradient is None or gradient.layout is not torch.strided:
                continue
            like = given[self.places[x]]
            shape, strides = layouts[x] if x in layouts else (like.shape, like.stride())
            if gradient.shape != shape:
                gradient = gradient.sum_to_size(shape)
            # A gradient that was passed on from the result may be expanded, and stays as it is.
            if gradient.stride() != strides and any(gradient.stride()):
                gradient = _laid_out(gradient, strides)
            gradients[x] = gradient

    def through(self, times: Times, grads: Sequence[Tensor | None], values: Mapping[str, Any]) -> Tensor | None:
        """Call ``times``. A sparse gradient, which kernels do not take, becomes dense or is multiplied by torch."""
        if all(x is None or x.layout in _DENSE for x in grads):
            return times(grads, values)
        if self.n > 1:
            return times([x if x is None or x.layout in _DENSE else x.to_dense() for x in grads], values)
        x: Any = grads[0]
        factor = times([torch.ones(x.shape, dtype=x.dtype, device=x.device)], values)
        return None if factor is None else x * factor

    def jvp(self, tensors: Sequence[Tensor], kept: Kept, likes: Sequence[Like], *of_arguments: Tensor | None) -> Any:
        saved, numbers, _, (are_wanted, shape) = kept
        tangents = {x: t for x, t in zip(self.arguments, of_arguments, strict=True) if t is not None}
        plan: _Plan = self.plans[self.compiles_formula(), tuple(x in tangents for x in self.arguments)]
        values = _values(saved, tensors, numbers)
        # We pass everything that some derivative reads, so that a tangent requires grad in the same cases as ATen's.
        read = {x: value for x, value in values.items() if x in self.read_by_partials}
        if not self.gradient_form:
            are_wanted, shape = [True] * self.n, likes[0][0]
        products: list[list[Tensor | None]] = [[] for _ in range(self.n)]
        for x in plan.by_kernel:
            times = self.partials[x].in_forward_mode
            tangent = tangents[x].expand(shape) if self.broadcasts else tangents[x]
            for i, (_, dtype) in enumerate(likes):
                if times and are_wanted[i] and dtype.is_floating_point:
                    products[i].append(self.through(times, [tangent if i == j else None for j in range(self.n)], read))
        if plan.by_formula:
            pushed = self.formula.push(values, {x: tangents[x] for x in plan.by_formula}, likes)
            for of_result, tangent in zip(products, pushed, strict=True):
                of_result.append(tangent)
        some = next(iter(tangents.values()))
        # A tangent has the shape and the dtype of its result, from which those of the arguments may differ.
        typed = tuple(
            None
            if not dtype.is_floating_point
            else some.new_zeros(shape, dtype=dtype)
            if of_result is None
            else of_result.sum_to_size(shape).to(dtype)
            for of_result, (shape, dtype) in zip(map(added, products), likes, strict=True)
        )
        return typed if self.n > 1 else typed[0]


def _choose_schedule(plan: _Plan, grad: Tensor, sums: bool) -> _Schedule:
    if sums:
        return plan.all_in_one_pass if grad.is_cpu and grad.layout is torch.strided else plan.one_by_one
    if plan.leaves_some_out and grad.layout is torch.strided and grad.numel() <= _FEW:
        return plan.all_in_one_pass
    return plan.in_one_pass if grad.layout in _DENSE else plan.one_by_one


def _values(plan: _Plan, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> dict[str, Any]:
    """Return the saved arguments by their names."""
    return dict(zip((*plan.tensors, *plan.numbers), (*tensors, *numbers), strict=True))


def _is_jagged(x: Any) -> bool:
    return isinstance(x, Tensor) and x.layout is torch.jagged


def _laid_out(gradient: Tensor, strides: Sequence[int]) -> Tensor:
    """Return the gradient with its dimensions in the tensor's order in memory, if the tensor has no gaps."""
    if not contract.has_no_gaps(gradient.shape, strides):
        return gradient
    order = sorted(range(gradient.dim()), key=lambda d: -strides[d])
    moved = gradient.permute(order)
    return (
        gradient if moved.is_contiguous() else moved.contiguous().permute([order.index(d) for d in range(len(order))])
    )
