"""Lets ``import muladd_nb`` find the installed package in the repository's root, where the sources come first."""

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def step_aside() -> bool:
    """If these are uncompiled sources, import the installed package in their place. Return whether there is one."""
    package = sys.modules["muladd_nb"]
    if _is_compiled(package.__path__):
        return False
    for folder in sys.path:
        spec = PathFinder.find_spec("muladd_nb", [folder])
        if spec and spec.loader and _is_compiled(spec.submodule_search_locations):
            del sys.modules[__name__]  # so that no module of the sources stays
            vars(package).clear()
            vars(package).update(vars(module_from_spec(spec)))
            spec.loader.exec_module(package)
            return True
    return False


def _is_compiled(path: Sequence[str] | None) -> bool:
    # Asks all finders, because an editable install has its own. importlib.util.find_spec would look at sys.modules
    # first.
    return any(finder.find_spec("muladd_nb._C", path) for finder in sys.meta_path)
