"""The derivative of an element-wise operator: gradients, and tangents, times its partial derivatives.

These come from kernels made of its functor, from functions written by hand, or from its formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import torch_private as private
from ._library import name
from .aten_node import order_of
from .formula import check_is, checked_formula, pull, push, reads_of
from .operator import Form
from .recording import TENSOR, Rule, checked_arguments, register

_DENSE = (torch.strided, torch.jagged)


# Multiplies gradients by a partial derivative: takes the gradient of each result, None where it has none, and then what
# is read. Returns None for zero.
Kernel = Callable[..., Tensor | None]


_FEW = 1 << 18  # elements: above it, partial derivatives by hand take less time than one pass of all (measured)


_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)


class Partial(NamedTuple):
    """A partial derivative that a kernel computes."""

    reads: Sequence[str]  # the arguments that ``times`` takes
    times: Kernel | None  # None where the derivative is zero
    in_forward_mode: Kernel | None = None  # for tangents, if not the same


class _Made(dict[Any, Any]):
    """What a function returns for the keys, each made once: not functools.cache, of which Dynamo warns."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __missing__(self, key: Any) -> Any:
        made = self[key] = self.make(key)
        return made


class _Term(NamedTuple):
    """A partial derivative of one result, written by hand."""

    argument: str  # that it is by
    reads: Sequence[str]
    factor: Callable[..., Any]  # takes the gradient or tangent that it is multiplied with, then what is read


class _Plan(NamedTuple):
    """What is saved and computed where some gradients are wanted."""

    needs: Mapping[str, bool]  # by argument
    tensors: Callable[..., tuple[Any, ...]]  # picks the tensors to save from the arguments, the results and None
    others: Callable[..., tuple[Any, ...]]  # picks what else is saved: numbers, the shapes or None, and this plan
    unread: Sequence[str]  # the arguments whose shapes say what is summed
    terms: Sequence[Sequence[_Term]]  # by hand, of each result
    by_kernel: Sequence[str]
    by_formula: Sequence[str]
    passed: Callable[..., tuple[Any, ...]]  # picks what kernels take from the gradients and what was saved
    short: Callable[..., Any] | None  # the fast path of a kernel
    gradients: Callable[..., tuple[Any, ...]]  # picks those of all arguments from what `short` returns and None
    if_sums: (
        bool | None
    )  # whether `short` is for what is summed or small (True), for the rest (False), or for all (None)


class Derivative:
    """The derivative of an element-wise operator: what is saved for it, and what computes it.

    Saved are the tensors that are read, in a fixed order with None for those that are not, then what else is read, the
    shapes of arguments that are not read but summed to, and the plan; for forward mode after it the results' shapes and
    dtypes.

    Parameters
    ----------
    op
        The overload of an operator that returns new tensors.
    partials
        The partial derivative of the result with respect to each input that has one. The parameters of such a
        function name the arguments it reads, or ``result``; only what the gradients asked for read is saved. It
        returns a number, or a tensor of the shape of what it reads and the gradient's dtype, made by differentiable
        operators. Of an operator with several results, a tuple of them, one for each result, or None where it does not
        depend on that input; they read ``result0``, ``result1`` and so on.
    kernels
        For inputs that are not among ``partials``.
    short
        By what is wanted: what returns the same gradients as ``kernels``, or ``at_once``, from all arguments and the
        gradient of each result, in one call from C; or None, where that cannot.
    at_once
        What returns the gradients by these tensors, each of the shape of its own, from the gradient of each result
        and all arguments. On the CPU it sums what was broadcast.
    formula
        The operator itself, made of differentiable operators. Its parameters name the arguments that it reads. It is
        differentiated for the tensors among them that are among neither.
    compiled
        Whether Inductor compiles the formula in place of the operator. It is differentiated there also where there are
        ``kernels``.
    times
        What multiplies a gradient, or a tangent, by a partial derivative, where both are dense tensors.
    aten
        The operator of ATen whose node records some calls of this one. Checkpointing pairs what two nodes save by its
        order, so the node made here has the same inputs, and saves the same tensors, in ATen's order.
    mixed
        Where its floating-point tensors, and the result, are not all of one dtype: the dtypes that are an argument's
        own. A partial derivative may then have any dtype, and each product is of the widest of what it is made of.
    broadcasts
        Whether its tensors need not have one shape. A gradient is summed to the shape of its tensor by torch.

    Raises
    ------
    TypeError, ValueError
        If the operator, or a partial derivative, is none that this can work with.

    Examples
    --------
    >>> Derivative(op, {"x": lambda x, limit: (1 + x.abs() / limit) ** -2}).register()
    >>> x = torch.tensor([1.0, -1.0])
    >>> torch.func.jvp(lambda x: op(x, limit=1.0), (x,), (torch.ones(2),))
    (tensor([ 0.5000, -0.5000]), tensor([0.2500, 0.2500]))
    """

    def __init__(
        self,
        op: Any,
        partials: Mapping[str, Any],
        *,
        kernels: Mapping[str, Partial] | None = None,
        short: Mapping[tuple[str, ...], Callable[..., Any]] | None = None,
        at_once: tuple[Callable[..., Sequence[Tensor]], Sequence[str]] | None = None,
        formula: Callable[..., Any] | None = None,
        compiled: bool = False,
        times: Callable[[Tensor, Tensor], Tensor] = torch.mul,
        aten: Callable[..., Tensor] | None = None,
        mixed: Mapping[str, torch.dtype] | None = None,
        broadcasts: bool = False,
    ) -> None:
        self.op, self.times, self.mixed, self.broadcasts = op, times, mixed or {}, broadcasts
        self.arguments = checked_arguments(op)
        self.n = n = len(private.results(op))
        tensors = [argument.name for argument in private.arguments(op) if str(argument.type) in TENSOR]
        for x in partials:
            if x not in tensors:
                raise ValueError(f"{name(op)}: no partial derivative for {x}; its tensors are {tensors}")
        self.results = ["result"] if n == 1 else [f"result{i}" for i in range(n)]
        names = [*self.arguments, *self.results]
        self.place = {x: place for place, x in enumerate(names)}

        # Where the derivative by each tensor comes from: by hand, of a kernel, of the formula, or nowhere.
        by_hand = {x: _of_each_result(op, x, n, functions) for x, functions in partials.items()}
        self.terms = [
            [
                _Term(
                    x,
                    reads_of(op, f"the partial derivative for {x}", functions[i], names),
                    _checked_factor(op, x, functions[i], any_dtype=mixed is not None),
                )
                for x, functions in by_hand.items()
                if functions[i] is not None
            ]
            for i in range(n)
        ]
        kernels = {x: kernel for x, kernel in (kernels or {}).items() if x not in partials}
        self.kernels = {x: kernel for x, kernel in kernels.items() if kernel.times is not None}
        self.compute: Any = None
        self.formula_reads: list[str] = []
        if formula is not None:
            self.compute, self.formula_reads = checked_formula(op, formula)
        # Where the formula is compiled, it takes the place of kernels.
        self.by_formula = {
            in_formula: [x for x in tensors if x not in others and x in self.formula_reads]
            for in_formula, others in ((False, {**by_hand, **kernels}), (True, by_hand))
        }

        # What each reads.
        reads: dict[str, Sequence[str]] = {x: [] for x in by_hand}
        for term in itertools.chain(*self.terms):
            reads[term.argument] = [*reads[term.argument], *term.reads]
        reads |= {x: kernel.reads for x, kernel in kernels.items()}
        reads |= dict.fromkeys(self.by_formula[False], self.formula_reads)
        self.reads = {False: reads, True: reads | dict.fromkeys(self.by_formula[True], self.formula_reads)}
        self.without = [x for x in tensors if x not in reads]

        # What is saved, and the order of the function's arguments.
        read = {y for some in self.reads.values() for of_one in some.values() for y in of_one}
        self.saved_tensors = [x for x in names if x in read and (x in tensors or x in self.results)]
        self.saved_others = [x for x in self.arguments if x in read and x not in tensors]
        self.order = self.arguments
        if aten is not None:
            of_tensors = {x: [y for y in self.reads[True].get(x, []) if y not in self.saved_others] for x in tensors}
            inputs, self.saved_tensors = order_of(op, aten, of_tensors)
            self.order = inputs + [x for x in self.arguments if x not in inputs]
        self.slot = {x: slot for slot, x in enumerate(self.saved_tensors + self.saved_others)}

        self.short = short or {}
        self.at_once: Any = at_once and at_once[0]
        self.at_once_by = at_once[1] if at_once else []
        self.may_sum = at_once is not None and broadcasts
        # A tangent may have another shape and dtype than a gradient: those of the results are saved.
        self.typed = mixed is not None or n > 1 or broadcasts
        self.compiled = compiled
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
            What to do instead of asking for a gradient that is not among ``partials``, for the error message.
        form
            That of the operator, whose calls then take the fast path where they can.
        """
        rule = Rule(
            self.save,
            self.vjp,
            self.jvp,
            save_for_jvp=self.save_for_jvp if self.typed else None,
            vjp_by_fast_path=self.vjp_by_fast_path if self.short else None,
            in_forward_mode=in_forward_mode,
            node=node,
            without=self.without,
            instead=instead,
            order=[self.place[x] for x in self.order],
        )
        register(self.op, rule, form)

    def plan(self, in_formula: bool, of_function: tuple[bool, ...]) -> _Plan:
        needs = dict(zip(("", *self.order), of_function, strict=True))
        reads = self.reads[in_formula]
        read = {y for x in reads if needs[x] for y in reads[x]}
        terms = [[term for term in of_result if needs[term.argument]] for of_result in self.terms]
        by_formula = [x for x in self.by_formula[in_formula] if needs[x]]
        by_kernel = [x for x in self.kernels if needs[x] and x not in by_formula]
        # In place of an argument that is not read, kernels are passed a gradient; or a tensor of the argument's shape,
        # where that says what is summed.
        unread = [x for x in self.at_once_by if self.may_sum and x not in read]
        grads, none = self.n, len(self.place)
        passed = {x: grads + self.slot[x] for x in (*self.saved_others, *read)}
        passed |= {x: grads + len(self.slot) + 2 + i for i, x in enumerate(unread)}
        # Not `is_number`, which only tells two overloads apart.
        of_kernels = [passed.get(x, 0) for x in self.arguments if x != "is_number"]
        of = [x for x in self.arguments if x in by_kernel or any(x == term.argument for some in terms for term in some)]
        all_at_once = self.at_once is not None and len(of) > 1
        fits = not by_formula and (all_at_once or (by_kernel and not any(terms)))
        return _Plan(
            needs,
            _picker([self.place[x] if x in read else none for x in self.saved_tensors]),
            _picker([*map(self.place.__getitem__, self.saved_others), none + 2 if unread else none, none + 1]),
            unread,
            terms,
            by_kernel,
            by_formula,
            _picker([*of_kernels, *range(grads)]),
            self.short.get(tuple(of)) if fits else None,
            _picker([of.index(x) if x in of else len(of) for x in ("", *self.order)]),
            None if not self.may_sum or (all_at_once and by_kernel) else all_at_once,
        )

    def plan_of(self, needs: tuple[bool, ...]) -> _Plan:
        made: _Plan = self.plans[self.compiled and private.decomposes(self.op)][needs]
        return made

    def save(self, needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, Any]:
        now = self.plan_of(needs)
        values = inputs + results + (None, now)
        if now.unread:
            values += ([values[self.place[x]].shape for x in now.unread],)
        return now.tensors(values), now.others(values)

    def save_for_jvp(
        self, needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]
    ) -> tuple[Any, Any]:
        tensors, others = self.save(needs, inputs, results)
        return tensors, (*others, [(y.shape, y.dtype) for y in results])

    def values_of(self, saved: tuple[Any, ...], reads: Iterable[str]) -> list[Any]:
        return [saved[self.slot[x]] for x in reads]

    def vjp_by_fast_path(self, saved: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Tensor | None, ...] | None:
        now = saved[-1]
        if now.short is None or grads[0] is None:
            return None
        values = self.passed_to_kernels(saved, grads)
        if now.if_sums is not None:
            is_small = now.if_sums and not private.traces() and grads[0].numel() <= _FEW
            if now.if_sums != (is_small or self.sums(now, grads[0], values)):
                return None
        made = now.short(*values)
        return None if made is None else now.gradients(made + (None,) if type(made) is tuple else (made, None))

    def vjp(self, saved: tuple[Any, ...], *grads: Tensor | None) -> list[Tensor | None]:
        gradients: dict[str, Tensor] = {}
        now: _Plan = saved[-1]
        if any(grad is not None for grad in grads):
            made = self.in_one_pass(saved, grads)
            if made is not None:
                of_all = zip(self.at_once_by, made, strict=True)
                gradients = {x: gradient for x, gradient in of_all if now.needs[x]}
            else:
                gradients = self.by_hand(saved, grads)
                for x in now.by_kernel:
                    gradient = self.through(self.kernels[x].times, grads, self.values_of(saved, self.kernels[x].reads))
                    if gradient is not None:
                        gradients[x] = gradient
            if now.by_formula:
                gradients.update(self.pulled(saved, grads))
        return [gradients.get(x) for x in self.arguments]

    def in_one_pass(self, saved: tuple[Any, ...], grads: tuple[Tensor | None, ...]) -> Sequence[Tensor] | None:
        """Return the gradients ``at_once``, or None where that is not faster, or cannot."""
        grad, *others = (grad for grad in grads if grad is not None)
        if self.at_once is None or any(x.layout not in _DENSE for x in (grad, *others)):
            return None
        values = self.passed_to_kernels(saved, (grad, *grads[1:]))
        count = len(saved[-1].by_kernel)
        if self.sums(saved[-1], grad, values):
            # One pass also sums. But in a compiled program partial derivatives by hand are fused with their neighbours.
            can_sum = grad.device.type == "cpu" and grad.layout is torch.strided
            fits = can_sum and (count > 0 if self.kernels else not private.traces())
        else:
            fits = count == len(self.kernels) > 1
        return self.at_once(grads, *values[: -self.n]) if fits else None

    def passed_to_kernels(self, saved: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return all arguments of the operator and the gradients, of which the first is not None."""
        values = grads + saved
        if shapes := saved[-2]:
            values += tuple(_like(grads[0], shape, values) for shape in shapes)
        picked: tuple[Any, ...] = saved[-1].passed(values)
        return picked

    def sums(self, now: _Plan, grad: Tensor, values: Sequence[Any]) -> bool:
        """Return whether a gradient that is wanted is summed, because its tensor was broadcast."""
        shape = grad.shape
        return self.may_sum and any(now.needs[x] and values[self.place[x]].shape != shape for x in self.at_once_by)

    def by_hand(self, saved: tuple[Any, ...], grads: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """Return the sums, over the results, of gradients times partial derivatives by hand."""
        gradients: dict[str, Tensor] = {}
        for grad, terms in zip(grads, saved[-1].terms, strict=True):
            if grad is None:
                continue
            for x, reads, factor_of in terms:
                wide = grad.to(torch.promote_types(grad.dtype, self.mixed[x])) if x in self.mixed else grad
                factor = factor_of(wide, *self.values_of(saved, reads))
                if grad.is_complex():
                    factor = factor.conj() if isinstance(factor, Tensor) else factor.conjugate()
                # A literal 1 needs no multiplication; a symbolic one stays in the graph.
                gradient = wide if type(factor) is int and factor == 1 else self.product(wide, factor)
                gradients[x] = gradients[x] + gradient if x in gradients else gradient
        return gradients

    def product(self, x: Tensor, factor: Any) -> Tensor:
        # ATen multiplies a sparse gradient, such as that of a sparse embedding, by a dense tensor, and tensors of two
        # dtypes; `times` need not.
        both = isinstance(factor, Tensor) and x.layout in _DENSE and x.dtype == factor.dtype
        return self.times(x, factor) if both and not (self.broadcasts and x.shape != factor.shape) else x * factor

    def through(self, kernel: Any, grads: Sequence[Tensor | None], values: Sequence[Any]) -> Tensor | None:
        """Return what a kernel makes of the gradient of each result, also of one that is sparse."""
        if all(x is None or x.layout in _DENSE for x in grads):
            return kernel(grads, *values)
        if self.n > 1:
            return kernel([x if x is None or x.layout in _DENSE else x.to_dense() for x in grads], *values)
        x: Any = grads[0]
        factor = kernel([torch.ones(x.shape, dtype=x.dtype, device=x.device)], *values)
        return None if factor is None else x * factor

    def pulled(self, saved: tuple[Any, ...], grads: Sequence[Tensor | None]) -> Iterable[tuple[str, Tensor]]:
        """Return the gradients that the formula gives."""
        if any(grad is not None and grad.layout is torch.jagged for grad in grads):  # torch.func knows none
            raise RuntimeError(
                f"{name(self.op)}: on jagged nested tensors the formula has no derivative; call the operator on their "
                "values(), or give it partial derivatives"
            )
        return pull(self.compute, self.given_to_formula(saved), saved[-1].by_formula, grads)

    def given_to_formula(self, saved: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self.formula_reads, self.values_of(saved, self.formula_reads), strict=True))

    def jvp(self, saved: tuple[Any, ...], *of_arguments: Tensor | None) -> Any:
        tangents: dict[str, Any] = {x: t for x, t in zip(self.arguments, of_arguments, strict=True) if t is not None}
        now = self.plan_of((False, *(x in tangents for x in self.order)))

        def expanded(x: str) -> Any:
            tangent = tangents[x]
            return (
                tangent.expand(torch.broadcast_shapes(tangent.shape, saved[-1][0][0])) if self.broadcasts else tangent
            )

        products: list[dict[str, Tensor]] = [{} for _ in range(self.n)]
        for of_result, terms in zip(products, now.terms, strict=True):
            for x, reads, factor_of in terms:
                tangent = expanded(x)
                of_result[x] = self.product(tangent, factor_of(tangent, *self.values_of(saved, reads)))
        for x in now.by_kernel:
            kernel = self.kernels[x]
            for i, of_result in enumerate(products):
                if not self.typed or saved[-1][i][1].is_floating_point:
                    alone = [expanded(x) if i == j else None for j in range(self.n)]
                    made = self.through(
                        kernel.in_forward_mode or kernel.times, alone, self.values_of(saved, kernel.reads)
                    )
                    if made is not None:
                        of_result[x] = made
        sums: list[Any] = [
            # In the order of the arguments.
            reduce(torch.add, [of_result[x] for x in self.arguments if x in of_result]) if of_result else None
            for of_result in products
        ]
        if now.by_formula:
            of_tensors = {x: tangents[x] for x in now.by_formula}
            of_results = push(self.compute, self.given_to_formula(saved), of_tensors, saved[-1] if self.typed else None)
            sums = [x if y is None else y if x is None else x + y for x, y in zip(sums, of_results, strict=True)]
        some = next(iter(tangents.values()))
        if not self.typed:
            return torch.zeros_like(some) if sums[0] is None else sums[0]
        typed_tangents = tuple(
            None
            if not dtype.is_floating_point
            else some.new_zeros(shape, dtype=dtype)
            if of_result is None
            else of_result.sum_to_size(shape).to(dtype)
            for of_result, (shape, dtype) in zip(sums, saved[-1], strict=True)
        )
        return typed_tangents if self.n > 1 else typed_tangents[0]


def _of_each_result(op: Any, argument: str, n: int, functions: Any) -> tuple[Any, ...]:
    """Return the partial derivative of each of n results, or None."""
    if n == 1:
        return (functions,)
    if not isinstance(functions, tuple) or len(functions) != n:
        raise ValueError(
            f"{name(op)}: the partial derivatives for {argument} must be a tuple of {n}, one for each result, or None, "
            f"got {functions!r}"
        )
    return functions


def _picker(places: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return what picks these places of a tuple, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    first = places[0] if places else 0
    return itemgetter(slice(first, first + len(places)))


def _like(grad: Tensor, shape: Sequence[int], values: Iterable[Any]) -> Tensor:
    """Return a tensor of a shape, and of the dtype of a gradient, whose elements nobody reads."""
    for x in values:
        if isinstance(x, Tensor) and x.shape == shape and x.dtype == grad.dtype:
            return x
    return grad.new_empty(()).expand(shape)


def _checked_factor(
    op: Any, argument: str, function: Callable[..., Any], *, any_dtype: bool = False
) -> Callable[..., Any]:
    """Return a function that takes a gradient or tangent, and then calls the author's and checks that the two fit.

    A factor that broadcasts would give a wrong gradient, and one of a narrower dtype an inexact one.
    """
    # A number of the schema that changes between calls is a float64 scalar here.
    has_scalars = "is_number" in private.argument_names(op)

    def is_number(x: Any) -> bool:
        return has_scalars and isinstance(x, Tensor) and x.dim() == 0 and x.dtype == torch.float64

    def checked(x: Tensor, *read: Any) -> Any:
        factor = function(*read)
        if isinstance(factor, _NUMBERS) or (
            isinstance(factor, Tensor) and factor.shape == x.shape and (any_dtype or factor.dtype == x.dtype)
        ):
            return factor
        # A factor has the shape of what it reads, which may be smaller where the operator broadcasts.
        shape = torch.broadcast_shapes(*(y.shape for y in read if isinstance(y, Tensor)))
        if not (is_number(factor) and any(map(is_number, read))):
            what = f"the partial derivative for {argument}, where it is no number,"
            check_is(op, what, function, (shape, x.dtype), factor)
        return factor

    return checked
