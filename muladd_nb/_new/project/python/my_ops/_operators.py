"""What the operators promise: ``_layer/operator.py`` says what there is to promise of an element-wise one."""

from __future__ import annotations

from importlib import import_module

from ._layer import Elementwise, register

# As C++ declares them.
TABLE: dict[str, Elementwise] = {}

# Those that are not element-wise have a file each.
KERNELS: list[str] = []

FORMS = register(TABLE) + [import_module(f"._{name}", __package__).FORM for name in KERNELS]
