"""Nested tensors of the jagged layout: an element-wise operator works on their values, packed in one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _contract
from .. import _torch_private as private
from ._library import name, operators


def _rule(cls: Any, op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Tensor | None:
    kwargs = kwargs or {}
    out = kwargs.get("out", args[-1] if op.overloadpacket.__name__.endswith("_out") else None)
    # Of the same shape are those that were made with the same offsets: it holds a ragged dimension's identity.
    _contract.check(name(op), args[0], args[1], out)
    result = op(*map(_values, args), **{key: _values(x) for key, x in kwargs.items()})
    if out is not None:
        return out if "out" in kwargs else None
    return private.jagged_like(args[0], result)


def _values(x: Any) -> Any:
    return private.jagged_values(x) if isinstance(x, private.NestedTensor) else x


for _op in operators:
    torch.library.register_torch_dispatch(_op.name(), private.NestedTensor, _rule)
