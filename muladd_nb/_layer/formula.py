"""Gradients and tangents of a formula: torch differentiates the same computation in its own operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import torch_private as private
from ._library import name
from .operator import as_tuple

Like = tuple[Sequence[int], torch.dtype]  # the shape and dtype that a result must have


class Formula:
    """An author's function that computes the results of an operator in torch's operators.

    There are ``count`` results, or as many as the operator returns. ``reads`` has the names of the arguments that the
    function takes.
    """

    def __init__(self, op: Any, function: Callable[..., Any], count: int | None = None) -> None:
        self.op, self.function = op, function
        self.count = len(private.results(op)) if count is None else count
        names = private.argument_names(op)
        self.reads = _reads_of(op, function, names)
        self.has_tensor_numbers = "is_number" in names

    def compute(self, likes: Sequence[Like | None], values: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """Call the function, with the arguments ``values``, and check its results. None is not checked."""
        results = as_tuple(self.function(*(values[x] for x in self.reads)))
        if len(results) != self.count:
            raise RuntimeError(f"{name(self.op)}: the formula must return {self.count} results, got {len(results)}")
        if self.has_tensor_numbers:
            # If a number is a float64 tensor, torch's type promotion makes results without dimensions float64.
            pairs = zip(likes, results, strict=True)
            results = tuple(y.to(like[1]) if like is not None and _is_number(y) else y for like, y in pairs)
        for i, (like, result) in enumerate(zip(likes, results, strict=True)):
            if like is not None:
                what = f"the result{f' {i}' if self.count > 1 else ''} of the formula"
                check_is(self.op, what, self.function, like, result)
        return results

    def pull(
        self, values: Mapping[str, Any], wanted: Sequence[str], grads: Sequence[Tensor | None]
    ) -> dict[str, Tensor]:
        """Return the gradients of the ``wanted`` tensors among the arguments of the function."""
        given = {x: values[x] for x in self.reads}
        # A tensor that was saved in a torch.func.vjp which has ended cannot be differentiated any more, but a view of
        # it can.
        alive = {argument: x.view_as(x) if isinstance(x, Tensor) else x for argument, x in given.items()}
        likes = [grad if grad is None else (grad.shape, grad.dtype) for grad in grads]

        def of_wanted(*xs: Tensor) -> tuple[Tensor, ...]:
            results = self.compute(likes, alive | dict(zip(wanted, xs, strict=True)))
            return tuple(y for y, grad in zip(results, grads, strict=True) if grad is not None)

        there = tuple(grad for grad in grads if grad is not None)
        if (
            torch.compiler.is_dynamo_compiling()
            or private.transforms_active()
            or (private.may_be_dual() and any(map(private.has_tangent, (*given.values(), *there))))
        ):
            pull = torch.func.vjp(of_wanted, *map(alive.get, wanted))[1]
            return dict(zip(wanted, pull(there), strict=True))
        # Outside of these cases, autograd takes half the time of torch.func (measured), and also works under hooks for
        # saved tensors.
        again = private.is_recorded((*alive.values(), *there))
        with torch.inference_mode(False), torch.enable_grad():
            # We take views, because a detach() would stay in a traced program, whose gradients could not be
            # differentiated. Views that were made in no_grad mode, as `alive` may be, have the derivative 0.
            leaves = [given[argument].view_as(given[argument]) for argument in wanted]
            leaves = [x if x.requires_grad else x.requires_grad_() for x in leaves]
            pairs = [(y, grad) for y, grad in zip(of_wanted(*leaves), there, strict=True) if y.requires_grad]
            results, gradients = zip(*pairs, strict=True) if pairs else ((), ())
            made = torch.autograd.grad(results, leaves, gradients, create_graph=again, materialize_grads=True)
        return dict(zip(wanted, made, strict=True))

    def push(
        self, values: Mapping[str, Any], tangents: Mapping[str, Tensor], likes: Sequence[Like | None]
    ) -> list[Tensor | None]:
        """Return the tangent of each result. ``likes`` has None for a result of integers."""
        # We use this level of forward mode, because torch.func cannot open another one while an operator runs.
        duals = {x: forward_ad.make_dual(values[x], tangent, level=0) for x, tangent in tangents.items()}
        computed = self.compute(likes, {**values, **duals})
        computed = tuple(y.clone() if any(y is x for x in duals.values()) else y for y in computed)
        tangents_of_results = [forward_ad.unpack_dual(y, level=0).tangent for y in computed]
        return [
            # A result that depends on no tangent is a constant.
            None if like is None else torch.zeros_like(y) if tangent is None else tangent
            for y, like, tangent in zip(computed, likes, tangents_of_results, strict=True)
        ]


def _is_number(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() == 0 and x.dtype == torch.float64


def _reads_of(op: Any, function: Any, names: Sequence[str]) -> list[str]:
    """Return the names of the parameters of a formula, which must be among ``names``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise TypeError(f"{name(op)}: the formula must be a Python function, got {function!r}") from None
    for parameter in parameters:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
            raise TypeError(f"{name(op)}: the formula must take plain parameters, got {parameter}")
        if parameter.name not in names:
            raise ValueError(f"{name(op)}: the formula reads {parameter.name}; there are {[*names]}")
    return [parameter.name for parameter in parameters]


def check_is(op: Any, what: str, function: Any, wanted: Like, got: Any) -> None:
    """Raise ``RuntimeError`` or ``TypeError`` unless an author's function returned this shape and dtype."""
    shape, dtype = wanted
    if isinstance(got, Tensor) and tuple(got.shape) == tuple(shape) and got.dtype == dtype:
        return
    code = getattr(inspect.unwrap(function), "__code__", None)
    expected = f"{name(op)}: {what} must be a tensor of shape {list(shape)} and dtype {dtype}"
    where = f"; it is made in {code.co_filename}, line {code.co_firstlineno}" if code else ""
    if not isinstance(got, Tensor):
        raise TypeError(f"{expected}, got a {type(got).__name__}{where}")
    raise RuntimeError(f"{expected}, got one of shape {list(got.shape)} and dtype {got.dtype}{where}")
