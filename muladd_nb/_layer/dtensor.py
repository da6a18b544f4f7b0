"""Sharding rules: how the operators compute on DTensors.

The inputs are replicated, or all sharded in the same way. A partial input stays partial only if the operator is linear
in it, as a product is in each factor. Otherwise it is reduced first: in ``a * b + c``, each rank would add ``c`` to
its part of the sum. An operator that writes into ``out`` redistributes its inputs to the placement of ``out``, never
``out`` to theirs, because the write would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from . import contract, rows
from . import torch_private as private
from ._library import check_is_first
from .operator import Form, complete

# The placements of the results and of the arguments, along one dimension of the mesh.
_Sharding = tuple[list[Placement], list[Placement | None]]
# The same, with the names of the arguments.
_ByName = tuple[list[Placement], dict[str, Placement]]


def _shardings(form: Form, /, *args: Any, **numbers: Any) -> list[_Sharding]:
    order = private.argument_names(form.op)[: len(args)]  # without arguments that equal their defaults
    passed_as_tensors: dict[str, Placement] = dict.fromkeys(form.numbers if form.tensor_numbers else (), Replicate())
    found = _found(form, complete(form.op, args, numbers), {})
    return [(of_results, [(passed_as_tensors | of).get(x) for x in order]) for of_results, of in found]


def _found(form: Form, args: Sequence[Any], targets: dict[str, Any]) -> Iterator[_ByName]:
    """Yield the placements of the results, and those of the tensors that are read, which go together."""
    return _over_rows(form, args) if form.of_row else _elementwise(form, args, targets)


def _elementwise(form: Form, args: Sequence[Any], targets: dict[str, Any]) -> Iterator[_ByName]:
    inputs = form.given(args)
    # We try the tensors' own placements, too: parameters under both FSDP and tensor parallelism have special ones.
    placed = [placement for x in (inputs | targets).values() for placement in getattr(x, "placements", ())]
    own = [placement for placement in placed if not placement.is_partial()]
    shape = torch.broadcast_shapes(*(x.shape for x in inputs.values()))
    results = len(targets) or len(form.of_results)
    for placement in dict.fromkeys([Replicate(), *(Shard(dim) for dim in range(len(shape))), *own]):
        of_inputs: dict[str, Any] = {name: _placement_of(x.shape, placement, shape) for name, x in inputs.items()}
        if None not in of_inputs.values():
            gradients = form.gradients_of
            yield _of_gradients(form, args, of_inputs, placement) if gradients else [placement] * results, of_inputs
    for part in (Partial("sum"), Partial("avg")):
        for together in form.promises.linear:
            if together <= inputs.keys():  # with an absent tensor it may not be linear in the others
                yield [part] * results, {x: part if x in together else Replicate() for x in inputs}


def _over_rows(form: Form, args: Sequence[Any]) -> Iterator[_ByName]:
    """Yield how an operator over rows may be sharded.

    It is never sharded along a reduced dimension, nor along the one that ``row.index()`` counts: the index would begin
    at 0 in each shard.
    """
    shapes = rows.aligned(form, args)
    shape = torch.broadcast_shapes(*shapes.values())
    reduced, given = rows.reduced(form, args, shape), form.given(args)
    others = [dim for dim in range(len(shape)) if dim not in reduced]
    for sharded in (None, *(others[:-1] if form.asks_for_index else others)):
        whole: Placement = Replicate() if sharded is None else Shard(sharded)

        def without_reduced(lacks: bool, placement: Any, sharded: int | None = sharded) -> Placement:
            # A tensor with one value for each row lacks the reduced dimension, which `shapes` has.
            shifts = lacks and sharded is not None and sharded > reduced.start and placement.is_shard()
            return Shard(placement.dim - 1) if shifts else placement

        inputs: dict[str, Any] = {
            x: without_reduced(len(own) > len(given[x].shape), _placement_of(own, whole, shape))
            for x, own in shapes.items()
        }
        results: list[Placement]
        if form.gradients_of:
            results = _of_gradients(form, args, inputs, whole)
        else:
            owns = rows.result_shapes(form, args, shape)
            results = [without_reduced(len(own) < len(shape), whole) for own in owns]
        yield results, inputs


def _of_gradients(form: Form, args: Sequence[Any], inputs: Mapping[str, Any], placement: Placement) -> list[Placement]:
    """Return the placements of gradients. If a tensor is replicated, each rank has a partial sum of its gradient."""
    wanted = form.wanted(args)
    part = placement if placement.is_replicate() else Partial("sum")
    return [
        Replicate() if x not in wanted else part if inputs[x] == Replicate() else inputs[x] for x in form.gradients_of
    ]


def _placement_of(own: Sequence[int], placement: Placement, shape: Sequence[int]) -> Placement | None:
    """Return the placement of a tensor that is broadcast to ``shape`` if the result has ``placement``, or None."""
    if own == shape or placement.is_replicate():
        return placement
    if type(placement) is not Shard or placement.dim < 0 or placement.dim >= len(shape):
        return None
    dim = placement.dim - (len(shape) - len(own))
    repeated = dim < 0 or (own[dim] == 1 and shape[placement.dim] != 1)
    return Replicate() if repeated else Shard(dim)


def _write(form: Form, cls: Any, op: Any, types: Any, args: tuple[Any, ...], kwargs: Any = None) -> Tensor | None:
    # We do not use register_sharding, because on a mesh of several dimensions it may redistribute `out`.
    args = complete(form.op, args, kwargs or {})
    targets = form.targets(args)
    name, out = next(iter(targets.items()))
    tensors = targets | form.given(args)
    for x_name, x in tensors.items():
        if not isinstance(x, DTensor):
            if x_name not in targets and x.dim() == 0:
                continue  # as torch does, we take it as replicated
            names = contract.listed("and", dict.fromkeys([*form.inputs, *targets]))
            raise RuntimeError(
                f"{form.name}: {names} must all be DTensors, but {x_name} is a plain tensor; "
                f"call torch.distributed.tensor.distribute_tensor on it"
            )
        if x.device_mesh != out.device_mesh:
            raise RuntimeError(
                f"{form.name}: {x_name} and {name} must be on the same mesh, got {x.device_mesh} and {out.device_mesh}"
            )
    contract.check(form, args, targets)
    if any(placement.is_partial() for placement in out.placements):
        raise RuntimeError(
            f"{form.name}: {name} must be sharded or replicated, got the placements {out.placements}; "
            "redistribute it first"
        )
    placements = _beside(form, args, targets)
    returned = out if form.kind == "out" else None
    if out.device_mesh.get_coordinate() is None:  # this process is not in the mesh, and its shards have the shape [0]
        return returned
    local = [x.to_local() if isinstance(x, DTensor) else x for x in args]
    for x_name, x in form.given(args).items():
        if x_name not in targets and isinstance(x, DTensor):
            # torch 2.10 cannot redistribute a tensor that requires grad from here, below autograd.
            detached: Any = x.detach()
            local[form.inputs[x_name]] = detached.redistribute(placements=placements[x_name]).to_local()
    form.call(*local)
    return returned


def _beside(form: Form, args: Sequence[Any], targets: dict[str, DTensor]) -> dict[str, list[Placement]]:
    """Return the placements of the inputs that follow from those of the targets."""
    shardings = [*_found(form, args, targets)]
    beside = []
    for wanted in zip(*(x.placements for x in targets.values()), strict=True):
        found = [inputs for results, inputs in shardings if (*results,) == wanted]
        if not found:
            counted = ", nor the last of the others, which row.index() counts" if form.asks_for_index else ""
            alike = ", all alike" if len(targets) > 1 else ""
            sharded = (
                f"sharded along a dimension that is not reduced{counted}{alike}"
                if form.of_row
                else "all sharded alike, by Shard where another tensor is broadcast"
            )
            raise RuntimeError(
                f"{form.name}: {contract.listed('and', targets)} must be replicated, or {sharded}; got the placements "
                f"{', '.join(str(x.placements) for x in targets.values())}; redistribute first"
            )
        beside.append(found[0])
    return {x_name: [inputs[x_name] for inputs in beside] for x_name in form.given(args)}


def _make_cache_read_integers(form: Form) -> None:
    """Make DTensor's cache of shardings compare bools and sizes of rows, which it ignores, as it compares ints."""
    integers = {*form.integers, *form.sizes}
    if integers:
        key = private.key_of_shardings(form.op)
        key.static_argnum = min(place for place, x in enumerate(form.kinds) if x in integers)
        key.static_kwargkey = [x.name for x in private.arguments(form.op) if x.kwarg_only and x.name in integers]


def register(forms: Iterable[Form]) -> None:
    """Register the sharding rules of element-wise operators and operators over rows. A kernel of one's own has none."""
    elementwise = [form for form in forms if form.kind != "kernel"]
    if elementwise:
        check_is_first("the rules for DTensor")
    for form in elementwise:
        if form.kind == "functional":
            register_sharding(form.op)(partial(_shardings, form))
            _make_cache_read_integers(form)
        else:
            torch.library.register_torch_dispatch(form.op.name(), DTensor, partial(_write, form))
