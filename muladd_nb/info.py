"""What was built, and what of it is in use."""

from __future__ import annotations

from . import _C, _build_info

__all__ = ["build_info"]


def build_info() -> dict[str, str | list[str] | None]:
    """Return how this package was built, and the instruction set its CPU kernels use here.

    Returns
    -------
    dict
        ``version``; ``compiler``; ``torch_built_with``, the torch whose headers were compiled against;
        ``torch_target``, the oldest torch the binary runs on; ``cuda_version``, of the nvcc that compiled
        the CUDA kernels, or ``None`` without them; ``cuda_architectures``, a list, empty without them;
        ``simd``: ``"avx512"``, ``"avx2"`` or ``"baseline"``.

    Examples
    --------
    >>> muladd_nb.build_info()["torch_target"]
    '2.10'
    """
    return {
        "version": _build_info.VERSION,
        "compiler": _build_info.COMPILER,
        "torch_built_with": _build_info.TORCH_BUILT_WITH,
        "torch_target": _build_info.TORCH_TARGET,
        "cuda_version": _build_info.CUDA_VERSION or None,
        "cuda_architectures": _build_info.CUDA_ARCHITECTURES.split(),
        "simd": _C.simd_level(),
    }
