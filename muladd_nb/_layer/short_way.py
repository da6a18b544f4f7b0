"""Small calls: plain tensors, whose operators no one listens to, go straight to the kernel, or are recorded by ATen.

The derivative of ``a * b + c`` is that of ``a * b``. So ``torch.mul`` records a result, which then gets the memory in
which the kernel has computed its own. The values are the kernel's, to the bit, and the gradients those of the product;
and a node in C++ stands for one in Python, which takes several times as long.

A call has no time for a loop over its arguments, or for a function for each question. So the way is source, written out
for an operator. Its own names begin with an underscore, as no argument of an operator does.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from . import torch_private as private
from ._library import namespace
from .operator import FUNCTIONAL, Form, by_position

# Above it, to compute twice takes longer than the node in Python (measured).
_SMALL = 2**16

_WAY = """\
    if {plain} and {unobserved}:
        _recorded = _is_grad_enabled() and ({requires_grad})
"""
_TO_RESULT = """\
        if {out} is None:
            if not _recorded:
                return _functional_{row}({arguments})
"""
# The kernel comes first: it checks, in its own words. The same in C++ takes longer: there an operator is called by its
# name (torch_call_dispatcher).
_RECORDED = """\
            if {first}.numel() <= _SMALL and not _autocasts():
                _value = _functional_{row}({arguments})
                _result = _aten_{row}({tensors})
                _result.data = _value
                return _result
"""
_INTO_OUT = """\
        if _type({out}) is _Tensor and not (_recorded or ({out}.requires_grad and _is_grad_enabled())):
            _writing_{row}({arguments}, {out})
            return {returned}
"""

_IS_PLAIN = {
    "Tensor": "_type({0}) in _PLAIN",
    "Tensor?": "({0} is None or _type({0}) in _PLAIN)",
    "float": "(_type({0}) is _float or _type({0}) in _WHOLE and -_MAX <= {0} <= _MAX)",
    "int": "_type({0}) is _int and -_FIRST_PAST <= {0} < _FIRST_PAST",
    "bool": "_type({0}) is _bool",
}
_REQUIRES_GRAD = {"Tensor": "{0}.requires_grad", "Tensor?": "({0} is not None and {0}.requires_grad)"}

_KERNEL = """\
def kernel{signature}:
{way}\
    return _otherwise(_keyset, {parameters})
"""

_SCOPE = {
    "_type": type,
    "_Tensor": Tensor,
    "_PLAIN": frozenset({Tensor, Parameter}),
    "_float": float,
    "_WHOLE": frozenset({int, bool}),
    "_MAX": sys.float_info.max,  # an int may be larger
    "_int": int,
    "_bool": bool,
    "_FIRST_PAST": 2**63,  # the first int that an int64 does not hold
    "_SMALL": _SMALL,
    "inf": math.inf,  # as the default of an argument is written
    "nan": math.nan,
    "_is_grad_enabled": torch.is_grad_enabled,
}


def written_out(name: str, source: str, scope: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function ``name`` of Python's source, which reads ``scope``, and the names of ``torch_private``."""
    private_names = {f"_{known.lstrip('_')}": value for known, value in vars(private).items()}
    names = {**private_names, **_SCOPE, **scope}
    exec(compile(source, f"<{namespace}: {name}>", "exec"), names)
    function: Callable[..., Any] = names[name]
    return function


def way(
    functional: Form | None, writing: Form | None, arguments: Sequence[str], out: str, row: int = 0
) -> tuple[str, dict[str, Any]]:
    """Return source that calls the forms of a declaration and returns, or goes on where that is not the way; and scope.

    Parameters
    ----------
    functional, writing
        The forms that it calls.
    arguments, out
        What they are called. ``out`` is returned where there is a functional form, too.
    row
        What tells it from other declarations in the same function.
    """
    form = functional or writing
    assert form is not None
    tensors = [arguments[place] for place in form.required.values()]
    kinds = [*zip(arguments, form.kinds.values(), strict=True)]
    source, scope = _WAY, {}
    if functional:
        source += _TO_RESULT
        scope[f"_functional_{row}"] = _below_autograd(functional)
        if functional.promises.aten and functional.below:
            source += _RECORDED
            scope[f"_aten_{row}"] = functional.promises.aten
    if writing:
        source += _INTO_OUT
        scope[f"_writing_{row}"] = _below_autograd(writing)
    return source.format(
        plain=" and ".join(_IS_PLAIN[kind].format(x) for x, kind in kinds),
        unobserved=private.UNOBSERVED,
        requires_grad=" or ".join(_REQUIRES_GRAD[kind].format(x) for x, kind in kinds if kind in _REQUIRES_GRAD),
        first=tensors[0],
        tensors=", ".join(tensors),
        arguments=", ".join(arguments),
        out=out,
        returned=out if functional else None,
        row=row,
    ), scope


def before(kernel: Callable[..., Any], form: Form) -> Callable[..., Any]:
    """Return a kernel at Autograd that takes the short way of an operator, where it has one, or calls ``kernel``."""
    if form.below is None:
        return kernel
    parameters = private.argument_names(form.op)
    keyset = inspect.Parameter("_keyset", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([keyset, *map(_parameter, private.arguments(form.op))])
    if form.kind == FUNCTIONAL:
        source, scope = way(form, None, parameters, "None")
    else:
        source, scope = way(None, form, parameters[:-1], parameters[-1])
    source = _KERNEL.format(signature=signature, parameters=", ".join(parameters), way=source)
    return written_out("kernel", source, {"_otherwise": kernel, **scope})


def _parameter(argument: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
    return inspect.Parameter(argument.name, kind, default=default)


def _below_autograd(form: Form) -> Callable[..., Any]:
    """Return what calls an operator below autograd, on plain tensors to which no one listens."""
    op = form.below or form.op
    entry = by_position(private.entry_point_of_plain(op), op)

    def guarded(*args: Any) -> Any:
        with private.BelowAutograd():
            return entry(*args)

    return entry if form.below else guarded
