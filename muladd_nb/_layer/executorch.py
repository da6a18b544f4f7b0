"""ExecuTorch: loads the kernels for its runtime, and prepares exported programs for it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.resources
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram

from . import system
from . import torch_private as private
from .operator import Form, complete

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


def functional(program: ExportedProgram, forms: Iterable[Form], others: Mapping[Any, Any] | None = None) -> None:
    """Replace operators that write, which ExecuTorch cannot call, by functional ones and a copy.

    Parameters
    ----------
    program
        The result of ``torch.export.export``. It is changed in place.
    forms
        The operators. One that writes is replaced by the functional one with the same declaration, if there is one.
    others
        Replacements for other operators that write.
    """
    by_kind = {(form.declaration, form.kind): form.op for form in forms if not form.tensor_numbers}
    functional_of = dict(others or {}) | {
        op: by_kind[declaration, "functional"]
        for (declaration, kind), op in by_kind.items()
        if kind == "writing" and (declaration, "functional") in by_kind
    }
    graph = program.graph
    for node in list(graph.nodes):
        if node.target not in functional_of:
            continue
        *inputs, out = complete(node.target, node.args, node.kwargs)
        op = functional_of[node.target]
        pairs = [*zip(private.arguments(op), inputs, strict=False)]  # it may have more arguments, with defaults
        positional = tuple(x for argument, x in pairs if not argument.kwarg_only)
        by_name = {argument.name: x for argument, x in pairs if argument.kwarg_only}
        with graph.inserting_before(node):
            result = graph.call_function(op, positional, by_name)
            copy = graph.call_function(torch.ops.aten.copy_.default, (out, result))
        result.meta["val"] = copy.meta["val"] = out.meta["val"]
        graph.erase_node(node)
    program.graph_module.recompile()
