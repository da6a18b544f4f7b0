"""The derivative of an element-wise operator: gradients, and tangents, times its partial derivatives.

Which come of kernels that are made of its functor, of functions by hand, or of its formula.
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
from .recording import TENSOR, Rule, checked_arguments, register

_DENSE = (torch.strided, torch.jagged)


# Returns gradients times a partial derivative: from that of each result, None where there is none, and what is read.
# None is zero.
Kernel = Callable[..., Tensor | None]


_FEW = 1 << 18  # elements: above it, partial derivatives by hand take less time than one pass of all (measured)


_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)


class Partial(NamedTuple):
    """The arguments that are read, and what returns a gradient, or a tangent, times the partial derivative.

    That takes a tuple of the gradient of each result, None where it has none, and those arguments; it is None where the
    partial derivative is zero. For a tangent another may take its place.
    """

    reads: Sequence[str]
    times: Kernel | None
    in_forward_mode: Kernel | None = None


class _Plan(NamedTuple):
    """What is saved and computed where some gradients are wanted."""

    needs: Mapping[int, bool]  # by the place of an argument
    tensors: Callable[..., tuple[Any, ...]]  # picks those to save of the arguments, the results, None, and so on
    others: Callable[..., tuple[Any, ...]]  # and what is no tensor; after it come the shapes, or None, and this
    unread: Sequence[int]  # the places of the arguments whose shapes say what is summed
    terms: Sequence[Any]  # by hand, of each result
    by_kernel: Sequence[Any]
    by_formula: Sequence[int]
    passed: Callable[..., tuple[Any, ...]]  # picks what kernels are passed of the gradients, what was saved, and more
    short: Callable[..., Any] | None  # the short way of a kernel
    gradients: Callable[..., tuple[Any, ...]]  # picks those of all arguments of what that returns, and None
    if_sums: bool | None  # whether that is for what is summed, or small, alone, or for what is not; None if for both


class _Made(dict[Any, Any]):
    """What a function returns for the keys, each made once: not functools.cache, of which Dynamo warns."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __missing__(self, key: Any) -> Any:
        made = self[key] = self.make(key)
        return made


def elementwise(
    op: Any,
    partials: Mapping[str, Any],
    *,
    kernels: Mapping[str, Partial] | None = None,
    short: Mapping[tuple[str, ...], Callable[..., Any]] | None = None,
    at_once: tuple[Callable[..., Sequence[Tensor]], Sequence[str]] | None = None,
    formula: Callable[..., Any] | None = None,
    compiled: bool = False,
    times: Callable[[Tensor, Tensor], Tensor] = torch.mul,
    node: str | None = None,
    instead: str | None = None,
    aten: Callable[..., Tensor] | None = None,
    shortened: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda kernel: kernel,
    mixed: Mapping[str, torch.dtype] | None = None,
    broadcasts: bool = False,
) -> None:
    """Give an element-wise operator its derivative.

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
    node
        What ``grad_fn`` is called, without ``Backward``; by default the name of the operator in camel case.
    instead
        What to do instead of asking for a gradient that is not among ``partials``, for the error message.
    aten
        The operator of ATen whose node records some calls of this one. Checkpointing pairs what two nodes save by its
        order, so the node made here has the same inputs, and saves the same tensors, in ATen's order.
    shortened
        Takes the kernel for Autograd, and returns the one to register: one that asks first whether it is needed.
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
    >>> elementwise(op, {"x": lambda x, limit: (1 + x.abs() / limit) ** -2})
    >>> x = torch.tensor([1.0, -1.0])
    >>> torch.func.jvp(lambda x: op(x, limit=1.0), (x,), (torch.ones(2),))
    (tensor([ 0.5000, -0.5000]), tensor([0.2500, 0.2500]))
    """
    arguments = checked_arguments(op)
    n = len(private.results(op))
    tensors = [argument.name for argument in private.arguments(op) if str(argument.type) in TENSOR]
    for argument in partials:
        if argument not in tensors:
            raise ValueError(f"{name(op)}: no partial derivative for {argument}; its tensors are {tensors}")
    # What the partial derivatives read, as places among the arguments, the results and None; tensors are saved first.
    results = ["result"] if n == 1 else [f"result{i}" for i in range(n)]
    places = {argument: place for place, argument in enumerate([*arguments, *results])}
    of_results = {argument: _of_each_result(op, argument, n, functions) for argument, functions in partials.items()}
    read_by = {
        function: reads_of(op, f"the partial derivative for {argument}", function, places)
        for argument, functions in of_results.items()
        for function in functions
        if function is not None
    }
    reads = {
        argument: list(dict.fromkeys(place for function in functions if function for place in read_by[function]))
        for argument, functions in of_results.items()
    }
    kernels = {argument: kernel for argument, kernel in (kernels or {}).items() if argument not in partials}
    reads |= {argument: [places[x] for x in kernel.reads] for argument, kernel in kernels.items()}
    compute: Any = None
    of_formula: list[int] = []
    if formula is not None:
        compute, of_formula = checked_formula(op, formula)
    # By the formula: what has no other derivative, and, where that is compiled, no partial derivative by hand.
    by_formula = {
        in_formula: [places[x] for x in tensors if x not in others and places[x] in of_formula]
        for in_formula, others in ((False, reads), (True, of_results))
    }
    reads |= {arguments[place]: of_formula for place in by_formula[False]}
    compiled_reads = reads | {arguments[place]: of_formula for place in by_formula[True]}
    read = sorted({place for some in (reads, compiled_reads) for of_one in some.values() for place in of_one})
    holds_tensor = [*(argument in tensors for argument in arguments), *[True] * n]
    saved_tensors = [place for place in read if holds_tensor[place]]
    order = list(range(len(arguments)))
    if aten is not None:
        tensors_read = {
            places[x]: [place for place in compiled_reads.get(x, []) if holds_tensor[place]] for x in tensors
        }
        inputs, saved_tensors = order_of(op, aten, tensors_read, arguments)
        order = inputs + [place for place in order if place not in inputs]
    saved_others = [place for place in read if not holds_tensor[place]]
    slots = {place: slot for slot, place in enumerate(saved_tensors + saved_others)}
    terms = [
        [
            (
                places[argument],
                _checked_factor(op, argument, functions[i], any_dtype=mixed is not None),
                _picker([slots[place] for place in read_by[functions[i]]]),
            )
            for argument, functions in of_results.items()
            if functions[i] is not None
        ]
        for i in range(n)
    ]
    by_kernel = [
        (
            places[argument],
            kernel.times,
            _picker([slots[place] for place in reads[argument]]),
            kernel.in_forward_mode or kernel.times,
        )
        for argument, kernel in kernels.items()
        if kernel.times is not None
    ]
    typed = mixed is not None or n > 1 or broadcasts  # what a tangent must be is not what a gradient is, and is kept
    pick_for_formula = _picker([slots[place] for place in of_formula] if by_formula[True] else [])

    call_at_once: Any
    call_at_once, names_at_once = at_once or (None, ())
    at_once_by = [places[x] for x in names_at_once]
    may_sum = call_at_once is not None and broadcasts
    # Not `is_number`, which tells an overload from another one.
    read_by_kernels = [place for place, x in enumerate(private.arguments(op)) if x.name != "is_number"]

    def plan(of_function: tuple[bool, ...], in_formula: bool = False) -> _Plan:
        needs = dict(zip((-1, *order), of_function, strict=True))
        reads_now = compiled_reads if in_formula else reads
        read = {place for argument in reads_now if needs[places[argument]] for place in reads_now[argument]}
        kept, nothing = read.union(saved_others), len(arguments) + n
        wanted = [[term for term in of_result if needs[term[0]]] for of_result in terms]
        wanted_by_formula = [place for place in by_formula[in_formula] if needs[place]]
        wanted_by_kernel = [term for term in by_kernel if needs[term[0]] and term[0] not in wanted_by_formula]
        # A gradient is passed in place of what is not read, or, where its shape says what is summed, a tensor like it.
        unread = [place for place in at_once_by if may_sum and place not in read]
        like = {place: n + len(slots) + 2 + i for i, place in enumerate(unread)}
        passed = [n + slots[place] if place in kept else like.get(place, 0) for place in read_by_kernels]
        terms_wanted: Iterable[Any] = itertools.chain(*wanted, wanted_by_kernel)
        of = sorted({place for place, *_ in terms_wanted})
        all_at_once = call_at_once is not None and len(of) > 1
        fits = not wanted_by_formula and (all_at_once or (wanted_by_kernel and not any(wanted)))
        return _Plan(
            needs,
            _picker([place if place in read else nothing for place in saved_tensors]),
            _picker([*saved_others, nothing + 2 if unread else nothing, nothing + 1]),
            unread,
            wanted,
            wanted_by_kernel,
            wanted_by_formula,
            _picker([*passed, *range(n)]),
            (short or {}).get(tuple(arguments[place] for place in of)) if fits else None,
            _picker([of.index(place) if place in of else len(of) for place in (-1, *order)]),
            None if not may_sum or (all_at_once and wanted_by_kernel) else all_at_once,
        )

    plans, plans_in_formula = _Made(plan), _Made(partial(plan, in_formula=True))

    def plan_of(needs: tuple[bool, ...]) -> _Plan:
        made: _Plan = (plans_in_formula if compiled and private.decomposes(op) else plans)[needs]
        return made

    def save(needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, Any]:
        now = plan_of(needs) if compiled else plans[needs]
        values = inputs + results + (None, now)
        if now.unread:
            values += ([values[place].shape for place in now.unread],)
        return now.tensors(values), now.others(values)

    def save_for_jvp(needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, Any]:
        tensors, others = save(needs, inputs, results)
        return tensors, (*others, [(y.shape, y.dtype) for y in results])

    def passed_to_kernels(saved: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return all arguments of the operator and the gradients, of which the first is not None."""
        values = grads + saved
        if shapes := saved[-2]:
            values += tuple(_like(grads[0], shape, values) for shape in shapes)
        picked: tuple[Any, ...] = saved[-1].passed(values)
        return picked

    def product(x: Tensor, factor: Any) -> Tensor:
        # ATen multiplies a sparse gradient, such as that of a sparse embedding, by a dense tensor, and tensors of two
        # dtypes; `times` need not.
        both = isinstance(factor, Tensor) and x.layout in _DENSE and x.dtype == factor.dtype
        return times(x, factor) if both and not (broadcasts and x.shape != factor.shape) else x * factor

    def sums(now: _Plan, grad: Tensor, values: Sequence[Any]) -> bool:
        return may_sum and any(now.needs[place] and values[place].shape != grad.shape for place in at_once_by)

    def in_one_pass(saved: tuple[Any, ...], grads: tuple[Tensor | None, ...]) -> Sequence[Tensor] | None:
        """Return the gradients ``at_once``, or None where that is not faster, or cannot."""
        grad, *others = (grad for grad in grads if grad is not None)
        if call_at_once is None or any(x.layout not in _DENSE for x in (grad, *others)):
            return None
        values = passed_to_kernels(saved, (grad, *grads[1:]))
        count = len(saved[-1].by_kernel)
        if sums(saved[-1], grad, values):
            # Where the pass sums; in a compiled program partial derivatives by hand are fused with what is around them.
            can_sum = grad.device.type == "cpu" and grad.layout is torch.strided
            fits = can_sum and (count > 0 if by_kernel else not private.traces())
        else:
            fits = count == len(by_kernel) > 1
        return call_at_once(grads, *values[:-n]) if fits else None

    def through(kernel: Kernel, grads: Sequence[Tensor | None], values: tuple[Any, ...]) -> Tensor | None:
        if all(x is None or x.layout in _DENSE for x in grads):
            return kernel(grads, *values)
        if n > 1:
            return kernel([x if x is None or x.layout in _DENSE else x.to_dense() for x in grads], *values)
        x: Any = grads[0]
        return x * kernel([torch.ones(x.shape, dtype=x.dtype, device=x.device)], *values)

    def vjp_by_short_way(saved: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Tensor | None, ...] | None:
        now = saved[-1]
        if now.short is None or grads[0] is None:
            return None
        values = passed_to_kernels(saved, grads) if saved[-2] else now.passed(grads + saved)
        if now.if_sums is not None:
            is_small = now.if_sums and not private.traces() and grads[0].numel() <= _FEW
            if now.if_sums != (is_small or sums(now, grads[0], values)):
                return None
        made = now.short(*values)
        return None if made is None else now.gradients(made + (None,) if type(made) is tuple else (made, None))

    def vjp(saved: tuple[Any, ...], *grads: Tensor | None) -> list[Tensor | None]:
        gradients: list[Tensor | None] = [None] * len(arguments)
        now: _Plan = saved[-1]
        wanted, wanted_by_kernel, wanted_by_formula = now.terms, now.by_kernel, now.by_formula
        is_used = any(grad is not None for grad in grads)
        made = in_one_pass(saved, grads) if is_used else None
        if made is not None:
            for place, gradient in zip(at_once_by, made, strict=True):
                gradients[place] = gradient if now.needs[place] else None
            wanted, wanted_by_kernel = [[] for _ in wanted], []
        for grad, of_result in zip(grads, wanted, strict=True):
            if grad is None:
                continue
            is_complex = grad.is_complex()
            for place, function, pick in of_result:
                x = grad
                if mixed and arguments[place] in mixed:
                    x = grad.to(torch.promote_types(grad.dtype, mixed[arguments[place]]))
                factor = function(x, *pick(saved))
                if is_complex:
                    factor = factor.conj() if isinstance(factor, Tensor) else factor.conjugate()
                # A literal 1 needs no multiplication; a symbolic one stays in the graph.
                gradient = x if type(factor) is int and factor == 1 else product(x, factor)
                before = gradients[place]
                gradients[place] = gradient if before is None else before + gradient
        for place, kernel, pick, _ in wanted_by_kernel if is_used else ():
            gradients[place] = through(kernel, grads, pick(saved))
        if wanted_by_formula and is_used:
            if any(grad is not None and grad.layout is torch.jagged for grad in grads):  # torch.func knows none
                raise RuntimeError(
                    f"{name(op)}: on jagged nested tensors the formula has no derivative; call the operator on "
                    "their values(), or give it partial derivatives"
                )
            given = dict(zip(of_formula, pick_for_formula(saved), strict=True))
            for place, of_one in pull(compute, given, wanted_by_formula, grads):
                gradients[place] = of_one
        return gradients

    def jvp(saved: tuple[Any, ...], *tangents: Tensor | None) -> Any:
        now = plan_of((False, *(tangents[place] is not None for place in order)))
        wanted, wanted_by_kernel, wanted_by_formula = now.terms, now.by_kernel, now.by_formula

        def expanded(place: int) -> Any:
            tangent: Any = tangents[place]
            return tangent.expand(torch.broadcast_shapes(tangent.shape, saved[-1][0][0])) if broadcasts else tangent

        # By the places of the arguments, in whose order they are added.
        products: list[dict[int, Tensor]] = [{} for _ in terms]
        for of_result, of_terms in zip(products, wanted, strict=True):
            for place, function, pick in of_terms:
                tangent = expanded(place)
                of_result[place] = product(tangent, function(tangent, *pick(saved)))
        for place, _, pick, kernel in wanted_by_kernel:
            for i, of_result in enumerate(products):
                if not typed or saved[-1][i][1].is_floating_point:
                    alone = [expanded(place) if i == j else None for j in range(n)]
                    made = through(kernel, alone, pick(saved))
                    if made is not None:
                        of_result[place] = made
        sums: list[Any] = [
            reduce(torch.add, [of_result[place] for place in sorted(of_result)]) if of_result else None
            for of_result in products
        ]
        if wanted_by_formula:
            of_tensors: Any = {place: tangents[place] for place in wanted_by_formula}
            given = dict(zip(of_formula, pick_for_formula(saved), strict=True))
            of_results = push(compute, given, of_tensors, saved[-1] if typed else None)
            sums = [x if y is None else y if x is None else x + y for x, y in zip(sums, of_results, strict=True)]
        some: Any = next(tangent for tangent in tangents if tangent is not None)
        if not typed:
            return torch.zeros_like(some) if sums[0] is None else sums[0]
        typed_tangents = tuple(
            None
            if not dtype.is_floating_point
            else some.new_zeros(shape, dtype=dtype)
            if of_result is None
            else of_result.sum_to_size(shape).to(dtype)
            for of_result, (shape, dtype) in zip(sums, saved[-1], strict=True)
        )
        return typed_tangents if n > 1 else typed_tangents[0]

    without = [argument for argument in tensors if argument not in reads]
    rule = Rule(
        save,
        vjp,
        jvp,
        save_for_jvp=save_for_jvp if typed else None,
        vjp_by_short_way=vjp_by_short_way if short else None,
        node=node,
        without=without,
        instead=instead,
        order=order,
    )
    register(op, rule, shortened)


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
    """Return a partial derivative that takes what it is a factor of first, and is refused where it does not fit that.

    One that broadcasts would give a wrong gradient, and one of a narrower dtype an inexact one, where all have one.
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
        # It is of the elements that it reads, which may be fewer where the operator broadcasts.
        shape = torch.broadcast_shapes(*(y.shape for y in read if isinstance(y, Tensor)))
        if not (is_number(factor) and any(map(is_number, read))):
            what = f"the partial derivative for {argument}, where it is no number,"
            check_is(op, what, function, (shape, x.dtype), factor)
        return factor

    return checked
