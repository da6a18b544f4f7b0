"""PyTorch operators: importing the package registers them under ``torch.ops.my_ops``."""

from importlib.metadata import version

from . import _layer  # noqa: F401 (loads the kernels, before Python registers more)

__version__ = version("my_ops")

from . import ops  # noqa: E402
from .ops import *  # noqa: E402, F403

__all__ = ["__version__"]
__all__ += ops.__all__
