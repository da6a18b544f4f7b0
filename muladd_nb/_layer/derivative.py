"""Derivatives that an author writes, for an operator of any kind; and operators that have none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import torch_private as private
from ._library import implement, name
from .formula import check_is
from .recording import Rule, checked_arguments, no_gradient, refuse_gradients, register

_SAVED = object()  # stands for a tensor that autograd keeps


class _Kept(NamedTuple):
    """What a node keeps, besides the tensors that autograd keeps for it."""

    others: Sequence[Any]
    needs: tuple[bool, ...]
    of_gradients: Sequence[tuple[Sequence[int], torch.dtype] | None]  # shape and dtype
    of_tangents: Sequence[tuple[Sequence[int], torch.dtype] | None]

    def joined(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return what ``save`` returned."""
        each = iter(tensors)
        return tuple(next(each) if x is _SAVED else x for x in self.others)


def derivative(
    op: Any,
    *,
    save: Callable[..., tuple[Any, ...]],
    vjp: Callable[..., Any],
    jvp: Callable[..., Any],
    node: str | None = None,
) -> None:
    """Register the derivative of an operator.

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
        None for a result of integers. For it, ``save`` was called as if all gradients were requested.
    node
        The name of ``grad_fn``, without ``Backward``; by default the name of the operator in camel case.

    Raises
    ------
    TypeError, ValueError
        If the operator cannot have a derivative, or a function does not take these arguments.

    Notes
    -----
    torch differentiates ``vjp`` and ``jvp`` for higher derivatives, so they must consist of differentiable operators.

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
    _check_takes(op, "save", save, ["needs", "inputs", "results"])
    _check_takes(op, "vjp", vjp, ["needs", "saved", *results])
    _check_takes(op, "jvp", jvp, ["saved", *(f"tangent of {argument}" for argument in arguments)])

    def split_save(needs: tuple[bool, ...], inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, Any]:
        saved = save(needs, inputs, results)
        for x in saved:
            differentiable = isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
            if differentiable and not any(x is y for y in inputs + results):
                # It was computed while nothing is recorded, so second derivatives would lack its terms.
                raise RuntimeError(f"{name(op)}: save must return inputs and results; make what else is needed in vjp")
        # The shape and dtype that each gradient and each tangent must have.
        pairs = zip(inputs, needs, strict=True)  # an absent optional tensor has no gradient
        of_gradients = [(x.shape, x.dtype) if need and x is not None else None for x, need in pairs]
        of_tangents = [(y.shape, y.dtype) if y.is_floating_point() or y.is_complex() else None for y in results]
        others = [_SAVED if isinstance(x, Tensor) else x for x in saved]
        return [x for x in saved if isinstance(x, Tensor)], _Kept(others, needs, of_gradients, of_tangents)

    def gradients_of(needs: tuple[bool, ...], saved: tuple[Any, ...], *grads: Tensor) -> tuple[Any, ...]:
        gradients = vjp(needs, saved, *grads)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        if len(gradients) != len(arguments):
            raise RuntimeError(f"{name(op)}: vjp must return {len(arguments)} gradients, got {len(gradients)}")
        return gradients

    def checked_vjp(tensors: Sequence[Tensor], kept: _Kept, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gradients = gradients_of(kept.needs, kept.joined(tensors), *grads)
        for argument, wanted, gradient in zip(arguments, kept.of_gradients, gradients, strict=True):
            if wanted and gradient is None:
                raise no_gradient(op, argument, "have vjp return one")
            if wanted:
                check_is(op, f"the gradient of {argument} that vjp returns", vjp, wanted, gradient)
        return gradients

    def checked_jvp(tensors: Sequence[Tensor], kept: _Kept, *tangents: Tensor) -> Any:
        returned = jvp(kept.joined(tensors), *tangents)
        of_results = returned if isinstance(returned, tuple) else (returned,)
        if len(of_results) != len(results):
            raise RuntimeError(f"{name(op)}: jvp must return {len(results)} tangents, got {len(of_results)}")
        for place, (wanted, tangent) in enumerate(zip(kept.of_tangents, of_results, strict=True)):
            if wanted:
                of_place = f" of result {place}" * (len(results) > 1)
                check_is(op, f"the tangent{of_place} that jvp returns", jvp, wanted, tangent)
        return returned

    have_gradient: set[int] = set()  # the indices of arguments for which vjp has returned a gradient

    def check_tangent(place: int, inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> None:
        # jvp may ignore the tangent of an argument that has no derivative. vjp returns None for it, so we ask vjp,
        # once.
        if place not in have_gradient:
            needs = tuple(isinstance(x, Tensor) for x in inputs)
            with torch.no_grad(), private.without_tangents():
                gradients = gradients_of(needs, save(needs, inputs, results), *map(torch.zeros_like, results))
            if gradients[place] is None:
                raise no_gradient(op, arguments[place], "have vjp return one")
            have_gradient.add(place)

    register(op, Rule(split_save, checked_vjp, checked_jvp, check_tangent=check_tangent, node=node, materialize=True))


def none(op: Any) -> None:
    """Declare that an operator has no derivative: its results do not require grad.

    If the operator returns a floating-point tensor, a call with an argument that requires grad or has a tangent is an
    error, because the derivative would be lost. Integers and booleans have no derivative to lose.

    Parameters
    ----------
    op
        The overload of an operator that returns one or several new tensors.

    Raises
    ------
    TypeError, ValueError
        If it is not such an operator.

    Examples
    --------
    >>> none(op)
    >>> op(torch.ones(2, requires_grad=True))
    Traceback (most recent call last):
    RuntimeError: my_op: the operator has no derivative, but x requires grad; detach x
    """
    arguments = checked_arguments(op)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        returned = op.redispatch(private.below_autograd(keyset), *args, **kwargs)
        results = returned if isinstance(returned, tuple) else (returned,)
        if any(x.is_floating_point() or x.is_complex() for x in results):
            given = (*zip(arguments, args, strict=False), *kwargs.items())
            tensors = {argument: x for argument, x in given if isinstance(x, Tensor)}
            refuse_gradients(op, tensors, "the operator has no derivative", may_be_dual=private.may_be_dual())
        return returned

    implement(op, kernel, "Autograd", with_keyset=True)


def _check_takes(op: Any, what: str, function: Any, parameters: Sequence[str]) -> None:
    try:
        inspect.signature(function).bind(*parameters)
    except TypeError as error:
        message = f"{name(op)}: {what} must be a function that takes {', '.join(parameters)}, got {function!r}: {error}"
        raise TypeError(message) from None
