"""Registers an operator with a kernel of its own, which may have other arguments than an element-wise operator.

These may be optional tensors, lists of tensors, tensors that are written to, and arguments that are not tensors. The
schema decides which rules apply. The author's functions get all arguments by position, although the dispatcher leaves
out arguments that equal their defaults, and passes some by name.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from . import autocast, contract, derivative, functional, lowering, mutation, negative, nested, packet, unsupported
from . import torch_private as private
from ._library import check_is_first
from .fake import implement_fake
from .operator import Elementwise, Form, as_list, complete
from .vmap import implement_rule, without_batch

_KINDS = {"Optional[Tensor]": "Tensor?", "List[Tensor]": "Tensor[]", "Optional[float]": "float"}
_TENSORS = ("Tensor", "Tensor?", "Tensor[]")
_SUBSYSTEMS = (autocast, unsupported, nested, lowering, mutation, negative, functional)


def product(*factors: Any) -> Any:
    """Return the product of tensors and numbers, including the elements of lists. None is skipped."""
    each = [x for factor in factors for x in as_list(factor)]
    return functools.reduce(operator.mul, [x for x in each if x is not None], 1)


@dataclasses.dataclass(eq=False)
class Kernel(Form):
    """The form of such an operator, with its registrations."""

    @classmethod
    def of(
        cls,
        op: Any,
        dtypes: tuple[torch.dtype, ...],
        *,
        autocast: Literal["cast", "float32", "leave"] = "cast",
    ) -> Kernel:
        """Register an operator with every subsystem, except for three registrations that its author writes.

        These are a fake kernel (:meth:`fake`), a batching rule (:meth:`batched`), and a derivative or the declaration
        that there is none (:meth:`without_derivative`). An operator that writes has no derivative.

        Parameters
        ----------
        op
            The overload of the operator.
        dtypes
            The dtypes that its tensors may have.
        autocast
            What an autocast region does to tensors that the operator reads, as for :class:`Elementwise`. An operator
            that writes computes in the dtype of the tensor that it writes to.
        """
        check_is_first(op.name())
        form = cls(private.schema(op), "kernel", op, dtypes, Elementwise(autocast=autocast))
        for subsystem in _SUBSYSTEMS:
            subsystem.register(form)
        if form.floats:  # other kernels have no number that could lose a gradient
            packet.register(form)
        return form

    @property
    def operator(self) -> str:
        """The name of the overload."""
        return str(self.op.name()).partition("::")[2]

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The type of each argument, as in the schema, except that ``float`` also stands for ``float?``."""
        return {x.name: _KINDS.get(str(x.type), str(x.type)) for x in private.arguments(self.op)}

    @cached_property
    def first(self) -> str:
        """The name of the first tensor that is not optional."""
        return next(iter(self.required), "") or f"{next(iter(self.lists))}[0]"

    def tensors(self, args: Sequence[Any], *, written: bool = False) -> dict[str, Tensor]:
        """Return the tensors of a call, or those that it writes to, by name. An element of a list is called ``xs[0]``.

        Raise ``RuntimeError`` if a tensor that is not optional is None.
        """
        found: dict[str, Tensor] = {}
        for (name, kind), x in zip(self.kinds.items(), args, strict=True):
            if kind in _TENSORS and (not written or name in self.writes):
                if kind == "Tensor[]":
                    found |= {f"{name}[{i}]": y for i, y in enumerate(x)}
                elif kind == "Tensor" or x is not None:
                    found[name] = x
        contract.refuse_none(self.name, found.items())
        return found

    def targets(self, args: Sequence[Any]) -> dict[str, Any]:
        """Return the tensors that a call writes to, by their names."""
        return self.tensors(args, written=True)

    def check(self, *args: Any) -> None:
        """Raise ``RuntimeError`` unless all tensors of a call have one dtype, device and shape.

        Tensors that are written to must not overlap themselves.
        """
        if not self.required:
            name, place = next(iter(self.lists.items()))
            if not args[place]:
                raise RuntimeError(f"{self.name}: {name} must have a tensor, got none")
        contract.check_alike(self.name, self.dtypes, self.tensors(args))
        for name, x in self.targets(args).items():
            contract.check_not_self_overlapping(self.name, name, x)

    def check_beside(
        self, first: str, a: Tensor, other: str, x: Tensor | Sequence[Tensor] | None, dtypes: Sequence[torch.dtype]
    ) -> None:
        """Raise ``RuntimeError`` unless ``a`` has a dtype of the operator, and ``x`` one of these, on the same device.

        ``x`` may have another shape, such as that of an index; if it is optional, it may be None. Each tensor of a list
        is checked.
        """
        contract.check_alike(self.name, self.dtypes, {first: a})
        each = [(other, x)] if x is None or isinstance(x, Tensor) else [(f"{other}[{i}]", y) for i, y in enumerate(x)]
        for name, y in each:
            contract.check_beside(self.name, first, a, name, y, dtypes)

    def fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register the fake kernel, a function that gets all arguments."""

        def results_of(*args: Any) -> Any:
            self.tensors(args)  # refuses None
            return function(*args)

        implement_fake(self, results_of)
        return function

    def batched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register the batching rule, a function as for :func:`torch.library.register_vmap`.

        It takes ``info``, which has the ``batch_size``; the batch dimension of each argument, or None; and all
        arguments, also those that have defaults. It returns the result or results, and the batch dimension of each.
        It calls the operator through :attr:`call`.
        """

        def rule(info: Any, in_dims: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
            whole = complete(self.op, args, kwargs)
            return function(info, (*in_dims, *(None for _ in whole[len(in_dims) :])), *whole)

        implement_rule(self, rule)
        return function

    def batch_first(self, info: Any, in_dims: tuple[Any, ...], args: Sequence[Any]) -> list[Any]:
        """Return the arguments of a batching rule, with the batch dimension first in every tensor."""

        def moved(argument: str, name: str, x: Tensor, dim: int | None) -> Tensor:
            if dim is not None:
                return x.movedim(dim, 0)
            if argument in self.writes:
                raise without_batch(self, name, x)
            return x.expand(info.batch_size, *x.shape)

        first: list[Any] = []
        for (argument, kind), x, dim in zip(self.kinds.items(), args, in_dims, strict=True):
            if kind == "Tensor[]":
                dims = dim if isinstance(dim, (list, tuple)) else [dim] * len(x)
                pairs = enumerate(zip(x, dims, strict=True))
                first.append([moved(argument, f"{argument}[{i}]", y, of_y) for i, (y, of_y) in pairs])
            else:
                first.append(moved(argument, argument, x, dim) if kind in _TENSORS and x is not None else x)
        return first

    def without_derivative(self) -> None:
        """Declare that the operator has no derivative. A call that would lose one silently is an error."""
        derivative.none(self.op)
