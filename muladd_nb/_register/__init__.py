"""What Python adds to the operators that C++ declared: one subsystem of PyTorch, one file, one rule for all."""

from __future__ import annotations

from collections.abc import Mapping

from .. import _C
from . import autocast, autograd, fake, flops, mutation, negative, nested, unsupported, vmap
from .operator import Elementwise, Form, declared

__all__ = ["Elementwise", "register"]


def register(table: Mapping[str, Elementwise]) -> list[Form]:
    """Register what the operators of ``table`` promise with every subsystem; return their forms."""
    forms = declared(_C.operators(), table)
    for subsystem in (fake, autograd, mutation, vmap, autocast, flops, nested, negative, unsupported):
        for form in forms:
            subsystem.register(form)
    return forms
