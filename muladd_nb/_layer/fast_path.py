"""Sets up the fast path of small calls: if nothing observes a call on plain tensors, it goes directly to the kernel.

In Python, the checks alone would take as long as the call, so the functions are in C
(``src/elementwise/python/fast_path.h``).

If a gradient is recorded, a node in Python gets the kernel's results, or a node of ATen (``aten_node.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import _C
from . import torch_private as private
from .operator import Form

_C.set_up(private, Tensor, Parameter)
for enabled in False, True:
    with torch.inference_mode(enabled):
        _C.note_inference_mode()


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
    return _C.fast_path(positional, [form], None, otherwise, has_out=False)


def with_fast_path(kernel: Callable[..., Any], form: Form | None) -> Callable[..., Any]:
    """Return a kernel that takes the fast path of an operator, or else calls ``kernel``."""
    if form is None or form.kind not in ("functional", "writing", "updating"):
        return kernel
    private.skip_in_dynamo(kernel)
    given = [x for x in parameters(form.op) if x[0] != "is_number"]  # it only distinguishes two overloads
    return _C.fast_path(
        [("keyset", False, None, False), *given],
        [form],
        None,
        kernel,
        has_out=form.kind == "writing",
        leading=1,
    )
