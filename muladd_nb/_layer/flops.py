"""Formulas for ``torch.utils.flop_counter``. They count floating point operations, not instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ._library import check_is_first
from .kernel import Kernel
from .operator import Form


def register(forms: Iterable[Form]) -> None:
    """Register the formula of each element-wise operator, for all its overloads. A kernel of one's own has none."""
    check_is_first("the formulas of flops")
    of_packet: dict[Any, int] = {}
    for form in forms:
        if isinstance(form, Kernel):
            continue
        packet, flops = form.op.overloadpacket, form.promises.flops
        if of_packet.setdefault(packet, flops) != flops:
            raise ValueError(
                f"{form.name}: every overload must have the same flops, got {of_packet[packet]} and {flops}"
            )
    for packet, flops in of_packet.items():
        register_flop_formula(packet, get_raw=True)(_formula(flops))


def _formula(per_element: int) -> Callable[..., int]:
    def formula(*args: Any, **_: Any) -> int:
        tensors = [x.values() if x.is_nested else x for x in args if isinstance(x, Tensor)]
        return per_element * math.prod(torch.broadcast_shapes(*(x.shape for x in tensors)))

    return formula
