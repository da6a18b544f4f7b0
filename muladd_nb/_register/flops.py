"""Formulas for ``torch.utils.flop_counter``: floating point operations are counted, not instructions.

That module imports Triton, or warns that there is none. So the formulas are registered when someone else imports it.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

_MODULE = "torch.utils.flop_counter"
_ops = torch.ops.muladd_nb
_PER_ELEMENT = {_ops.mymuladd: 2, _ops.mymuladd_out: 2, _ops.mymul: 1, _ops.myadd_out: 1}


def _register(flop_counter: Any) -> None:
    for op, per_element in _PER_ELEMENT.items():

        def formula(a_shape: Any, *_: Any, per_element: int = per_element, **__: Any) -> int:
            return per_element * math.prod(a_shape)

        flop_counter.register_flop_formula(op)(formula)


class _WhenImported(MetaPathFinder):
    """Finds the module as if this were not here, and registers after its import."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            _register(module)

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if _MODULE in sys.modules:
    _register(sys.modules[_MODULE])
else:
    sys.meta_path.insert(0, _WhenImported())
