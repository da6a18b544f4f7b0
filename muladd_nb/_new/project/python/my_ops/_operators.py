"""The table of operators. ``_layer/operator.py`` documents what an entry can say."""

from __future__ import annotations

from importlib import import_module

from ._layer import Elementwise, register

# The declarations are those of src/operators.h.
TABLE: dict[str, Elementwise] = {}

# Operators with their own kernels: each has a file `_NAME.py`.
KERNELS: list[str] = []

FORMS = register(TABLE) + [import_module(f"._{name}", __package__).FORM for name in KERNELS]
