"""Formulas for ``torch.utils.flop_counter``. They count floating point operations, not instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ._library import check_is_first
from .operator import Form


def register(forms: Iterable[Form]) -> None:
    """Register the formula of each operator, for all its overloads. A kernel of one's own has none."""
    check_is_first("the formulas of flops")
    of_packet: dict[Any, int] = {}
    whole: dict[Any, set[int]] = {}  # the indices of the tensors that are broadcast to all elements
    for form in forms:
        if form.kind == "kernel":
            continue
        packet, flops = form.op.overloadpacket, form.called.promises.flops
        if of_packet.setdefault(packet, flops) != flops:
            raise ValueError(
                f"{form.name}: every overload must have the same flops, got {of_packet[packet]} and {flops}"
            )
        of_row = form.of_row[1] if form.of_row else [False] * len(form.inputs)
        places = {place for place, one in zip(form.inputs.values(), of_row, strict=True) if not one}
        whole.setdefault(packet, set()).update(places)
    for packet, flops in of_packet.items():
        register_flop_formula(packet, get_raw=True)(_formula(flops, whole[packet]))


def _formula(per_element: int, whole: set[int]) -> Callable[..., int]:
    def formula(*args: Any, **_: Any) -> int:
        given = [x for place, x in enumerate(args) if isinstance(x, Tensor) and place in whole]
        tensors = [x.values() if x.is_nested else x for x in given]
        return per_element * math.prod(torch.broadcast_shapes(*(x.shape for x in tensors)))

    return formula
