"""What the public functions are made of: ``out=``, and numbers that change without compiling again.

``torch.compile`` makes a constant of a ``float`` argument, and compiles again for the next one. So while it traces, a
number that changes goes into the program as a tensor, to the form that takes it as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from .. import _torch_private as private
from .derivative import no_gradient
from .operator import FUNCTIONAL, TENSOR_NUMBERS, WRITING, Form

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def public(forms: Sequence[Form], name: str) -> Callable[..., Any]:
    """Return what calls the operator ``name`` with the arguments of its schema, and may be given ``out``."""
    by_kind = {form.kind: form for form in forms if form.declaration.partition("(")[0] == name}
    functional, writing = _caller(by_kind, FUNCTIONAL), _caller(by_kind, WRITING)

    def call(*args: Any, out: Tensor | None = None) -> Any:
        if out is None:
            return functional(*args)
        writing(*args, out)
        return out

    return call


def _caller(by_kind: dict[int, Form], kind: int) -> Callable[..., Any]:
    if kind not in by_kind:
        return lambda *args: None
    form, of_tensors = by_kind[kind], by_kind.get(kind | TENSOR_NUMBERS)
    op, name, instead, numbers = form.op, form.name, form.promises.instead, form.numbers
    places = frozenset(numbers.values())
    tensors = form.inputs if kind == FUNCTIONAL else {**form.inputs, "out": len(form.inputs) + len(numbers)}
    below, is_tracing = private.entry_point(op), private.is_tracing

    def call(*args: Any) -> Any:
        if kind == WRITING:
            refuse_gradients(name, **{argument: args[place] for argument, place in tensors.items()})
        if is_compiling() or any(isinstance(args[place], _SYMBOLIC) for place in places):
            chosen = op
            if of_tensors is not None and not all(is_constant(args[place]) for place in places):
                chosen = of_tensors.op
                args = tuple(as_tensor(x) if place in places else x for place, x in enumerate(args))
            if kind == WRITING:
                views = dict(zip(tensors.values(), no_slice(*(args[place] for place in tensors.values())), strict=True))
                args = tuple(views.get(place, x) for place, x in enumerate(args))
            return chosen(*args)
        for argument, place in numbers.items():
            # torch makes a number of a tensor of one element, and forgets its gradient.
            if isinstance(args[place], Tensor) and private.needs_recording((args[place],)):
                raise no_gradient(op, argument, instead)
        # The Autograd kernels are in Python: without them a small call is twice as fast (benchmarks/per_call.py).
        if not private.needs_recording(args) and not is_tracing():
            for place in tensors.values():
                if type(args[place]) is not Tensor:
                    break
            else:
                with private.BelowAutograd():
                    return below(*args)
        return op(*args)

    return call


def refuse_gradients(op: str, **tensors: Any) -> None:
    """Raise ``RuntimeError`` if one of the tensors of an operator that writes into ``out`` requires grad."""
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        # `is True`: what torch.fx traces, or duck-types a tensor, answers otherwise, and is left to the operator.
        if not isinstance(tensor, _NUMBERS) and getattr(tensor, "requires_grad", None) is True:
            raise RuntimeError(
                f"{op}: no gradient is recorded through out, but {name} requires grad; "
                f"call it under torch.no_grad(), or detach {name}"
            )


def is_constant(number: Any) -> bool:
    """Return whether a number is a constant of the program that is traced, not a value that changes between calls."""
    from torch.fx.experimental.symbolic_shapes import has_static_value

    # What is no real number is left to the operator, which refuses it.
    return isinstance(number, complex) or (isinstance(number, _NUMBERS) and has_static_value(number))


def as_tensor(number: Any) -> Tensor:
    """Return a number as a form with ``TENSOR_NUMBERS`` takes it."""
    if not isinstance(number, _NUMBERS):  # a NumPy scalar, which Dynamo traces as an array
        return torch.as_tensor(number).to("cpu", torch.float64)
    # An addition, because it is among the few operations for which the compiler keeps a float an input: of
    # torch.tensor(number) it makes a constant. Adding to -0.0 changes no bit.
    zero: Any = torch.full((), -0.0, dtype=torch.float64, device="cpu")
    return zero + number


def no_slice(*tensors: Tensor) -> list[Tensor]:
    """Return views of the tensors, the last of which is written, that torch does not take for slices.

    Of a slice of an input that itself starts past its storage, auto_functionalize takes the start for one in that
    input, and the write goes elsewhere. It takes for a slice what has as many dimensions as its base, and its strides.
    """
    out = tensors[-1]
    alike = all(x.dim() == out.dim() and all(map(_equal, x.shape, out.shape)) for x in tensors)
    if not alike or any(map(private.is_wrapper_subclass, tensors)):
        return list(tensors)  # whose sentence has their shapes; and a wrapper is no view of memory
    return [x[None, None, ..., None, None] for x in tensors]


def _equal(x: int, y: int) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(x == y)
