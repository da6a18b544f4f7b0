"""What the public functions are made of: a short way to the kernel, ``out=``, and numbers that change.

``torch.compile`` makes a constant of a ``float`` argument, and compiles again for the next one. So while it traces, a
number that changes goes into the program as a tensor, to the form that takes it as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Complex, Real
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling

from .. import _torch_private as private
from ._library import written_out
from .derivative import no_gradient
from .operator import FUNCTIONAL, TENSOR_NUMBERS, WRITING, Form
from .recording import PLAIN, recorder

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_SYMBOLIC = (torch.SymInt, torch.SymFloat)

# Below autograd, whose kernels are in Python, a small call is twice as fast; in inference mode the dispatcher itself
# goes there. A subclass, and a program that is traced, come to `otherwise`.
_FUNCTION = """
def {name}({arguments}, out=None):
    if is_dynamo_compiling():
        return otherwise({arguments}, out)
{ways}
    return otherwise({arguments}, out)
"""
_WAY = """\
    if {plain}:
        if is_inference_mode_enabled():
            if out is None:
                return functional_{row}({arguments})
            if type(out) is Tensor:
                writing_{row}({arguments}, out)
                return out
        elif unobserved():
            recorded = is_grad_enabled() and ({requires_grad})
            if out is None:
                if not recorded:
                    return functional_below_{row}({arguments})
                result = record_{row}({arguments})
                if result is not None:
                    return result
            elif type(out) is Tensor and not (recorded or (out.requires_grad and is_grad_enabled())):
                writing_below_{row}({arguments}, out)
                return out
"""


def public(forms: Sequence[Form], name: str) -> Callable[..., Any]:
    """Return what calls the operator ``name`` with the arguments of its schema, and ``out`` or None.

    Where the operator has overloads, the first is called that takes tensors where tensors come.
    """
    rows: dict[str, dict[int, Form]] = {}
    for form in forms:
        if form.declaration.partition("(")[0].partition(".")[0] == name:
            rows.setdefault(form.declaration, {})[form.kind] = form
    callers = [_Caller(name, by_kind, len(rows) > 1) for by_kind in rows.values()]

    def otherwise(*args: Any) -> Any:
        *inputs, out = args
        for caller in callers:
            if not any(isinstance(args[place], Tensor) for place in caller.numbers.values()):
                return caller(inputs, out)
        return callers[0](inputs, out)

    scope = {
        "Tensor": Tensor,
        "TENSORS": PLAIN,
        "NUMBERS": frozenset({float, int, bool}),
        "is_dynamo_compiling": is_dynamo_compiling,
        "is_grad_enabled": torch.is_grad_enabled,
        "is_inference_mode_enabled": torch.is_inference_mode_enabled,
        "unobserved": private.unobserved,
        "otherwise": otherwise,
    }
    for row, caller in enumerate(callers):
        scope |= caller.short_ways(row, otherwise)
    source = _FUNCTION.format(
        name=name,
        arguments=", ".join(callers[0].arguments),
        ways="".join(caller.source(row) for row, caller in enumerate(callers)),
    )
    return written_out(name, source, scope)


class _Caller:
    """Calls the forms of one declaration."""

    def __init__(self, name: str, by_kind: dict[int, Form], is_one_of_several: bool) -> None:
        self.by_kind = by_kind
        self.form = by_kind.get(FUNCTIONAL) or by_kind[WRITING]
        self.name = name if FUNCTIONAL in by_kind else self.form.name
        self.inputs, self.numbers = self.form.inputs, self.form.numbers
        # Not their own names, which could be those of the scope.
        self.arguments = [f"x{place}" for place in range(len(self.inputs) + len(self.numbers))]
        self.expected = "a real number or a tensor" if is_one_of_several else "a real number"

    def source(self, row: int) -> str:
        tensors = [self.arguments[place] for place in self.inputs.values()]
        plain = [f"type({x}) in {'TENSORS' if x in tensors else 'NUMBERS'}" for x in self.arguments]
        return _WAY.format(
            row=row,
            arguments=", ".join(self.arguments),
            plain=" and ".join(plain),
            requires_grad=" or ".join(f"{x}.requires_grad" for x in tensors),
        )

    def short_ways(self, row: int, otherwise: Callable[..., Any]) -> dict[str, Any]:
        ways: dict[str, Any] = {f"record_{row}": recorder(self.form) or (lambda *args: None)}
        for kind, which in ((FUNCTIONAL, "functional"), (WRITING, "writing")):
            form = self.by_kind.get(kind)
            missing = (lambda *args: otherwise(*args, None)) if kind == FUNCTIONAL else otherwise
            ways[f"{which}_{row}"] = missing if form is None else private.entry_point(form.op)
            ways[f"{which}_below_{row}"] = missing if form is None else _below(form)
        return ways

    def __call__(self, args: list[Any], out: Any) -> Any:
        for argument, place in self.numbers.items():
            x = args[place]
            if not isinstance(x, (*_NUMBERS, Tensor)) and isinstance(x, Complex) and not isinstance(x, Real):
                raise TypeError(f"{self.name}: {argument} must be {self.expected}, got {x!r}")
        if out is None and FUNCTIONAL in self.by_kind:
            return self._call(FUNCTIONAL, args)
        tensors = {argument: args[place] for argument, place in self.inputs.items()}
        refuse_gradients(self.name, **tensors, out=out)
        self._call(WRITING, [*args, out])
        return out

    def _call(self, kind: int, args: list[Any]) -> Any:
        form, of_tensors = self.by_kind[kind], self.by_kind.get(kind | TENSOR_NUMBERS)
        places = self.numbers.values()
        if not is_compiling() and not any(isinstance(args[place], _SYMBOLIC) for place in places):
            for argument, place in self.numbers.items():
                # torch makes a number of a tensor of one element, and forgets its gradient.
                if isinstance(args[place], Tensor) and private.needs_recording((args[place],)):
                    raise no_gradient(form.op, argument, form.promises.instead)
            return form.op(*args)
        if of_tensors is not None and not all(is_constant(args[place]) for place in places):
            form = of_tensors
            args = [as_tensor(x) if place in places else x for place, x in enumerate(args)]
        out = args[-1]
        if kind == WRITING and isinstance(out, Tensor) and private.base(out) is not None:
            # Of what an operator writes into a view, the compiler may lose the start: auto_functionalize where the base
            # starts past its storage, Inductor where shapes are dynamic. It knows what a copy is.
            args[-1] = torch.empty_like(out)
            form.op(*args)
            return out.copy_(args[-1])
        return form.op(*args)


def _below(form: Form) -> Callable[..., Any]:
    """Return what calls an operator below autograd."""
    if form.below is not None:
        below: Callable[..., Any] = private.entry_point(form.below)
        return below
    entry = private.entry_point(form.op)

    def guarded(*args: Any) -> Any:
        with private.BelowAutograd():
            return entry(*args)

    return guarded


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
