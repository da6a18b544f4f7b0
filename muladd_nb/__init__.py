"""PyTorch operators around a fused multiply-add, ``a * b + c``.

Importing the package loads the C++ and CUDA kernels, which registers the operators under
``torch.ops.muladd_nb``, and adds what Python registers: fake kernels, derivatives and batching rules.
"""

from ._sources import step_aside

if not step_aside():
    from . import _layer, _operators, ops  # noqa: F401 (the kernels first, then what Python adds to them)
    from ._build_info import VERSION as __version__
    from .info import build_info, library_path
    from .ops import myadd_out, mymul, mymuladd

    __all__ = ["__version__", "build_info", "library_path", "myadd_out", "mymul", "mymuladd", "ops"]
