"""The operators on DTensors: importing this module registers how each of them is sharded.

It is not a part of ``import muladd_nb``, because importing DTensor takes most of a second.

``mymuladd`` takes inputs that are replicated or sharded alike. A partial input is reduced first: each rank would add
``c`` to its part of the sum. ``mymul`` is linear in each factor, so one of them may stay partial. An operator that
writes into ``out`` brings its inputs to the placement of ``out``, never ``out`` to theirs: the write would be lost.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from . import _contract
from ._register._library import name as name_of

_ops = torch.ops.muladd_nb

# For one mesh dimension: what the result is, if the arguments are what follows.
_Sharding = tuple[list[Placement | None], list[Placement | None]]


def _elementwise(a: Any, b: Any, *scalars: None) -> list[_Sharding]:
    # Also those that the inputs have: parameters under both FSDP and tensor parallelism are sharded in their own way.
    placements = dict.fromkeys([Replicate(), *(Shard(dim) for dim in range(a.ndim)), *a.placements, *b.placements])
    return [([each], [each, each, *scalars]) for each in placements if not each.is_partial()]


@register_sharding(_ops.mymuladd.default)
def _mymuladd(a: Any, b: Any, c: float) -> list[_Sharding]:
    return _elementwise(a, b, None)


@register_sharding(_ops.mymuladd.tensor_c)
def _mymuladd_tensor_c(a: Any, b: Any, c: Any) -> list[_Sharding]:
    return [(result, [*inputs, Replicate()]) for result, inputs in _elementwise(a, b)]


@register_sharding(_ops.mymul.default)
def _mymul(a: Any, b: Any) -> list[_Sharding]:
    linear: list[_Sharding] = []
    for partial in (Partial("sum"), Partial("avg")):
        linear += [([partial], [partial, Replicate()]), ([partial], [Replicate(), partial])]
    return _elementwise(a, b) + linear


def _write(cls: Any, op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Tensor | None:
    # Not register_sharding: on a mesh of several dimensions it can choose to redistribute `out`.
    name = name_of(op)
    a, b, *c = args if kwargs else args[:-1]
    out = kwargs["out"] if kwargs else args[-1]
    for x_name, x in (("out", out), ("a", a), ("b", b)):
        if not isinstance(x, DTensor):
            raise RuntimeError(
                f"{name}: a, b and out must all be DTensors, but {x_name} is a plain tensor; "
                f"call torch.distributed.tensor.distribute_tensor on it"
            )
        if x.device_mesh != out.device_mesh:
            raise RuntimeError(
                f"{name}: {x_name} and out must be on the same mesh, got {x.device_mesh} and {out.device_mesh}"
            )
    _contract.check(name, a, b, out)
    if any(placement.is_partial() for placement in out.placements):
        raise RuntimeError(
            f"{name}: out must be sharded or replicated, got the placements {out.placements}; redistribute it first"
        )
    inputs = [x.redistribute(placements=out.placements).to_local() for x in (a, b)]
    if kwargs:
        op(*inputs, *c, out=out.to_local())
        return out
    op(*inputs, *c, out.to_local())
    return None


for _op in (
    _ops.myadd_out.default,
    _ops.mymuladd_out.default,
    _ops.mymuladd_out.tensor_c,
    _ops.mymuladd.out,
    _ops.mymul.out,
):
    torch.library.register_torch_dispatch(_op.name(), DTensor, _write)
