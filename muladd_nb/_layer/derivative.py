"""Derivatives that an author writes, for an operator of any kind; and operators that have none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from . import torch_private as private
from ._library import implement, name
from .formula import Formula, Like, check_is
from .operator import as_tuple, complete, named
from .recording import Rule, checked_arguments, no_gradient, refuse_gradients, register

_SAVED = object()  # stands for a tensor that autograd keeps
_MOST_OPTIONS = 1000  # whose answer is kept: an int may have another value in each call


def derivative(
    op: Any,
    *,
    save: Callable[..., tuple[Any, ...]] | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    formula: Callable[..., Any] | None = None,
    constants: Sequence[int] = (),
    node: str | None = None,
) -> None:
    """Register the derivative of an operator: three functions, or a formula, or both.

    ``needs``, ``inputs``, the gradients and the tangents below have an entry for each argument of the schema, also for
    keyword-only arguments and for those that are not tensors.

    Parameters
    ----------
    op
        The overload of an operator that returns one or several new tensors.
    save
        ``save(needs, inputs, results)`` returns a tuple of what to keep: inputs, results, numbers, and tensors that
        have no derivative. ``needs[i]`` says whether the gradient of argument ``i`` is requested.
    vjp
        ``vjp(needs, saved, *grads)`` gets the gradient of each result, zeros for a result that nobody used, and returns
        the gradient of each argument, with the argument's shape and dtype. It returns None for an argument whose
        gradient is not needed, or which has no derivative: requesting that derivative is then an error, in both modes.
    jvp
        ``jvp(saved, *tangents)`` gets the tangent of each argument, zeros for a tensor without a tangent, and None for
        an argument that is not a tensor. It returns the tangent of each result, with the result's shape and dtype, and
        None for a result of integers. In forward mode ``save`` is called as if all gradients were requested.
    formula
        A function that computes the results in torch's operators. Its parameters are named after the arguments that it
        reads, and these arguments are saved. torch differentiates it for the derivatives that ``vjp`` and ``jvp`` do
        not compute: all of them, if there is neither; otherwise those that may be differentiated again, and those under
        ``torch.func``. Then ``vjp`` and ``jvp`` need not be differentiable.
    constants
        The indices of results that have no derivative although they are floating-point numbers, such as the scale of a
        quantizer. They do not require grad; ``jvp`` returns None for them.
    node
        The name of ``grad_fn``, without ``Backward``; by default the name of the operator in camel case.

    Raises
    ------
    TypeError, ValueError
        If the operator cannot have a derivative, or a function does not take these arguments.

    Notes
    -----
    Without a formula, torch differentiates ``vjp`` and ``jvp`` for higher derivatives, so they must consist of
    differentiable operators. ``vjp`` may call ``torch.func``, except in forward mode, where it is asked which arguments
    have a derivative; ``jvp`` may not, because torch opens no level of ``torch.func`` while an operator runs.

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
    arguments = checked_arguments(op)
    results = [f"grad {i}" for i in range(len(private.results(op)))]
    if (save is None and not (formula and vjp is None and jvp is None)) or not (formula or (vjp and jvp)):
        raise TypeError(
            f"{name(op)}: a derivative needs save, vjp and jvp, or a formula, which may also replace vjp or jvp"
        )
    checked_formula: Any = Formula(op, formula) if formula else None
    reads: list[str] = checked_formula.reads if checked_formula else []
    _check_takes(op, "save", save, ["needs", "inputs", "results"])
    _check_takes(op, "vjp", vjp, ["needs", "saved", *results])
    _check_takes(op, "jvp", jvp, ["saved", *(f"tangent of {argument}" for argument in arguments)])

    def split_save(needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, Any]:
        saved = save(needs, inputs, results) if save else ()
        for x in saved:
            if _may_require_grad(x) and not any(x is y for y in inputs + results):
                # A tensor computed in `save` is not recorded, so second derivatives would lack its terms.
                raise RuntimeError(f"{name(op)}: save must return inputs and results; make what else is needed in vjp")
        # The shape and dtype that each gradient must have.
        pairs = zip(inputs, needs, strict=True)  # an absent optional tensor has no gradient
        of_gradients = [(x.shape, x.dtype) if need and x is not None else None for x, need in pairs]
        kept = (*saved, *(inputs[arguments.index(x)] for x in reads))
        others = [_SAVED if isinstance(x, Tensor) else x for x in kept]
        return [x for x in kept if isinstance(x, Tensor)], (others, needs, of_gradients)

    def put_together(tensors: Sequence[Tensor], others: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what ``save`` returned, and the arguments that the formula reads."""
        each = iter(tensors)
        both = tuple([next(each) if x is _SAVED else x for x in others])  # a generator would take longer
        end = len(both) - len(reads)
        return both[:end], dict(zip(reads, both[end:], strict=True))

    def has_derivative(place: int, dtype: torch.dtype) -> bool:
        return place not in constants and (dtype.is_floating_point or dtype.is_complex)

    def by_formula(function: Any, *given: Any) -> bool:
        """Return whether the formula has to compute a derivative, because ``function`` cannot."""
        return function is None or (formula is not None and (private.transforms_active() or private.is_recorded(given)))

    def gradients_of(needs: tuple[bool, ...], saved: tuple[Any, ...], *grads: Tensor) -> tuple[Any, ...]:
        gradients = as_tuple(vjp and vjp(needs, saved, *grads))
        if len(gradients) != len(arguments):
            raise RuntimeError(f"{name(op)}: vjp must return {len(arguments)} gradients, got {len(gradients)}")
        return gradients

    def checked_vjp(tensors: Sequence[Tensor], kept: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        others, needs, of_gradients = kept
        saved, read = put_together(tensors, others)
        given = (*tensors, *grads)
        if by_formula(vjp, *given) or (formula and private.differentiating() and any(map(private.has_tangent, given))):
            what, function = "that the formula has", formula
            wanted = [x for x, like in zip(arguments, of_gradients, strict=True) if like and x in reads]
            of_floats = [x if has_derivative(i, x.dtype) else None for i, x in enumerate(grads)]
            pulled = checked_formula.pull(read, wanted, of_floats) if wanted else {}
            gradients = tuple(map(pulled.get, arguments))
        else:
            what, function, gradients = "that vjp returns", vjp, gradients_of(needs, saved, *grads)
        for argument, like, gradient in zip(arguments, of_gradients, gradients, strict=True):
            if like and gradient is None:
                raise no_gradient(name(op), argument, instead)
            if like:
                check_is(op, f"the gradient of {argument} {what}", function, like, gradient)
        return gradients

    def checked_jvp(tensors: Sequence[Tensor], kept: Any, likes: Sequence[Like], *tangents: Tensor) -> Any:
        saved, read = put_together(tensors, kept[0])
        of_floats = [like if has_derivative(i, like[1]) else None for i, like in enumerate(likes)]
        if by_formula(jvp, *tensors, *tangents):
            pairs = zip(arguments, tangents, strict=True)
            floats = {x: tangent for x, tangent in pairs if x in reads and _may_require_grad(tangent)}
            of_results = tuple(checked_formula.push(read, floats, of_floats))
            return of_results if len(results) > 1 else of_results[0]
        with _without_torch_func(op, "jvp"):
            returned: Any = jvp and jvp(saved, *tangents)
        of_results = as_tuple(returned)
        if len(of_results) != len(results):
            raise RuntimeError(f"{name(op)}: jvp must return {len(results)} tangents, got {len(of_results)}")
        for place, (like, tangent) in enumerate(zip(of_floats, of_results, strict=True)):
            if like:
                of_place = f" of result {place}" * (len(results) > 1)
                check_is(op, f"the tangent{of_place} that jvp returns", jvp, like, tangent)
        return returned

    instead = "have the formula read it" if formula else "have vjp return one"
    have_gradient = set[Any]()  # the indices of arguments that have a derivative, each with the options of a call

    def check_tangent(place: int, inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> None:
        # jvp may ignore the tangent of an argument that has no derivative. vjp returns None for it, so we ask vjp,
        # once for all options: a string may name a mode in which another argument has a derivative.
        options = (place, *(None if isinstance(x, (Tensor, float)) else repr(x) for x in inputs))
        if arguments[place] not in reads and options not in have_gradient:
            needs = tuple(isinstance(x, Tensor) for x in inputs)
            gradients: Any = [None] * len(inputs)
            if vjp and save:
                with torch.no_grad(), private.record_tangents(False), _without_torch_func(op, "vjp"):
                    gradients = gradients_of(needs, save(needs, inputs, results), *map(torch.zeros_like, results))
            if gradients[place] is None:
                raise no_gradient(name(op), arguments[place], instead)
            if len(have_gradient) == _MOST_OPTIONS:
                have_gradient.clear()
            have_gradient.add(options)

    rule = Rule(
        split_save,
        checked_vjp,
        checked_jvp,
        check_tangent=check_tangent,
        node=node,
        materialize=True,
        constants=constants,
    )
    register(op, rule)


@contextmanager
def _without_torch_func(op: Any, what: str) -> Iterator[None]:
    """Replace torch's error if an author's function calls ``torch.func`` while the operator runs."""
    try:
        yield
    except RuntimeError as error:
        # torch fails in an assertion, or refuses a second level of forward mode.
        if private.is_of_torch_func(error) and (private.transforms_active() or "forward mode" in str(error)):
            raise RuntimeError(
                f"{name(op)}: in forward mode, {what} must not call torch.func, which torch does not allow while an "
                f"operator runs; compute in torch's operators, or leave {what} to a formula"
            ) from error
        raise


def none(op: Any) -> None:
    """Declare that an operator has no derivative: its results do not require grad. It may take lists of tensors.

    If it returns a floating-point tensor, a call with an argument that requires grad or has a tangent is an error,
    because the derivative would be lost. Integers and booleans have no derivative to lose.
    """
    op_name = name(op)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        returned = op.redispatch(private.below_autograd(keyset), *args, **kwargs)
        results = as_tuple(returned)
        if any(map(_may_require_grad, results)):
            arguments = named(op, complete(op, args, kwargs))
            why, instead = "the operator has no derivative", "call it under torch.no_grad()"
            refuse_gradients(op_name, arguments, why, instead, may_be_dual=private.may_be_dual())
        return returned

    implement(op, kernel, "Autograd", with_keyset=True)


def _may_require_grad(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def _check_takes(op: Any, what: str, function: Any, parameters: Sequence[str]) -> None:
    try:
        if function is not None:
            inspect.signature(function).bind(*parameters)
    except (TypeError, ValueError) as error:
        message = f"{name(op)}: {what} must be a function that takes {', '.join(parameters)}, got {function!r}: {error}"
        raise TypeError(message) from None
