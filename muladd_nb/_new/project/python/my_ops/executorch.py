"""ExecuTorch: run models with these operators on devices that have neither Python nor torch."""

from ._layer.executorch import library_path, load

__all__ = ["library_path", "load"]
