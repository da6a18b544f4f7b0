"""Batching rules: the batch dimension goes first, and an unbatched input is expanded, never copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _torch_private as private
from ._library import library

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


def _mutating(name: str, op: Callable[..., Tensor | None]) -> Callable[..., tuple[Tensor | None, int | None]]:
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor | None, int | None]:
        if in_dims[-1] is None:
            # Every element of the batch would be written to the same place.
            message = (
                f"{name}: out must have a batch dimension under vmap where a or b has one, got out of shape "
                f"{list(args[-1].shape)} without; pass it through vmap too, or use the operator that "
                "returns its result"
            )
            raise RuntimeError(message)
        result = op(*_batch_first(info, in_dims, args))
        return result, None if result is None else 0

    return rule


torch.library.register_vmap("muladd_nb::mymuladd", _functional(_ops.mymuladd.default))
torch.library.register_vmap("muladd_nb::mymuladd.tensor_c", _functional(_ops.mymuladd.tensor_c))
torch.library.register_vmap("muladd_nb::mymul", _functional(_ops.mymul.default))
torch.library.register_vmap("muladd_nb::myadd_out", _mutating("myadd_out", _ops.myadd_out.default))
torch.library.register_vmap("muladd_nb::mymuladd_out", _mutating("mymuladd_out", _ops.mymuladd_out.default))
torch.library.register_vmap("muladd_nb::mymuladd_out.tensor_c", _mutating("mymuladd_out", _ops.mymuladd_out.tensor_c))


def _register_out_variant(name: str, op: Any) -> None:
    # register_vmap takes no operator with a keyword-only tensor, so `out` goes in by position.
    def positional(*args: Any) -> Tensor:
        *inputs, out = args
        return op(*inputs, out=out)

    kernel = private.vmap_kernel(_mutating(name, positional), positional)
    library.impl(name, lambda *args, out: kernel(*args, out), "FuncTorchBatched")


_register_out_variant("mymuladd.out", _ops.mymuladd.out)
_register_out_variant("mymul.out", _ops.mymul.out)
