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
from torch import Tensor

from .operator import Form

_MODULE = "torch.utils.flop_counter"
_per_element: dict[Any, int] = {}  # for all overloads of an operator, as torch has it
_of_row: dict[Any, list[int]] = {}  # the places of tensors that have one value for each row


def register(form: Form) -> None:
    """Note the formula of an operator, for now or for when the module is imported."""
    packet, flops = form.op.overloadpacket, form.promises.flops
    if _per_element.setdefault(packet, flops) != flops:
        raise ValueError(
            f"{form.name}: every overload must have the same flops, got {_per_element[packet]} and {flops}"
        )
    if form.of_row:
        _of_row[packet] = [place for place, one in zip(form.inputs.values(), form.of_row[1], strict=True) if one]
    if _MODULE in sys.modules:
        _register(sys.modules[_MODULE])
    elif not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())


def _register(flop_counter: Any) -> None:
    for op, per_element in _per_element.items():
        if op in flop_counter.flop_registry:
            continue

        def formula(*args: Any, op: Any = op, per_element: int = per_element, **_: Any) -> int:
            left_out = _of_row.get(op, ())
            whole = [x for place, x in enumerate(args) if isinstance(x, Tensor) and place not in left_out]
            tensors = [x.values() if x.is_nested else x for x in whole]
            return per_element * math.prod(torch.broadcast_shapes(*(x.shape for x in tensors)))

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
