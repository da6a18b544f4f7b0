"""PyTorch operators: importing the package registers them under ``torch.ops.my_ops``."""

from importlib.metadata import version

from . import _layer  # noqa: F401 (the kernels first, then what Python adds to them)

__version__ = version("my_ops")  # before an operator of that name

from . import ops  # noqa: E402
from .ops import *  # noqa: E402, F403

__all__ = ["__version__"]
__all__ += ops.__all__
