"""The public functions."""

from __future__ import annotations

from torch import Tensor

from ._layer.public import public
from ._operators import FORMS

__all__: list[str] = []
