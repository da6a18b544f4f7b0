"""Lazily negated tensors, such as the imaginary part of a conjugate, as ``out`` of an operator that returns nothing.

torch resolves them as inputs of every operator, but its fallback looks for the written tensor among the results.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._library import implement


def _register(op: Any) -> None:
    def resolved(*args: Any) -> None:
        *inputs, out = (x.resolve_neg() if isinstance(x, Tensor) else x for x in args)
        op(*inputs, out)
        if args[-1].is_neg():
            args[-1].copy_(out)

    implement(op, resolved, "Negative")


_ops = torch.ops.muladd_nb
_register(_ops.myadd_out.default)
_register(_ops.mymuladd_out.default)
_register(_ops.mymuladd_out.tensor_c)
