"""ExecuTorch: run models with these operators on devices that have neither Python nor torch."""

from torch.export import ExportedProgram

from ._layer import executorch
from ._layer.executorch import library_path, load
from ._operators import FORMS

__all__ = ["functional", "library_path", "load"]


def functional(program: ExportedProgram) -> ExportedProgram:
    """Replace operators that write, which ExecuTorch cannot run, by functional ones and copies. Changes ``program``."""
    executorch.functional(program, FORMS)
    return program
