"""Registers with PyTorch's subsystems the operators that C++ declared.

Each module in ``SUBSYSTEMS`` has the rule for one subsystem. The others help them.

No file in this folder names an operator: ``muladd-nb new`` copies it unchanged, and ``muladd-nb update`` renews it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .load import load

load()  # first, because the imports below read what the kernels have registered

from .. import _C  # noqa: E402
from . import autocast, autograd, fake, functional, lowering, mutation, negative, nested, packet, unsupported, vmap  # noqa: E402
from . import torch_private as private  # noqa: E402
from ._library import check_is_first, namespace  # noqa: E402
from .operator import Elementwise, Form, declared  # noqa: E402

__all__ = ["Elementwise", "register"]

SUBSYSTEMS = (fake, lowering, autograd, mutation, functional, vmap, autocast, nested, negative, unsupported, packet)


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Keep Python from looking for garbage among all of torch's objects, which takes longer than the registration."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@garbage_collection_off()
def register(table: Mapping[str, Elementwise]) -> list[Form]:
    """Register the operators of ``table`` with every subsystem, and return their forms."""
    operators = _C.operators()
    forms = declared(operators, table)
    check_is_first("its operators")
    for subsystem in SUBSYSTEMS:
        for form in forms:
            subsystem.register(form)
    lowering.tag_caches(Path(__file__).parent.parent, operators, private.schemas(namespace))
    return forms
