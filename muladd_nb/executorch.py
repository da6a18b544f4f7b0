"""ExecuTorch: models with these operators, on devices that have neither Python nor torch.

A model with :func:`muladd_nb.mymuladd` and :func:`muladd_nb.mymul` goes the usual way, ``torch.export.export``,
``executorch.exir.to_edge``, ``to_executorch``, which maps them to the out variants. To run what comes out, the
ExecuTorch runtime needs the kernels of those out variants: :func:`load` gives them to the runtime of this process,
and a C++ program links the library at :func:`library_path`, which registers them when it is opened.

The kernels are compiled on demand, against the installed ExecuTorch, whose C++ interface has no version:
``pip install . -Csetup-args=-Dexecutorch=enabled --no-build-isolation``.

Examples
--------
.. doctest::
   :skipif: muladd_nb._layer.executorch.built().version is None

   >>> import muladd_nb.executorch
   >>> muladd_nb.executorch.load()
   >>> from executorch.runtime import Runtime
   >>> "muladd_nb::mymuladd.out" in Runtime.get().operator_registry.operator_names
   True
   >>> muladd_nb.executorch.library_path()
   '.../libmuladd_nb_executorch.so'
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from ._layer import executorch
from ._layer.executorch import library_path, load
from ._operators import FORMS

__all__ = ["functional", "library_path", "load"]


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
    # The sum has no functional operator of its own.
    executorch.functional(program, FORMS, {torch.ops.muladd_nb.myadd_out.default: torch.ops.aten.add.Tensor})
    return program
