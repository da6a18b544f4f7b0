"""Batching rules: the batch dimension goes first, and an unbatched input is expanded, never copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _torch_private as private
from ._library import implement, name

_ops = torch.ops.muladd_nb


def _batch_first(info: Any, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> list[Any]:
    moved = [x if dim is None else x.movedim(dim, 0) for x, dim in zip(args, in_dims, strict=True)]
    for i in (0, 1):  # a and b; out is batched, and c has no dimension to batch
        if in_dims[i] is None:
            moved[i] = args[i].expand(info.batch_size, *args[i].shape)
    return moved


def _functional(op: Any) -> Callable[..., tuple[Tensor, int]]:
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        return op(*_batch_first(info, in_dims, args)), 0

    return rule


def _mutating(op: Any, call: Callable[..., Tensor | None]) -> Callable[..., tuple[Tensor | None, int | None]]:
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor | None, int | None]:
        if in_dims[-1] is None:
            # Every element of the batch would be written to the same place.
            message = (
                f"{name(op)}: out must have a batch dimension under vmap where a or b has one, got out of shape "
                f"{list(args[-1].shape)} without; pass it through vmap too, or use the operator that "
                "returns its result"
            )
            raise RuntimeError(message)
        result = call(*_batch_first(info, in_dims, args))
        return result, None if result is None else 0

    return rule


for _op in (_ops.mymuladd.default, _ops.mymuladd.tensor_c, _ops.mymul.default):
    torch.library.register_vmap(_op.name(), _functional(_op))

for _op in (_ops.myadd_out.default, _ops.mymuladd_out.default, _ops.mymuladd_out.tensor_c):
    torch.library.register_vmap(_op.name(), _mutating(_op, _op))


def _register_out_variant(op: Any) -> None:
    # register_vmap takes no operator with a keyword-only tensor, so `out` goes in by position.
    def positional(*args: Any) -> Tensor:
        *inputs, out = args
        return op(*inputs, out=out)

    kernel = private.vmap_kernel(_mutating(op, positional), positional)
    implement(op, lambda *args, out: kernel(*args, out), "FuncTorchBatched")


_register_out_variant(_ops.mymuladd.out)
_register_out_variant(_ops.mymul.out)
