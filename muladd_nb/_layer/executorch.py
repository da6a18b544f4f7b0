"""ExecuTorch: loads the kernels for its runtime."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.resources
import json
from typing import NamedTuple

from . import system

_package = __name__.partition(".")[0]


class Built(NamedTuple):
    """The version of ExecuTorch that the package was built with, if any, and the operators that it registers there."""

    version: str | None
    operators: list[str]


def built() -> Built:
    """Return what Meson wrote into ``executorch.json``, if the package has kernels for ExecuTorch."""
    file = importlib.resources.files(_package) / "executorch.json"
    if not file.is_file():
        return Built(None, [])
    what = json.loads(file.read_text("utf-8"))
    return Built(what["version"], what["operators"].split(","))


def load() -> None:
    """Register the kernels with the ExecuTorch runtime of this process. Calling it again changes nothing.

    Raises
    ------
    ImportError
        If the package was built without ExecuTorch, or with another version than the one that is installed; if
        ExecuTorch is not installed.
    """
    path = library_path()
    built_with, operators = built()
    try:
        installed = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            f"{_package}.executorch needs executorch {built_with}: "
            f"run 'pip install --no-deps executorch=={built_with}'."
        ) from None
    if installed != built_with:
        raise ImportError(
            f"{_package} was built with executorch {built_with}, but executorch {installed} is installed: run "
            f"'pip install --no-deps executorch=={built_with}', or build {_package} again with this one."
        )
    from executorch.runtime import Runtime  # before the library, which uses the runtime of this process

    # Registering an operator twice ends the process; another copy of the library may have come first.
    if Runtime.get().operator_registry.operator_names.isdisjoint(operators):
        ctypes.CDLL(path)


def library_path() -> str:
    """Return the path of the library with the kernels for the ExecuTorch runtime. Opening it registers them.

    Returns
    -------
    str
        The absolute path.

    Raises
    ------
    ImportError
        If the package was built without ExecuTorch.
    """
    if built().version is None:
        raise ImportError(
            f"{_package} was built without kernels for ExecuTorch: install executorch, then run 'pip install . "
            "-Csetup-args=-Dexecutorch=enabled --no-build-isolation' in its sources."
        )
    return str(importlib.resources.files(_package) / system.library(f"{_package}_executorch"))
