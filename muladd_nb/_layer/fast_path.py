"""Small calls: plain tensors, whose operators no one listens to, go straight to the kernel, or are recorded by ATen.

In Python the questions alone would take as long as the call, so the functions here are C
(``src/elementwise/python/fast_path.h``).

The derivative of ``a * b + c`` is that of ``a * b``. So ``torch.mul`` records a result, into which the kernel then
writes its own values. The values are the kernel's, to the bit, and the gradients those of the product; and a node in
C++ stands for one in Python, which takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import _C
from . import torch_private as private
from .operator import Form

_REACHES_TENSORS = _C.set_up(private, Tensor, Parameter) and _C.wants_fast_path()
for enabled in False, True:
    with torch.inference_mode(enabled):
        _C.note_inference_mode()


class FastPath(NamedTuple):
    """How a function in C calls the forms of a declaration."""

    declaration: str
    returns: bool  # its results, or `out`, and not None
    aten: Callable[..., Tensor] | None  # records the same derivative by a node in C++
    recorder: Callable[..., Any] | None  # records a call, given a tuple of its results and all arguments


def fast_paths(form: Form, *, returns: bool) -> list[FastPath]:
    """Return how a function in C calls the forms of a declaration: an empty list where it cannot reach tensors.

    Parameters
    ----------
    form
        One of them: the functional one, if there is one.
    returns
        Whether the function returns its results, or ``out``.
    """
    recording = (form.promises.aten, form.made.recorder) if returns else (None, None)
    return [FastPath(form.declaration, returns, *recording)] if _REACHES_TENSORS else []


def caller(form: Form, otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return what calls an operator that returns its results with all arguments by position.

    Where there is no fast path, ``otherwise`` is called, or the operator itself.
    """
    call: Callable[..., Any] = otherwise or form.op
    if form.kind != "functional" or form.tensor_numbers:
        return call
    parameters = [(x.name, False, None, False) for x in private.arguments(form.op)]
    return _C.fast_path(parameters, fast_paths(form, returns=True), call, call, has_out=False)


def with_fast_path(kernel: Callable[..., Any], form: Form | None) -> Callable[..., Any]:
    """Return a kernel at Autograd that takes the fast path of an operator, where it has one, or calls ``kernel``."""
    if form is None or form.kind not in ("functional", "writing") or form.tensor_numbers:
        return kernel
    private.skip_in_dynamo(kernel)
    arguments = private.arguments(form.op)
    return _C.fast_path(
        [
            ("keyset", False, None, False),
            *((x.name, x.has_default_value(), x.default_value, x.kwarg_only) for x in arguments),
        ],
        fast_paths(form, returns=form.kind == "functional"),
        kernel,
        kernel,
        has_out=form.kind == "writing",
        leading=1,
    )
