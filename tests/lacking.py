"""Removes a private name from torch, or replaces one of its C++ functions, while a package is imported."""

from __future__ import annotations

import importlib
import sys
import warnings
from functools import reduce
from importlib.abc import MetaPathFinder
from types import SimpleNamespace
from typing import Any

import pytest
import torch


def import_without(package: str, path: str, instead: str = "") -> list[str]:
    """Import a package while torch lacks `module:name.name` or the whole `module`. Return the package's warnings.

    ``instead`` is the symbol of a function that replaces one of torch's C++ functions.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr(sys, "meta_path", [_Without(f"{package}._layer.torch_private", path, instead), *sys.meta_path])
        importlib.import_module(package)
    return [str(warning.message) for warning in caught]


class _Without(MetaPathFinder):
    """Finds a module as usual, and removes a name of torch while the module runs."""

    def __init__(self, module: str, path: str, instead: str) -> None:
        self.module, self.path, self.instead = module, path, instead

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.module:
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec: Any = next(filter(None, found))
        execute = spec.loader.exec_module

        def execute_without(module: Any) -> None:
            with pytest.MonkeyPatch.context() as patch:
                _take_away(patch, self.module.partition(".")[0], self.instead, *self.path.split(":"))
                execute(module)

        spec.loader.exec_module = execute_without
        return spec


def _take_away(patch: pytest.MonkeyPatch, package: str, instead: str, module: str, names: str = "") -> None:
    if module == "libtorch":
        compiled = importlib.import_module(f"{package}._C")
        address, other = compiled.address, compiled.address(instead) if instead else 0
        return patch.setattr(compiled, "address", lambda symbol: other if symbol == names else address(symbol))
    found = importlib.import_module(module)
    if not names:
        return patch.setitem(sys.modules, module, None)
    *outer, name = names.split(".")
    owner: Any = reduce(getattr, outer, found)
    if name in getattr(owner, "__annotations__", ()) and isinstance(owner, type):  # only instances have it
        return patch.delitem(owner.__annotations__, name)
    if owner is torch._C.TensorBase:  # immutable, so we replace the whole class
        others = {key: getattr(owner, key) for key in dir(owner) if key != name}
        return patch.setattr(found, outer[0], SimpleNamespace(**others))
    for has in (owner, *type.mro(owner if isinstance(owner, type) else type(owner))):
        if name in getattr(has, "__dict__", ()):
            patch.delattr(has, name)
    return None
