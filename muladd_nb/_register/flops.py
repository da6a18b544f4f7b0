"""Formulas for ``torch.utils.flop_counter``: floating point operations are counted, not instructions.

That module imports Triton, or warns that there is none. So the formulas are registered when someone else imports it.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

_MODULE = "torch.utils.flop_counter"
_ops = torch.ops.muladd_nb
_PER_ELEMENT = {_ops.mymuladd: 2, _ops.mymuladd_out: 2, _ops.mymul: 1, _ops.myadd_out: 1}


def _elements(a: Any) -> int:
    return (a.values() if a.is_nested else a).numel()


def _register(flop_counter: Any) -> None:
    for op, per_element in _PER_ELEMENT.items():

        def formula(a: Any, *_: Any, per_element: int = per_element, **__: Any) -> int:
            return per_element * _elements(a)

        flop_counter.register_flop_formula(op, get_raw=True)(formula)


class _WhenImported(MetaPathFinder):
    """Finds the module as if this were not here, and registers after its import."""

    searching = False

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            _register(module)
            sys.meta_path.remove(self)

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if _MODULE in sys.modules:
    _register(sys.modules[_MODULE])
else:
    sys.meta_path.insert(0, _WhenImported())
