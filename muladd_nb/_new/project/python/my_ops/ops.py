"""The public functions."""

from __future__ import annotations

from torch import Tensor

from ._operators import FORMS
from ._register.public import public

__all__: list[str] = []
