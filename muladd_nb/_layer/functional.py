"""In a compiled program an operator that writes becomes one that returns what the tensors become, and a copy.

    ema_(x, y, 0.5)    becomes    (new,) = _functional_ema_(x, y, 0.5); x.copy_(new)

The compiler knows where a copy goes: into views, slices, inputs that are views. By itself torch describes to an
operator where its views begin in memory, and is wrong for an input that begins later. Inductor
writes in place where nobody can tell (in_place.py).
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from . import lowering
from . import torch_private as private
from ._library import implement, library
from .autocast import WithoutAutocast
from .operator import Form, by_position, complete


def register(form: Form) -> None:
    """Define the operator that returns what an operator writes, and have compiled programs call that."""
    op, places = form.op, form.writes
    if not places:
        return
    call = by_position(op, op)
    only_writes = form.kind in ("writing", "out")

    def computed(*args: Any, **kwargs: Any) -> Any:
        given = list(complete(functional, args, kwargs))
        new: dict[int, Tensor] = {}  # one of each tensor, so that an operator can refuse one that it is given twice

        def fresh(x: Any) -> Any:
            if isinstance(x, (list, tuple)):
                return [*map(fresh, x)]
            if x is not None and id(x) not in new:
                new[id(x)] = torch.empty_like(x) if only_writes else x.clone()
            return None if x is None else new[id(x)]

        for place in places:
            given[place] = fresh(given[place])
        with WithoutAutocast():  # what is to be cast was cast before
            returned = call(*given)
        return form.with_written(returned, _tensors(given[place] for place in places))

    def recorded(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        # The operator that writes says what is wrong with a derivative. Every other call passes on, for a program may
        # functionalize what has autograd's keys.
        if private.needs_recording(tuple(_tensors((*args, *kwargs.values())))):
            return computed(*args, **kwargs)
        return functional.redispatch(private.below_autograd(keyset), *args, **kwargs)

    def fake(*args: Any, **kwargs: Any) -> Any:
        lowering.register_waiting()
        return computed(*args, **kwargs)

    def functionalized(*args: Any, **kwargs: Any) -> Any:
        given = complete(op, args, kwargs)
        if form.functional is not None and torch.compiler.is_exporting():
            # An exported program goes to others, who may know this operator, and not the one that is made here.
            *results, new = None, [by_position(form.functional, form.functional)(*given[: len(form.kinds)])]
        else:
            returned = by_position(functional, functional)(*given)
            *results, new = returned if isinstance(returned, tuple) else (returned,)
        targets = _tensors(given[place] for place in places)
        for target, x in zip(targets, new, strict=True):
            target.copy_(x)
        if form.kind == "out":
            return targets[0]
        return tuple(results) if len(results) > 1 else results[0] if results else None

    functional = _define(op)
    for key in ("CompositeExplicitAutograd", "FuncTorchBatched"):
        implement(functional, computed, key)
    implement(functional, recorded, "Autograd", with_keyset=True)
    torch.library.register_fake(functional.name(), fake)
    implement(op, functionalized, "Functionalize")
    lowering.register_functional(functional, form)


def _tensors(written: Any) -> list[Any]:
    """Return the tensors of arguments that are tensors, lists of them, or None."""
    each = [y for x in written for y in (x if isinstance(x, (list, tuple)) else [x])]
    return [x for x in each if x is not None]


def _define(op: Any) -> Any:
    """Define the operator with the arguments of ``op``, of which it writes to none, and return it."""
    packet, _, overload = op.name().partition("::")[2].partition(".")
    packet = f"_functional_{packet}"
    arguments, _, _ = private.schema(op).removeprefix(op.name()).rpartition(" -> ")
    results = [str(x.type) for x in private.results(op) if x.alias_info is None]
    qualified = f"{packet}.{overload}".rstrip(".")
    unmarked = re.sub(r"Tensor\(\S+?!( -> )?\)", "Tensor", arguments)
    library.define(f"{qualified}{unmarked} -> ({', '.join([*results, 'Tensor[]'])})")
    return getattr(getattr(getattr(torch.ops, library.ns), packet), overload or "default")
