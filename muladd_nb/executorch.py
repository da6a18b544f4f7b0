"""ExecuTorch: run models with these operators on devices that have neither Python nor torch.

Export a model with :func:`muladd_nb.mymuladd` and :func:`muladd_nb.mymul` as usual: ``torch.export.export``,
``executorch.exir.to_edge``, ``to_executorch``. The last step maps the operators to their out variants, and the
ExecuTorch runtime needs kernels for these. :func:`load` registers them with the runtime of this process. A C++ program
links the library at :func:`library_path`, which registers the kernels when it is opened.

You compile the kernels against the installed ExecuTorch, because its C++ interface has no versions:
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

from ._layer.executorch import library_path, load
from ._layer.torch_private import overload

__all__ = ["functional", "library_path", "load"]


def functional(program: ExportedProgram) -> ExportedProgram:
    """Replace ``myadd_out``, which ExecuTorch cannot call, by ``aten::add``, which rounds the same way, and a copy.

    ``to_edge`` replaces ``mymuladd_out`` itself, by ``mymuladd`` and a copy.

    Parameters
    ----------
    program
        The result of ``torch.export.export``. It is not changed.

    Returns
    -------
    ExportedProgram
        A program for ``executorch.exir.to_edge``.

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
    ['aten.add.Tensor', 'aten.copy.default']
    """
    # run_decompositions turns an operator that writes into one that returns the new value of `out`, and a copy.
    returning = overload("muladd_nb", "_functional_myadd_out")
    return program.run_decompositions({returning: lambda a, b, out: [torch.add(a, b)]})
