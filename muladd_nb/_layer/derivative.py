"""The derivative of an operator, in reverse and forward mode, under every torch.func transform.

``torch.library.register_autograd`` is not enough: its operators raise under ``torch.func.grad``, and
their forward-mode derivative is silently zero. Here an operator has one kernel at the dispatch key
``Autograd``. torch.func runs that kernel once per level of nested transforms, on the tensors of that
level, so what it records there is one level's derivative: an ``autograd.Function`` of the kind torch.func
itself generates for a single level. Its forward redispatches to the next level, and in the end to the
backend's kernel, so the values under a transform are bit for bit those outside it.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import autocast
from . import torch_private as private
from ._library import implement, name
from .aten_node import order_of
from .operator import by_position, complete

_TENSOR = ("Tensor", "Optional[Tensor]")
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


# Of each operator with a derivative, what records a call outside of transforms, given a tuple of the kernel's results
# and all arguments.
recorders: dict[Any, Callable[..., Any]] = {}


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
    value_and_tangent: tuple[Any, Sequence[str], Sequence[torch.dtype], bool] | None = None,
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
    value_and_tangent
        An operator that returns the result and its tangent, from all arguments and a tangent of each of these tensors;
        the dtypes that it is for; and whether it is for compiled programs, too.
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
    arguments = _checked(op)
    n = len(private.results(op))
    tensors = [argument.name for argument in private.arguments(op) if str(argument.type) in _TENSOR]
    for argument in partials:
        if argument not in tensors:
            raise ValueError(f"{name(op)}: no partial derivative for {argument}; its tensors are {tensors}")
    # What the partial derivatives read, as places among the arguments, the results and None; tensors are saved first.
    results = ["result"] if n == 1 else [f"result{i}" for i in range(n)]
    places = {argument: place for place, argument in enumerate([*arguments, *results])}
    of_results = {argument: _of_each_result(op, argument, n, functions) for argument, functions in partials.items()}
    read_by = {
        function: _reads(op, f"the partial derivative for {argument}", function, places)
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
            for place, of_one in _pull(compute, given, wanted_by_formula, grads):
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
            of_results = _push(compute, given, of_tensors, saved[-1] if typed else None)
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
    forward_mode_at_once = None
    if value_and_tangent and not private.TRANSFORMS.lacking():
        forward_mode_at_once = _dual_of(op, *value_and_tangent)
    _register(
        op,
        save,
        vjp,
        jvp,
        node=node,
        without=without,
        instead=instead,
        order=order,
        save_for_jvp=save_for_jvp if typed else save,
        vjp_by_short_way=vjp_by_short_way if short else None,
        forward_mode_at_once=forward_mode_at_once,
        shortened=shortened,
    )


def derivative(
    op: Any,
    *,
    save: Callable[..., tuple[Any, ...]],
    vjp: Callable[..., Any],
    jvp: Callable[..., Any],
    node: str | None = None,
) -> None:
    """Give an operator its derivative.

    What follows takes the arguments of the schema one after the other, the keyword-only ones and those that
    are no tensors included.

    Parameters
    ----------
    op
        The overload of an operator that returns one or several new tensors.
    save
        ``save(needs, inputs, results)`` returns a tuple of what is kept: inputs, results, numbers, and tensors that
        have no derivative. ``needs`` says of each argument whether its gradient is wanted.
    vjp
        ``vjp(needs, saved, *grads)`` returns the gradient of each argument, of its shape and dtype, from the gradient
        of each result: zeros where a result was not used. None is for an argument that needs no gradient, and for one
        that has none: asking for that is then an error, in both modes.
    jvp
        ``jvp(saved, *tangents)`` returns the tangent of each result, of its shape and dtype, None for one of integers,
        from the tangent of each argument: zeros where a tensor has none, None where it is no tensor. All that can be
        needed was saved.
    node
        What ``grad_fn`` is called, without ``Backward``; by default the name of the operator in camel case.

    Raises
    ------
    TypeError, ValueError
        If the operator, or a function, is none that this can work with.

    Notes
    -----
    ``vjp`` and ``jvp`` are themselves differentiated, so they must be made of differentiable operators.

    Examples
    --------
    The logarithm of the sum of exponentials of each row, which saves its result:

    >>> def softmax(x, result):
    ...     return (x - result[:, None]).exp()
    >>> derivative(
    ...     op,
    ...     save=lambda needs, inputs, results: (*inputs, *results),
    ...     vjp=lambda needs, saved, grad: grad[:, None] * softmax(*saved),
    ...     jvp=lambda saved, tangent: (tangent * softmax(*saved)).sum(1),
    ... )
    >>> x = torch.zeros(1, 4)
    >>> torch.func.grad(lambda x: op(x).sum())(x)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    arguments = _checked(op)
    results = [f"grad {i}" for i in range(len(private.results(op)))]
    _check_takes(op, "save", save, ["needs", "inputs", "results"])
    _check_takes(op, "vjp", vjp, ["needs", "saved", *results])
    _check_takes(op, "jvp", jvp, ["saved", *(f"tangent of {argument}" for argument in arguments)])

    def split_save(needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, Any]:
        saved = save(needs[1:], inputs, results)
        for x in saved:
            differentiable = isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
            if differentiable and not any(x is y for y in inputs + results):
                # It was made where nothing is recorded: second derivatives would miss it.
                raise RuntimeError(f"{name(op)}: save must return inputs and results; make what else is needed in vjp")
        tensors = [x if isinstance(x, Tensor) else None for x in saved]
        # What a gradient of each argument, and a tangent of each result, must be.
        pairs = zip(inputs, needs[1:], strict=True)  # an optional tensor that is absent has no gradient
        of_gradients = [(x.shape, x.dtype) if need and x is not None else None for x, need in pairs]
        of_tangents = [(y.shape, y.dtype) if y.is_floating_point() or y.is_complex() else None for y in results]
        others = (None if isinstance(x, Tensor) else x for x in saved)
        return tensors, (*others, (needs[1:], of_gradients, of_tangents))

    def joined(saved: tuple[Any, ...]) -> tuple[Any, ...]:
        *both, _ = saved
        tensors, others = both[: len(both) // 2], both[len(both) // 2 :]
        return tuple(other if x is None else x for x, other in zip(tensors, others, strict=True))

    def gradients_of(needs: tuple[bool, ...], saved: tuple[Any, ...], *grads: Tensor) -> tuple[Any, ...]:
        gradients = vjp(needs, saved, *grads)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        if len(gradients) != len(arguments):
            raise RuntimeError(f"{name(op)}: vjp must return {len(arguments)} gradients, got {len(gradients)}")
        return gradients

    def checked_vjp(saved: tuple[Any, ...], *grads: Tensor) -> tuple[Tensor | None, ...]:
        needs, of_gradients, _ = saved[-1]
        gradients = gradients_of(needs, joined(saved), *grads)
        for argument, wanted, gradient in zip(arguments, of_gradients, gradients, strict=True):
            if wanted and gradient is None:
                raise no_gradient(op, argument, "have vjp return one")
            if wanted:
                _check_is(op, f"the gradient of {argument} that vjp returns", vjp, wanted, gradient)
        return gradients

    def checked_jvp(saved: tuple[Any, ...], *tangents: Tensor) -> Any:
        returned = jvp(joined(saved), *tangents)
        of_results = returned if isinstance(returned, tuple) else (returned,)
        if len(of_results) != len(results):
            raise RuntimeError(f"{name(op)}: jvp must return {len(results)} tangents, got {len(of_results)}")
        for place, (wanted, tangent) in enumerate(zip(saved[-1][2], of_results, strict=True)):
            if wanted:
                of_place = f" of result {place}" * (len(results) > 1)
                _check_is(op, f"the tangent{of_place} that jvp returns", jvp, wanted, tangent)
        return returned

    have_gradient: set[int] = set()  # the places of arguments for which vjp was seen to return one

    def check_tangent(place: int, inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> None:
        # jvp can leave an argument out of its sum; what has no gradient has no tangent either. So vjp is asked, once.
        if place not in have_gradient:
            needs = tuple(isinstance(x, Tensor) for x in inputs)
            with torch.no_grad(), private.without_tangents():
                gradients = gradients_of(needs, save(needs, inputs, results), *map(torch.zeros_like, results))
            if gradients[place] is None:
                raise no_gradient(op, arguments[place], "have vjp return one")
            have_gradient.add(place)

    _register(
        op,
        split_save,
        checked_vjp,
        checked_jvp,
        node=node,
        materialize=True,
        check_tangent=check_tangent,
    )


def none(op: Any) -> None:
    """Say that an operator has no derivative: what it returns does not require grad.

    A floating-point result would lose the gradient of an argument, or its tangent, without a word. So where an argument
    has one, that is an error. Integers and booleans have none to lose.

    Parameters
    ----------
    op
        The overload of an operator that returns one or several new tensors.

    Raises
    ------
    TypeError, ValueError
        If it is no such operator.

    Examples
    --------
    >>> none(op)
    >>> op(torch.ones(2, requires_grad=True))
    Traceback (most recent call last):
    RuntimeError: my_op: the operator has no derivative, but x requires grad; detach x
    """
    arguments = _checked(op)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        returned = op.redispatch(private.below_autograd(keyset), *args, **kwargs)
        results = returned if isinstance(returned, tuple) else (returned,)
        if any(x.is_floating_point() or x.is_complex() for x in results):
            for argument, x in (*zip(arguments, args, strict=False), *kwargs.items()):
                if isinstance(x, Tensor) and torch.is_grad_enabled() and x.requires_grad:
                    raise no_gradient(op, argument, what="the operator has no derivative, but {} requires grad")
                if private.may_be_dual() and _has_tangent(x):
                    raise no_gradient(op, argument, what="the operator has no derivative, but {} has a tangent")
        return returned

    implement(op, kernel, "Autograd", with_keyset=True)


def _checked(op: Any) -> list[str]:
    """Return the names of the arguments of an operator that a derivative can be given to."""
    if not isinstance(op, private.OpOverload):
        raise TypeError(f"a derivative is given to an overload, as torch.ops.my_ops.op.default is, not to {op!r}")
    for argument in private.arguments(op):
        if argument.alias_info is not None:
            raise ValueError(
                f"{name(op)}: {argument.name} is written to, or returned; only a new tensor has a derivative"
            )
        if "Tensor" in str(argument.type) and str(argument.type) not in _TENSOR:
            raise ValueError(f"{name(op)}: {argument.name} is a list of tensors; pass them one by one")
    results = private.results(op)
    if not results or any(str(result.type) != "Tensor" for result in results):
        raise ValueError(f"{name(op)}: only tensors have a derivative, returns {[str(r.type) for r in results]}")
    return [argument.name for argument in private.arguments(op)]


def _check_takes(op: Any, what: str, function: Any, parameters: Sequence[str]) -> None:
    try:
        inspect.signature(function).bind(*parameters)
    except TypeError as error:
        message = f"{name(op)}: {what} must be a function that takes {', '.join(parameters)}, got {function!r}: {error}"
        raise TypeError(message) from None


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


def _reads(op: Any, what: str, function: Any, places: Mapping[str, int]) -> list[int]:
    """Return the places of what a function of the author reads."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        message = f"{name(op)}: {what} must be a Python function, got {function!r}"
        raise TypeError(message) from None
    for parameter in parameters:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
            message = f"{name(op)}: {what} must take plain parameters, got {parameter}"
            raise TypeError(message)
        if parameter.name not in places:
            message = f"{name(op)}: {what} reads {parameter.name}; there are {[*places]}"
            raise ValueError(message)
    return [places[parameter.name] for parameter in parameters]


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


def _has_tangent(x: Any) -> bool:
    return isinstance(x, Tensor) and private.has_tangent(x)


def no_gradient(
    op: Any, argument: str, instead: str | None = None, what: str = "{} has no gradient, but requires one"
) -> RuntimeError:
    alternative = f", or {instead}" if instead else ""
    return RuntimeError(f"{name(op)}: {what.format(argument)}; detach {argument}{alternative}")


def _check_is(op: Any, what: str, function: Any, wanted: tuple[Sequence[int], torch.dtype], got: Any) -> None:
    """Raise ``RuntimeError`` or ``TypeError`` unless what the author's function returned has this shape and dtype."""
    shape, dtype = wanted
    if isinstance(got, Tensor) and tuple(got.shape) == tuple(shape) and got.dtype == dtype:
        return
    code = inspect.unwrap(function).__code__
    expected = f"{name(op)}: {what} must be a tensor of shape {list(shape)} and dtype {dtype}"
    where = f"in {code.co_filename}, line {code.co_firstlineno}"
    if not isinstance(got, Tensor):
        raise TypeError(f"{expected}, got a {type(got).__name__}; it is made {where}")
    raise RuntimeError(f"{expected}, got one of shape {list(got.shape)} and dtype {got.dtype}; it is made {where}")


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
            _check_is(op, what, function, (shape, x.dtype), factor)
        return factor

    return checked


def checked_formula(op: Any, formula: Callable[..., Any]) -> tuple[Callable[..., tuple[Tensor, ...]], list[int]]:
    """Return a formula that takes what each of its results is like first, and the places of what else it reads.

    It returns a tuple, and raises where a result is not like that, if it is not None.
    """
    places = {argument: place for place, argument in enumerate(private.argument_names(op))}
    n = len(private.results(op))

    def checked(likes: Sequence[Any], *read: Any) -> tuple[Tensor, ...]:
        returned = formula(*read)
        results = returned if isinstance(returned, tuple) else (returned,)
        if len(results) != n:
            raise RuntimeError(f"{name(op)}: the formula must return {n} results, got {len(results)}")
        for i, (like, result) in enumerate(zip(likes, results, strict=True)):
            if like is not None:
                what = f"the result{f' {i}' if n > 1 else ''} of the formula"
                _check_is(op, what, formula, (like.shape, like.dtype), result)
        return results

    return checked, _reads(op, "the formula", formula, places)


def _pull(
    compute: Callable[..., tuple[Tensor, ...]],
    given: Mapping[int, Any],
    wanted: Sequence[int],
    grads: Sequence[Tensor | None],
) -> Iterable[tuple[int, Tensor]]:
    """Return the gradients of what a formula was given at these places."""
    # What was saved at a level that torch.func.vjp has left since is dead: only operators, as of a view, take it.
    alive = {place: x.view_as(x) if isinstance(x, Tensor) else x for place, x in given.items()}

    def of_wanted(*xs: Tensor) -> tuple[Tensor, ...]:
        results = compute(grads, *(alive | dict(zip(wanted, xs, strict=True))).values())
        return tuple(y for y, grad in zip(results, grads, strict=True) if grad is not None)

    there = tuple(grad for grad in grads if grad is not None)
    if private.needs_recording((*given.values(), *there)):
        pull = torch.func.vjp(of_wanted, *map(alive.get, wanted))[1]
        return zip(wanted, pull(there), strict=True)
    # Nobody looks, or differentiates this again: autograd itself takes half the time of torch.func (measured).
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [alive[place].detach().requires_grad_() for place in wanted]
        pairs = [(y, grad) for y, grad in zip(of_wanted(*leaves), there, strict=True) if y.requires_grad]
    results, gradients = zip(*pairs, strict=True) if pairs else ((), ())
    return zip(wanted, torch.autograd.grad(results, leaves, gradients, materialize_grads=True), strict=True)


def _push(
    compute: Callable[..., tuple[Tensor, ...]],
    given: Mapping[int, Any],
    tangents: Mapping[int, Tensor],
    results: Sequence[tuple[Sequence[int], torch.dtype]] | None,
) -> list[Tensor | None]:
    """Return the tangent of each result of a formula, whose shape and dtype are those of the tangents if not given."""
    # At this level of forward mode: torch.func would open another, which it cannot while an operator runs.
    duals = {place: forward_ad.make_dual(given[place], tangent, level=0) for place, tangent in tangents.items()}
    like = next(iter(tangents.values()))
    likes = [SimpleNamespace(shape=shape, dtype=dtype) for shape, dtype in results or [(like.shape, like.dtype)]]
    computed = compute(likes, *{**given, **duals}.values())
    return [
        # What does not depend on them is a constant.
        torch.zeros_like(y) if (tangent := forward_ad.unpack_dual(y, level=0).tangent) is None else tangent
        for y in computed
    ]


def _dual_of(
    op: Any, value_and_tangent: Any, by: Sequence[str], dtypes: Sequence[torch.dtype], compiled: bool
) -> Callable[..., Tensor | None]:
    """Return what computes a dual result below Autograd in one call, or returns None where that cannot."""
    arguments = private.arguments(op)
    tensors = [place for place, x in enumerate(arguments) if str(x.type) in _TENSOR]
    places = [place for place in tensors if arguments[place].name in by]
    redispatch = private.redispatch(value_and_tangent)

    def dual_of(keyset: Any, args: tuple[Any, ...]) -> Tensor | None:
        # What is recorded in reverse mode at this level needs the tangents one by one.
        if args[places[0]].dtype not in dtypes or private.is_recorded(args) or (private.traces() and not compiled):
            return None
        if any(args[place].layout is not torch.strided or args[place].is_inference() for place in tensors):
            return None
        duals = {place: forward_ad.unpack_dual(args[place], level=0) for place in tensors}
        given = [place for place, dual in duals.items() if dual.tangent is not None]
        if not given or not {*given} <= {*places}:
            return None
        tangents: list[Any] = [
            duals[place].primal.new_zeros(()).expand(args[place].shape) if tangent is None else tangent
            for place in places
            for tangent in [duals[place].tangent]
        ]
        if private.is_recorded(tuple(tangents)) or not private.dispatch_alike((duals[places[0]].primal, *tangents)):
            return None
        primals = [duals[place].primal if place in duals else x for place, x in enumerate(args)]
        made: Tensor = forward_ad.make_dual(*redispatch(private.below_autograd(keyset), *primals, *tangents), level=0)
        return made

    return dual_of


def _register(
    op: Any,
    save: Callable[..., tuple[Sequence[Tensor | None], Sequence[Any]]],
    vjp: Callable[..., Sequence[Tensor | None]],
    jvp: Callable[..., Any],
    *,
    node: str | None,
    without: Sequence[str] = (),
    instead: str | None = None,
    materialize: bool = False,
    order: Sequence[int] = (),
    check_tangent: Callable[..., None] | None = None,
    save_for_jvp: Callable[..., tuple[Sequence[Tensor | None], Sequence[Any]]] | None = None,
    vjp_by_short_way: Callable[..., tuple[Tensor | None, ...] | None] | None = None,
    forward_mode_at_once: Callable[..., Tensor | None] | None = None,
    shortened: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda kernel: kernel,
) -> None:
    """Register the kernel that applies one ``autograd.Function`` a level, where there is something to record.

    ``order`` has the places of the operator's arguments in the order in which the function takes them.
    """
    arguments = private.arguments(op)
    names = [argument.name for argument in arguments]
    several = len(private.results(op)) > 1
    refused = [(names.index(argument), argument) for argument in without]
    reordered: Callable[[Any], tuple[Any, ...]] = tuple
    restored: Callable[[Any], tuple[Any, ...]] = tuple
    differentiable = [str(argument.type) in _TENSOR for argument in arguments]
    if list(order) != sorted(order):
        reordered, restored = itemgetter(*order), itemgetter(*map(order.index, range(len(order))))

    at_this_level = private.TRANSFORMS.refusal(name(op)) or private.record_at_this_level
    uncast = by_position(autocast.define_uncast(op), op)
    refuse_tangents = private.FORWARD_MODE.refusal(name(op))
    redispatch = by_position(private.redispatch(op), op, leading=1)

    # The old form, without setup_context, is 10 us cheaper a call. `below` is a tuple of the results, where the short
    # way has them, or what computes them. Each step of what a small call does counts.
    def forward(ctx: Any, below: Any, *inputs: Any) -> Any:
        ctx.set_materialize_grads(materialize)
        inputs = restored(inputs)
        is_short = type(below) is tuple
        returned = below if is_short else below(*inputs)
        results = returned if is_short or several else (returned,)
        tensors, ctx.others = save(ctx.needs_input_grad, inputs, results)
        ctx.save_for_backward(*tensors)
        if not is_short and private.may_be_dual():
            tensors, ctx.others_of_jvp = (save_for_jvp or save)((False, *reordered(differentiable)), inputs, results)
            ctx.save_for_forward(*tensors)
        return results if several else results[0]

    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors + ctx.others
        gradients = vjp_by_short_way(saved, grads) if vjp_by_short_way else None
        if gradients is None:
            with autocast.as_in_forward(backward=True):
                gradients = None, *reordered(vjp(saved, *grads))
        return gradients

    def forward_mode(ctx: Any, _: Any, *tangents: Tensor | None) -> Any:
        tangents = restored(tangents)
        for place, argument in refused:
            if tangents[place] is not None:
                raise no_gradient(op, argument, instead)
        # Tangents are recorded again, which torch has turned off: a derivative of this one (jvp of jvp) would
        # otherwise lose every term made here. This level's are taken off, or they would be differentiated twice.
        with private.record_tangents(), autocast.as_in_forward():
            tensors = [x if x is None else private.primal(x) for x in ctx.saved_tensors]
            return jvp((*tensors, *ctx.others_of_jvp), *tangents)

    key = private.COMPILED_AUTOGRAD.refusal(name(op)) or private.compiled_autograd_key
    methods = {"forward": forward, "backward": backward, "jvp": forward_mode, "_compiled_autograd_key": key}
    function: Any = type(
        node or "".join(map(str.capitalize, op.overloadpacket.__name__.split("_"))),
        (private.SingleLevelFunction,),
        {method: staticmethod(private.skip_in_dynamo(function)) for method, function in methods.items()},
    )
    private.call_directly(function)

    def refuse(args: Sequence[Any]) -> None:
        for place, argument in refused:
            if torch.is_grad_enabled() and args[place] is not None and args[place].requires_grad:
                raise no_gradient(op, argument, instead)

    def record(results: tuple[Tensor, ...], *args: Any) -> Any:
        refuse(args)
        return function.apply(results, *reordered(args))

    recorders[op] = private.skip_in_dynamo(record) if refused or reordered is not tuple else function.apply

    def kernel(keyset: Any, *args: Any) -> Any:
        if not private.needs_recording(args):
            return redispatch(private.below_autograd(keyset), *args)
        dual = private.may_be_dual()
        if refuse_tangents and dual and any(map(_has_tangent, args)):
            refuse_tangents()
        refuse(args)
        if dual and forward_mode_at_once and (made := forward_mode_at_once(keyset, args)) is not None:
            return made
        below: Callable[..., Any] = partial(redispatch, private.below_autograd(keyset))
        if autocast.in_backward() and private.is_traced(args):
            # A compiled backward pass may run in an autocast region that the forward one did not.
            below = uncast
        if private.transforms_active():
            with at_this_level():
                returned = function.apply(private.with_current_grad_modes(below), *reordered(args))
        else:
            returned = function.apply(below, *reordered(args))
        if dual and check_tangent:
            for place in (place for place, x in enumerate(args) if _has_tangent(x)):
                check_tangent(place, args, returned if several else (returned,))
        return returned

    def kernel_with_defaults(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        return kernel(keyset, *complete(op, args, kwargs))

    is_plain = not any(argument.kwarg_only or argument.has_default_value() for argument in arguments)
    implement(op, shortened(kernel if is_plain else kernel_with_defaults), "Autograd", with_keyset=True)
