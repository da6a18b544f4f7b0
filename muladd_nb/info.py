"""How the package was built, and which parts of it are in use."""

from __future__ import annotations

import pathlib

from . import _C, _build_info
from ._layer import system
from ._layer import torch_private as private
from ._layer.executorch import built

__all__ = ["build_info", "library_path"]


def build_info() -> dict[str, str | list[str] | None]:
    """Return how this package was built, and which instruction set its CPU kernels use.

    Returns
    -------
    dict
        - ``version``, ``compiler``
        - ``torch_built_with``: the torch whose headers were used
        - ``torch_target``: the oldest torch that the binary runs on
        - ``cuda_version``: the version of the nvcc that compiled the CUDA kernels, or ``None`` without them
        - ``cuda_architectures``: a list, empty without CUDA kernels
        - ``simd``: ``"avx512"``, ``"avx2"`` or ``"baseline"``
        - ``library_path``: the result of :func:`library_path`
        - ``executorch_version``: the version of ExecuTorch for which the package has kernels, or ``None``
        - ``executorch_operators``: a list of these kernels, empty without them
        - ``missing_in_torch``: the private names that the installed torch lacks, each with what is lost; usually empty

    Examples
    --------
    >>> muladd_nb.build_info()["torch_target"]
    '2.10'
    """
    executorch = built()
    return {
        "version": _build_info.VERSION,
        "compiler": _build_info.COMPILER,
        "torch_built_with": _build_info.TORCH_BUILT_WITH,
        "torch_target": _build_info.TORCH_TARGET,
        "cuda_version": _build_info.CUDA_VERSION or None,
        "cuda_architectures": _build_info.CUDA_ARCHITECTURES.split(),
        "simd": _C.simd_level(),
        "library_path": library_path(),
        "executorch_version": executorch.version,
        "executorch_operators": executorch.operators,
        "missing_in_torch": private.missing(),
    }


def library_path() -> str:
    """Return the path of the C++ library of the operators, for programs without Python.

    Opening the library registers the operators with libtorch's dispatcher; libtorch must be loaded first. The library
    has no functions to call. ``muladd_nb.pc`` in the same folder is for pkg-config. If a process opens both the
    library and this package, the one that comes first registers the operators.

    Returns
    -------
    str
        The absolute path of ``libmuladd_nb.so``, or ``libmuladd_nb.dylib`` on macOS.

    Examples
    --------
    >>> torch.ops.load_library(muladd_nb.library_path())
    >>> torch.ops.muladd_nb.mymul(torch.tensor([2.0]), torch.tensor([3.0]))
    tensor([6.])
    """
    return str(pathlib.Path(_C.__file__).with_name(system.library("muladd_nb")))
