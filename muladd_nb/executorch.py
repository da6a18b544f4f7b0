"""ExecuTorch: models with these operators, on devices that have neither Python nor torch.

A model with :func:`muladd_nb.mymuladd` and :func:`muladd_nb.mymul` goes the usual way, ``torch.export.export``,
``executorch.exir.to_edge``, ``to_executorch``, which maps them to the out variants. To run what comes out, the
ExecuTorch runtime needs the kernels of those out variants: :func:`load` gives them to the runtime of this process,
and a C++ program links the library at :func:`library_path`.

The kernels are compiled on demand, against the installed ExecuTorch, whose C++ interface has no version:
``pip install . -Csetup-args=-Dexecutorch=enabled --no-build-isolation``.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.resources
from typing import Any

import torch
from torch.export import ExportedProgram

from . import _build_info
from . import _torch_private as private
from ._operators import FORMS
from ._register.operator import FUNCTIONAL, WRITING

__all__ = ["functional", "library_path", "load"]

# Each mutating operator and the one that returns what it writes: its own functional form, where it has one.
_by_kind = {(form.declaration, form.kind): form.op for form in FORMS}
_FUNCTIONAL: dict[Any, Any] = {torch.ops.muladd_nb.myadd_out.default: torch.ops.aten.add.Tensor} | {
    op: _by_kind[declaration, FUNCTIONAL]
    for (declaration, kind), op in _by_kind.items()
    if kind == WRITING and (declaration, FUNCTIONAL) in _by_kind
}


def load() -> None:
    """Give the kernels to the ExecuTorch runtime of this process; to do so again changes nothing.

    Raises
    ------
    ImportError
        If this package was built without ExecuTorch, or with another version than the one that is installed; if
        ExecuTorch is not installed.

    Examples
    --------
    >>> import muladd_nb.executorch
    >>> muladd_nb.executorch.load()
    >>> from executorch.runtime import Runtime
    >>> "muladd_nb::mymuladd.out" in Runtime.get().operator_registry.operator_names
    True
    """
    path = library_path()
    built_with = _build_info.EXECUTORCH_VERSION
    try:
        installed = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            f"muladd_nb.executorch needs executorch {built_with}: run 'pip install --no-deps executorch=={built_with}'."
        ) from None
    if installed != built_with:
        raise ImportError(
            f"muladd_nb was built with executorch {built_with}, but executorch {installed} is installed: run "
            f"'pip install --no-deps executorch=={built_with}', or build muladd_nb again with this one."
        )
    from executorch.runtime import Runtime  # before the library, which takes the runtime from this process

    # Registering an operator twice ends the process; another copy of the library may have come first.
    if Runtime.get().operator_registry.operator_names.isdisjoint(_build_info.EXECUTORCH_OPERATORS.split()):
        ctypes.CDLL(path)


def library_path() -> str:
    """Return where the kernels for the ExecuTorch runtime are.

    Opening the library registers ``muladd_nb.build_info()["executorch_operators"]`` with ``libexecutorch``, which must
    be loaded; it has no function to call.

    Returns
    -------
    str
        The absolute path of ``libmuladd_nb_executorch.so``.

    Raises
    ------
    ImportError
        If this package was built without ExecuTorch.

    Examples
    --------
    >>> import muladd_nb.executorch
    >>> muladd_nb.executorch.library_path()
    '.../libmuladd_nb_executorch.so'
    """
    if not _build_info.EXECUTORCH_VERSION:
        raise ImportError(
            "muladd_nb was built without kernels for ExecuTorch: install executorch, then run 'pip install . "
            "-Csetup-args=-Dexecutorch=enabled --no-build-isolation' in its sources."
        )
    return str(importlib.resources.files(__package__) / "libmuladd_nb_executorch.so")


def functional(program: ExportedProgram) -> ExportedProgram:
    """Replace the mutating operators, which ExecuTorch has no form for, by functional ones and a copy.

    ``myadd_out`` becomes ``aten::add``, which rounds the same, and ``mymuladd_out`` becomes ``mymuladd``.

    Parameters
    ----------
    program
        What ``torch.export.export`` returned. It is changed in place.

    Returns
    -------
    ExportedProgram
        ``program``, for ``executorch.exir.to_edge``.

    Examples
    --------
    >>> import muladd_nb.executorch
    >>> class Sum(torch.nn.Module):
    ...     def forward(self, a, total):
    ...         torch.ops.muladd_nb.myadd_out(a, total, total)
    ...         return total
    >>> program = torch.export.export(Sum(), (torch.ones(2), torch.zeros(2)))
    >>> nodes = muladd_nb.executorch.functional(program).graph.nodes
    >>> [str(node.target) for node in nodes if node.op == "call_function"]
    ['aten.add.Tensor', 'aten.copy_.default']
    """
    graph = program.graph
    for node in list(graph.nodes):
        if node.target not in _FUNCTIONAL:
            continue
        names = private.argument_names(node.target)
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        *inputs, out = (given[name] for name in names)
        with graph.inserting_before(node):
            result = graph.call_function(_FUNCTIONAL[node.target], tuple(inputs))
            copy = graph.call_function(torch.ops.aten.copy_.default, (out, result))
        result.meta["val"] = copy.meta["val"] = out.meta["val"]
        graph.erase_node(node)
    program.graph_module.recompile()
    return program
