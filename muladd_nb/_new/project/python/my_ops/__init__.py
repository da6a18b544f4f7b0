"""PyTorch operators: importing the package registers them under ``torch.ops.my_ops``."""

from importlib.metadata import version

from ._load import load

__version__ = version("my_ops")

load()  # the kernels first, then what Python adds to them

from . import ops  # noqa: E402
from .ops import *  # noqa: E402, F403

__all__ = ["__version__"]
__all__ += ops.__all__
