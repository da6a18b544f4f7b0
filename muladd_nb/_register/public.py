"""What the public functions are made of: a short way to the kernel, ``out=``, and numbers that change.

``torch.compile`` makes a constant of a ``float`` argument, and compiles again for the next one. So while it traces, a
number that changes goes into the program as a tensor, to the form that takes it as one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper
from numbers import Complex, Real
from textwrap import indent
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling

from .. import _torch_private as private
from ._library import written_out
from .derivative import no_gradient
from .operator import FUNCTIONAL, OUT, TENSOR_NUMBERS, WRITING, Form
from .recording import PLAIN, recording

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_SYMBOLIC = (torch.SymInt, torch.SymFloat)

# Below autograd, whose kernels are in Python, a small call is twice as fast. A subclass, and a program that is traced,
# come to `_otherwise`.
_FUNCTION = """\
def {name}{signature}:
    if _is_dynamo_compiling():
        return _otherwise({arguments}, {out})
{ways}\
    return _otherwise({arguments}, {out})
"""
_WAY = """\
    if {plain} and {unobserved}:
        _recorded = _is_grad_enabled() and ({requires_grad})
        if {out} is None:
            if not _recorded:
                return _functional_{row}({arguments})
{record}\
        elif _type({out}) is _Tensor and not (_recorded or ({out}.requires_grad and _is_grad_enabled())):
            _writing_{row}({arguments}, {out})
            return {returned}
"""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def public(forms: Sequence[Form], fused: Callable[..., Any] | None = None) -> Callable[[_Function], _Function]:
    """Return a decorator that makes the public function of an operator of one that has its signature, and no body.

    Its name is that of the operator. Where the operator has overloads, the first is called that takes tensors where
    tensors come.

    Parameters
    ----------
    forms
        All that were registered.
    fused
        Takes the arguments but ``out``, and returns what is compiled in place of the operator, or None.

    Raises
    ------
    ValueError
        If there is no operator of that name.
    """

    def decorate(function: _Function) -> _Function:
        name = function.__name__
        rows: dict[str, dict[int, Form]] = {
            form.declaration: {} for form in forms if form.name == name and not form.kind & OUT
        }
        for form in forms:
            if form.declaration in rows:
                rows[form.declaration][form.kind] = form
        if not rows:
            raise ValueError(f"{name}: there is no operator of this name, only {sorted({form.name for form in forms})}")
        callers = [_Caller(name, by_kind, len(rows) > 1) for by_kind in rows.values()]

        def otherwise(*args: Any) -> Any:
            *inputs, out = args
            if fused is not None and out is None and is_compiling():
                result = fused(*inputs)
                if result is not None:
                    return result
            for caller in callers:
                if not any(isinstance(args[place], Tensor) for place in caller.numbers.values()):
                    return caller(inputs, out)
            return callers[0](inputs, out)

        # In the source, the annotations would be values.
        signature = inspect.signature(function)
        bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
        *arguments, out = [*signature.parameters] + ["None"] * ("out" not in signature.parameters)
        scope = {
            "_Tensor": Tensor,
            "_PLAIN": PLAIN,
            "_NUMBERS": frozenset({float, int, bool}),
            "_is_dynamo_compiling": is_dynamo_compiling,
            "_is_grad_enabled": torch.is_grad_enabled,
            "_otherwise": otherwise,
        }
        ways = ""
        for row, caller in enumerate(callers):
            source, calls = caller.short_way(row, arguments, out, otherwise)
            ways += source
            scope |= calls
        source = _FUNCTION.format(
            name=name,
            signature=inspect.Signature(bare),
            arguments=", ".join(arguments),
            out=out,
            ways=ways,
        )
        written: Any = update_wrapper(written_out(name, source, scope), function)
        return written

    return decorate


class _Caller:
    """Calls the forms of one declaration."""

    def __init__(self, name: str, by_kind: dict[int, Form], is_one_of_several: bool) -> None:
        self.name = name
        self.by_kind = by_kind
        self.form = by_kind.get(FUNCTIONAL) or by_kind[WRITING]
        self.inputs, self.numbers = self.form.inputs, self.form.numbers
        self.expected = "a real number or a tensor" if is_one_of_several else "a real number"

    def short_way(
        self, row: int, arguments: list[str], out: str, otherwise: Callable[..., Any]
    ) -> tuple[str, dict[str, Any]]:
        """Return the source of the way to the kernel, and what it calls."""
        tensors = [arguments[place] for place in self.inputs.values()]
        record, calls = recording(self.form, arguments, row)
        source = _WAY.format(
            row=row,
            arguments=", ".join(arguments),
            out=out,
            returned=out if FUNCTIONAL in self.by_kind else None,
            plain=" and ".join(f"_type({x}) in {'_PLAIN' if x in tensors else '_NUMBERS'}" for x in arguments),
            unobserved=private.UNOBSERVED,
            requires_grad=" or ".join(f"{x}.requires_grad" for x in tensors),
            record=indent(record, 12 * " "),
        )
        functional, writing = self.by_kind.get(FUNCTIONAL), self.by_kind.get(WRITING)
        calls[f"_functional_{row}"] = _below(functional) if functional else lambda *args: otherwise(*args, None)
        calls[f"_writing_{row}"] = _below(writing) if writing else otherwise
        return source, calls

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
        return out if FUNCTIONAL in self.by_kind else None

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
    """Return what calls an operator below autograd, on plain tensors that nothing observes."""
    entry = private.entry_point_of_plain(form.below or form.op)

    def guarded(*args: Any) -> Any:
        with private.BelowAutograd():
            return entry(*args)

    return entry if form.below else guarded


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
