"""PyTorch operators around a fused multiply-add, ``a * b + c``.

Importing the package loads the C++ and CUDA kernels, which registers the operators under ``torch.ops.muladd_nb``. Then
Python registers fake kernels, derivatives, batching rules and so on.
"""

from ._sources import step_aside

if not step_aside():
    from . import _layer, _operators, ops  # noqa: F401 (_layer loads the kernels, so it comes first)
    from ._build_info import VERSION as __version__
    from .info import build_info, library_path
    from .ops import myadd_out, mymul, mymuladd

    __all__ = ["__version__", "build_info", "library_path", "myadd_out", "mymul", "mymuladd", "ops"]
