"""The derivative of an element-wise operator: gradients and tangents, times its partial derivatives.

Kernels made of the functor compute these products. Where there is no kernel, and in compiled programs that have the
formula in place of the operator, torch differentiates the formula.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from . import contract
from . import torch_private as private
from ._library import name
from .aten_node import order_of
from .formula import checked_formula, pull, push
from .operator import Form
from .recording import TENSOR, Rule, checked_arguments, register

_DENSE = (torch.strided, torch.jagged)

# Above this size it is faster to hand on a gradient whose factor is 1 than to write it beside the others.
_FEW = 1 << 18  # elements

# Multiplies gradients by a partial derivative. Takes the gradient of each result, None where it has none, and values by
# the names of arguments. An argument that the partial derivative does not read may be left out.
Times = Callable[[Sequence[Tensor | None], Mapping[str, Any]], Tensor | None]


class Partial(NamedTuple):
    """A partial derivative of an operator with respect to one tensor."""

    reads: Sequence[str]  # the arguments that ``times`` needs the values of
    times: Times | None  # None where the derivative is zero
    in_forward_mode: Times | None = None  # for tangents, if not the same
    constant: float | None = None  # its value, where that is the same everywhere


class OnePass(NamedTuple):
    """The kernel that computes all gradients in one pass. On the CPU it sums the gradients of broadcast tensors."""

    call: Callable[..., Sequence[Tensor]]  # takes the gradient of each result, then all arguments
    by: Sequence[str]


# What is known of a tensor that is not saved: its shape and strides. A plain tuple, because small calls make some.
Layout = tuple[Sequence[int], Sequence[int]]


def _layout(x: Tensor) -> Layout:
    return x.shape, x.stride() if x.layout is torch.strided else ()


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What is saved and computed where the gradients of some arguments are wanted."""

    tensors: Sequence[str]  # what is saved
    numbers: Sequence[str]
    layouts: Sequence[str]
    by_kernel: Sequence[str]
    by_formula: Sequence[str]
    # When the kernel for one pass computes the gradients: "for sums" is where one of them is summed to a smaller shape.
    one_pass: Literal["never", "for sums", "always"]
    hands_on: bool  # whether one of the gradients is that of the result, times a constant
    in_c: Callable[..., Any] | None  # the fast path of the one kernel that computes all that is wanted


class Saved(NamedTuple):
    """What a node keeps, by the names of arguments, beside the tensors that autograd keeps."""

    plan: _Plan
    tensors: Sequence[str]  # the names of those
    numbers: Mapping[str, Any]  # and absent tensors, which are None
    layouts: Mapping[str, Layout]  # of tensors that are not kept
    shape: Sequence[int]  # that the gradients of results are expanded to, where these are sums

    def values(self, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """Return what was kept."""
        values = dict(zip(self.tensors, tensors, strict=True))
        if self.numbers:
            values.update(self.numbers)
        return values

    def shape_of(self, x: str, values: Mapping[str, Any]) -> Any:
        """Return the shape of an argument that is a tensor."""
        return self.layouts[x][0] if x in self.layouts else values[x].shape


_NOTHING: Mapping[str, Any] = {}


class _Made(dict[Any, Any]):
    """What a function returns for the keys, each made once: not functools.cache, of which Dynamo warns."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __missing__(self, key: Any) -> Any:
        made = self[key] = self.make(key)
        return made


class Derivative:
    """The derivative of an element-wise operator: what is saved for it, and what computes it.

    Parameters
    ----------
    op
        The overload of an operator that returns new tensors.
    partials
        The partial derivatives that kernels compute, by the tensors that they are by. They also say what is saved: only
        what the wanted gradients read.
    one_pass
        The kernel that computes all gradients at once.
    in_c
        The fast paths of these kernels, by the tensors that they are by: functions that take all arguments and the
        gradient of each result, and return gradients, or None where the fast path does not take the call.
    formula
        The operator itself, made of differentiable operators. Its parameters name the arguments that it reads. It is
        differentiated for the tensors among them that have no kernel.
    compiles_formula
        Returns whether a program is being compiled now in which the formula is differentiated, also where there are
        kernels.
    without
        Arguments that the formula reads, and that have no gradient all the same: numbers that are tensors.
    aten
        The operator of ATen whose node records some calls of this one. Checkpointing pairs what two nodes save by its
        order, so the node made here has the same inputs, and saves the same tensors, in ATen's order.
    mixed
        Whether its floating-point tensors, and the result, have different dtypes.
    broadcasts
        Whether its tensors need not have one shape. A gradient is summed to the shape of its tensor by torch.
    sums
        Whether its results are sums, whose gradients are first expanded to the shape of all tensors.

    Raises
    ------
    TypeError, ValueError
        If this cannot work with the operator, or with the formula.

    Examples
    --------
    >>> Derivative(op, formula=lambda x, limit: x / (1 + x.abs() / limit)).register()
    >>> x = torch.tensor([1.0, -1.0])
    >>> torch.func.jvp(lambda x: op(x, limit=1.0), (x,), (torch.ones(2),))
    (tensor([ 0.5000, -0.5000]), tensor([0.2500, 0.2500]))
    """

    def __init__(
        self,
        op: Any,
        partials: Mapping[str, Partial] | None = None,
        *,
        one_pass: OnePass | None = None,
        in_c: Mapping[tuple[str, ...], Callable[..., Any]] | None = None,
        formula: Callable[..., Any] | None = None,
        compiles_formula: Callable[[], bool] | None = None,
        without: Collection[str] = (),
        aten: Callable[..., Tensor] | None = None,
        mixed: bool = False,
        broadcasts: bool = False,
        sums: bool = False,
    ) -> None:
        self.op, self.broadcasts, self.sums = op, broadcasts, sums
        self.arguments = checked_arguments(op)
        self.n = len(private.results(op))
        self.partials = partials or {}
        self.one_pass, self.in_c, self.compiles_formula = one_pass, in_c or {}, compiles_formula or (lambda: False)
        types = {argument.name: str(argument.type) for argument in private.arguments(op)}
        self.tensors = [x for x, type_ in types.items() if type_ in TENSOR]
        self.has_optional = any(types[x] != "Tensor" for x in self.tensors)
        # Not `is_number`, which only tells two overloads apart.
        self.of_kernel = [x for x in self.arguments if x != "is_number"]
        self.compute: Any = None
        self.formula_reads: list[str] = []
        if formula is not None:
            self.compute, self.formula_reads = checked_formula(op, formula)
        has_derivative = {*self.partials, *self.formula_reads}.difference(without)
        self.without = [x for x in self.tensors if x not in has_derivative]
        self.read_by_partials = {y for one in self.partials.values() for y in one.reads}
        self.order = self.arguments  # in which the function takes them
        self.saved_order = self.tensors
        if aten is not None:
            reads = {x: [y for y in self.partials[x].reads if y in self.tensors] for x in self.tensors}
            inputs, saved = order_of(op, aten, reads)
            self.order = inputs + [x for x in self.arguments if x not in inputs]
            self.saved_order = saved + [x for x in self.tensors if x not in saved]
        # A tangent may have another shape and dtype than a gradient: those of the results are saved.
        self.typed = mixed or self.n > 1 or broadcasts
        self.plans = {in_formula: _Made(partial(self.plan, in_formula)) for in_formula in (False, True)}

    def register(
        self,
        *,
        in_forward_mode: Callable[..., Tensor | None] | None = None,
        node: str | None = None,
        instead: str | None = None,
        form: Form | None = None,
    ) -> None:
        """Give it to the operator.

        Parameters
        ----------
        in_forward_mode
            What computes a dual result by one kernel: see ``forward_mode.py``.
        node
            What ``grad_fn`` is called, without ``Backward``; by default the name of the operator in camel case.
        instead
            What to do instead of asking for a gradient that there is none of, for the error message.
        form
            That of the operator, whose calls then take the fast path where they can.
        """
        rule = Rule(
            self.save,
            self.vjp,
            self.jvp,
            save_for_jvp=self.save_for_jvp,
            vjp_by_fast_path=self.vjp_by_fast_path if self.in_c else None,
            in_forward_mode=in_forward_mode,
            node=node,
            without=self.without,
            instead=instead,
            order=[self.arguments.index(x) for x in self.order],
        )
        register(self.op, rule, form)

    def plan(self, in_formula: bool, needs: tuple[bool, ...]) -> _Plan:
        wanted = {x for x, need in zip(self.order, needs, strict=True) if need}
        by_formula = [
            x
            for x in self.formula_reads
            if x in wanted and x not in self.without and (in_formula or x not in self.partials)
        ]
        by_kernel = [x for x in self.arguments if x in wanted and x in self.partials and x not in by_formula]
        read = {y for x in by_kernel for y in self.partials[x].reads} | {*(self.formula_reads if by_formula else ())}
        varying = {x for x, one in self.partials.items() if one.times and one.constant is None}
        one_pass: Literal["never", "for sums", "always"] = "never"
        if self.one_pass is not None and not varying.isdisjoint(by_kernel):
            all_vary = len(varying) > 1 and varying.issubset(by_kernel)
            one_pass = "always" if all_vary else "for sums" if self.broadcasts else "never"
        sums = one_pass != "never" and self.broadcasts
        return _Plan(
            tensors=[x for x in self.saved_order if x in read],
            numbers=[x for x in self.arguments if x in read and x not in self.tensors],
            layouts=[x for x in self.tensors if x not in read and (x in by_kernel or (sums and x in self.partials))],
            by_kernel=by_kernel,
            by_formula=by_formula,
            one_pass=one_pass,
            hands_on=any(self.partials[x].constant is not None for x in by_kernel),
            in_c=None if by_formula or varying.isdisjoint(by_kernel) else self.in_c.get(tuple(by_kernel)),
        )

    def save(
        self, needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]
    ) -> tuple[Sequence[Tensor], Saved]:
        # torch.func, which differentiates a formula, knows no jagged tensors.
        in_formula = self.compiles_formula() and not any(map(_is_jagged, inputs))
        plan: _Plan = self.plans[in_formula][needs]
        given = dict(zip(self.arguments, inputs, strict=True))
        tensors, numbers = plan.tensors, plan.numbers
        if self.has_optional:
            tensors = [x for x in plan.tensors if given[x] is not None]
            numbers = [*plan.numbers, *(x for x in plan.tensors if given[x] is None)]
        saved = Saved(
            plan,
            tensors,
            {x: given[x] for x in numbers} if numbers else _NOTHING,
            {x: _layout(given[x]) for x in plan.layouts if given[x] is not None} if plan.layouts else _NOTHING,
            torch.broadcast_shapes(*(given[x].shape for x in self.tensors)) if self.sums else (),
        )
        return [given[x] for x in tensors], saved

    def save_for_jvp(
        self, needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]
    ) -> tuple[Sequence[Tensor], Any]:
        tensors, saved = self.save(needs, inputs, results)
        return tensors, (saved, [(y.shape, y.dtype) for y in results])

    def vjp_by_fast_path(
        self, tensors: Sequence[Tensor], saved: Saved, grads: tuple[Any, ...]
    ) -> tuple[Tensor | None, ...] | None:
        plan, grad = saved.plan, grads[0]
        if plan.in_c is None or grad is None:
            return None
        values = saved.values(tensors)
        sums = self.broadcasts and self.has_sums(saved, values, grad)
        if plan.one_pass != "never" and self.is_one_pass(plan, grad, sums=sums) != (len(plan.by_kernel) > 1):
            return None
        made = plan.in_c(*self.given_to_kernel(saved, values, grad), *grads)
        if made is None:
            return None
        gradients = dict(zip(plan.by_kernel, made if type(made) is tuple else (made,), strict=True))
        if sums or saved.layouts:
            self.lay_out(saved, values, gradients, gradients if sums else saved.layouts)
        return (None, *map(gradients.get, self.order))

    def vjp(self, tensors: Sequence[Tensor], saved: Saved, *grads: Tensor | None) -> list[Tensor | None]:
        gradients: dict[str, Tensor] = {}
        some = next((grad for grad in grads if grad is not None), None)
        if some is not None:
            plan, values = saved.plan, saved.values(tensors)
            if self.sums:
                grads = tuple(grad if grad is None else grad.expand(saved.shape) for grad in grads)
            sums = self.broadcasts and self.has_sums(saved, values, some)
            if plan.one_pass != "never" and self.is_one_pass(plan, some, sums=sums):
                one_pass: Any = self.one_pass
                made = one_pass.call(grads, *self.given_to_kernel(saved, values, some))
                of_all = dict(zip(one_pass.by, made, strict=True))
                gradients = {x: of_all[x] for x in plan.by_kernel}
            else:
                for x in plan.by_kernel:
                    of_x = self.partials[x]
                    read = {y: values[y] for y in of_x.reads if y in values}
                    gradient = self.through(of_x.times, grads, read) if of_x.times else None
                    # Zeros, as ATen has, and not an undefined gradient, which is an error to who asks for it.
                    gradients[x] = _zeros(some, saved.shape_of(x, values)) if gradient is None else gradient
            self.lay_out(saved, values, gradients, gradients if sums else saved.layouts)
            if plan.by_formula:
                gradients.update(self.pulled(plan, values, grads))
        return [gradients.get(x) for x in self.arguments]

    def has_sums(self, saved: Saved, values: Mapping[str, Any], grad: Tensor) -> bool:
        """Return whether a gradient that is wanted is summed, because its tensor was broadcast."""
        shape = grad.shape
        for x in saved.plan.by_kernel:  # noqa: SIM110 (a generator takes longer than this loop)
            if saved.shape_of(x, values) != shape:
                return True
        return False

    def is_one_pass(self, plan: _Plan, grad: Tensor, *, sums: bool) -> bool:
        """Return whether one kernel is to compute all gradients: it is faster, and can."""
        if sums:
            return grad.device.type == "cpu" and grad.layout is torch.strided
        return plan.one_pass == "always" and not (plan.hands_on and grad.numel() > _FEW) and grad.layout in _DENSE

    def given_to_kernel(self, saved: Saved, values: Mapping[str, Any], grad: Tensor) -> list[Any]:
        """Return all arguments of the operator, with other tensors in place of those whose elements are not read."""
        return [
            values[x] if x in values else _stand_in(grad, saved.layouts[x], values) if x in saved.layouts else grad
            for x in self.of_kernel
        ]

    def lay_out(
        self, saved: Saved, values: Mapping[str, Any], gradients: dict[str, Tensor], some: Iterable[str]
    ) -> None:
        """Give some of the gradients, of tensors that are broadcast or not read, the shapes and layouts of these."""
        if private.transforms_active() or private.traces():
            return
        for x in [x for x in some if x in gradients and gradients[x].layout is torch.strided]:
            shape, strides = saved.layouts[x] if x in saved.layouts else _layout(values[x])
            summed = gradients[x] if gradients[x].shape == shape else gradients[x].sum_to_size(shape)
            # One that is that of the result, which may be expanded, is handed on as it is.
            gradients[x] = _laid_out(summed, strides) if any(summed.stride()) else summed

    def through(self, times: Times, grads: Sequence[Tensor | None], values: Mapping[str, Any]) -> Tensor | None:
        """Return what a kernel makes of the gradient of each result, also of one that is sparse."""
        if all(x is None or x.layout in _DENSE for x in grads):
            return times(grads, values)
        if self.n > 1:
            return times([x if x is None or x.layout in _DENSE else x.to_dense() for x in grads], values)
        x: Any = grads[0]
        factor = times([torch.ones(x.shape, dtype=x.dtype, device=x.device)], values)
        return None if factor is None else x * factor

    def pulled(
        self, plan: _Plan, values: Mapping[str, Any], grads: Sequence[Tensor | None]
    ) -> Iterable[tuple[str, Tensor]]:
        """Return the gradients that the formula gives."""
        if any(map(_is_jagged, grads)):
            raise RuntimeError(
                f"{name(self.op)}: on jagged nested tensors the formula has no derivative; call the operator on their "
                "values()"
            )
        return pull(self.compute, {x: values[x] for x in self.formula_reads}, plan.by_formula, grads)

    def jvp(self, tensors: Sequence[Tensor], saved_for_jvp: Any, *of_arguments: Tensor | None) -> Any:
        saved, likes = saved_for_jvp
        tangents = {x: t for x, t in zip(self.arguments, of_arguments, strict=True) if t is not None}
        plan: _Plan = self.plans[self.compiles_formula()][tuple(x in tangents for x in self.order)]
        values = saved.values(tensors)
        # All that any derivative reads, so that a tangent requires grad where one of these does, as ATen's.
        read = {x: value for x, value in values.items() if x in self.read_by_partials}
        shape = saved.shape or likes[0][0]
        products: list[list[Tensor]] = [[] for _ in range(self.n)]
        for x in plan.by_kernel:
            times = self.partials[x].in_forward_mode or self.partials[x].times
            tangent = tangents[x].expand(shape) if self.broadcasts else tangents[x]
            for i, (_, dtype) in enumerate(likes):
                if times and dtype.is_floating_point:
                    made = self.through(times, [tangent if i == j else None for j in range(self.n)], read)
                    if made is not None:
                        products[i].append(made)
        sums: list[Any] = [reduce(torch.add, of_result) if of_result else None for of_result in products]
        if plan.by_formula:
            given, by = {x: values[x] for x in self.formula_reads}, {x: tangents[x] for x in plan.by_formula}
            of_results = push(self.compute, given, by, likes if self.typed else None)
            sums = [x if y is None else y if x is None else x + y for x, y in zip(sums, of_results, strict=True)]
        some = next(iter(tangents.values()))
        if not self.typed:
            return torch.zeros_like(some) if sums[0] is None else sums[0]
        typed = tuple(
            None
            if not dtype.is_floating_point
            else some.new_zeros(shape, dtype=dtype)
            if of_result is None
            else of_result.sum_to_size(shape).to(dtype)
            for of_result, (shape, dtype) in zip(sums, likes, strict=True)
        )
        return typed if self.n > 1 else typed[0]


def _is_jagged(x: Any) -> bool:
    return isinstance(x, Tensor) and x.layout is torch.jagged


def _zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    if like.layout is torch.jagged:
        return torch.zeros_like(like)
    return torch.zeros((), dtype=like.dtype, device=like.device).expand(shape)


def _stand_in(grad: Tensor, layout: Layout, values: Mapping[str, Any]) -> Tensor:
    """Return a tensor in place of one whose elements are not read: with its layout, if one of these has that."""
    shape, strides = layout
    if grad.shape == shape and grad.layout is torch.strided and grad.stride() == strides:
        return grad
    same = [x for x in (*values.values(), grad) if isinstance(x, Tensor) and x.shape == shape and x.dtype == grad.dtype]
    alike = (x for x in same if x.layout is torch.strided and x.stride() == strides)
    return next(alike, same[0] if same else grad.new_empty(()).expand(shape))


def _laid_out(gradient: Tensor, strides: Sequence[int]) -> Tensor:
    """Return a gradient whose dimensions are in the same order in memory as those of its tensor, if that is dense."""
    if gradient.stride() == strides or not contract.has_no_gaps(gradient.shape, strides):
        return gradient
    order = sorted(range(gradient.dim()), key=lambda d: -strides[d])
    moved = gradient.permute(order)
    return (
        gradient if moved.is_contiguous() else moved.contiguous().permute([order.index(d) for d in range(len(order))])
    )
