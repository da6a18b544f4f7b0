"""Sets up the fast path of small calls: if nothing observes a call on plain tensors, it goes directly to the kernel.

In Python, the checks alone would take as long as the call, so the functions are in C
(``src/elementwise/python/fast_path.h``).

If the entry of an operator names an operator of ATen with the same derivative (``aten``), a small call is recorded in
three steps: the kernel computes the result, ATen's operator records a second result, and the second gets the memory of
the first. Its values are the kernel's, and its node is ATen's, in C++; a node in Python takes several times as long.
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
    """How the function in C calls the forms of a declaration."""

    declaration: str
    returns: bool  # whether it returns its results or `out`, and not None
    aten: Callable[..., Tensor] | None  # calls ATen's operator whose node in C++ has the same derivative
    recorder: Callable[..., Any] | None  # records a call in Python, given a tuple of its results and all arguments
    recorded: str  # the declaration of the operator that computes the results for `recorder`
    tensor_numbers: bool  # whether floats are passed as tensors


def fast_paths(form: Form, *, returns: bool) -> list[FastPath]:
    """Return how the function in C calls the forms of a declaration; an empty list if there is no fast path.

    ``form`` is the functional form, if there is one. ``returns`` says whether the function returns its results or
    ``out``.
    """
    if not _REACHES_TENSORS:
        return []
    aten = form.promises.aten if returns and not form.tensor_numbers else None
    recorded = form if form.by else form.family.get(("recorded",), form)
    recorder = form.made.recorder if returns else None
    return [FastPath(form.declaration, returns, aten, recorder, recorded.declaration, form.tensor_numbers)]


def parameters(op: Any) -> list[tuple[str, bool, Any, bool]]:
    """Return for each parameter: its name, whether it has a default, the default, and whether it is keyword-only."""
    return [(x.name, x.has_default_value(), x.default_value, x.kwarg_only) for x in private.arguments(op)]


def caller(form: Form) -> Callable[..., Any]:
    """Return a function that calls a functional operator by position, and takes the fast path if it can."""
    op, direct = form.op, direct_caller(form, otherwise=form.op)

    def call(*args: Any) -> Any:
        return (op if torch.compiler.is_dynamo_compiling() else direct)(*args)  # Dynamo cannot trace functions in C

    return call


def direct_caller(form: Form, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function in C that takes the fast path, or else calls ``otherwise``. Dynamo cannot trace it."""
    if form.kind != "functional" or form.tensor_numbers:
        return otherwise
    positional = [(name, False, None, False) for name in private.argument_names(form.op)]
    return _C.fast_path(positional, fast_paths(form, returns=True), None, otherwise, has_out=False)


def with_fast_path(kernel: Callable[..., Any], form: Form | None) -> Callable[..., Any]:
    """Return a kernel that takes the fast path of an operator, or else calls ``kernel``."""
    if form is None or form.kind not in ("functional", "writing", "updating"):
        return kernel
    private.skip_in_dynamo(kernel)
    given = [x for x in parameters(form.op) if x[0] != "is_number"]  # it only distinguishes two overloads
    return _C.fast_path(
        [("keyset", False, None, False), *given],
        fast_paths(form, returns=form.kind == "functional"),
        None,
        kernel,
        has_out=form.kind == "writing",
        leading=1,
    )
