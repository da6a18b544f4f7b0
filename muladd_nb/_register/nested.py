"""Nested tensors of the jagged layout: an element-wise operator works on their values, packed in one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _contract
from .. import _torch_private as private
from . import unsupported
from ._library import name, operators


def _rule(cls: Any, op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Tensor | None:
    kwargs = kwargs or {}
    out = kwargs.get("out", args[-1] if op.overloadpacket.__name__.endswith("_out") else None)
    unsupported.check(op, args, kwargs)
    # The shape holds the identity of a ragged dimension: of its offsets, or where there are lengths, of those alone.
    _contract.check(name(op), args[0], args[1], out)
    for x_name, x in (("b", args[1]), ("out", out)):
        if x is not None and x.lengths() is not None and x.offsets() is not args[0].offsets():
            raise RuntimeError(f"{name(op)}: a and {x_name} must have the same offsets, and not only the same lengths")
    result = op(*map(_values, args), **{key: _values(x) for key, x in kwargs.items()})
    if out is not None:
        return out if "out" in kwargs else None
    return private.jagged_like(args[0], result)


def _values(x: Any) -> Any:
    return private.jagged_values(x) if isinstance(x, private.NestedTensor) else x


for _op in operators:
    torch.library.register_torch_dispatch(_op.name(), private.NestedTensor, _rule)
