"""Autocast: ``mymuladd`` and ``mymul`` run in the dtype that the user chose for the region.

``torch.library.register_autocast`` takes that dtype when it registers and ignores the user's: under
``autocast("cpu", torch.float16)`` its operators still compute in bfloat16. As with ATen's operators, float64 is left
alone, and so are the operators that write into ``out``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _torch_private as private
from ._library import implement


def _cast(x: Any, device_type: str) -> Any:
    if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64 and x.device.type == device_type:
        return x.to(torch.get_autocast_dtype(device_type))
    return x


def _register(op: Any, device_type: str) -> None:
    def autocast(*args: Any) -> Tensor:
        with private.without_autocast():
            return op(*(_cast(x, device_type) for x in args))

    implement(op, autocast, f"Autocast{device_type.upper()}")


for _device_type in ("cpu", "cuda"):
    _register(torch.ops.muladd_nb.mymuladd.default, _device_type)
    _register(torch.ops.muladd_nb.mymuladd.tensor_c, _device_type)
    _register(torch.ops.muladd_nb.mymul.default, _device_type)
