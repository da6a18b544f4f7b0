"""In compiled programs, replace an operator that writes by one that returns the new values, and a copy.

    ema_(x, y, 0.5)    becomes    (new,) = _functional_ema_(x, y, 0.5); x.copy_(new)

The compiler knows how to copy into views, slices, and inputs that are views. torch itself would tell the operator at
which offset a view begins, which is wrong if an input does not begin at offset 0. Inductor later writes in place if
the result is the same (in_place.py).
"""

from __future__ import annotations

import re
from typing import Any

import torch

from . import contract, lowering
from . import torch_private as private
from ._library import implement, library
from .autocast import WithoutAutocast
from .operator import Form, as_tuple, by_position, complete, named, tensors_in, with_tensors
from .recording import THROUGH_OUT, refuse_gradients


def register(form: Form) -> None:
    """Define the operator that returns the new values, and make compiled programs call it."""
    op, places = form.op, form.writes.values()
    if not places:
        return
    only_writes = form.kind in ("writing", "out")

    def computed(*args: Any, **kwargs: Any) -> Any:
        given = list(complete(functional, args, kwargs))
        for place in places:
            given[place] = with_tensors(torch.empty_like if only_writes else torch.clone, given[place])
        with WithoutAutocast():  # the arguments were cast before
            returned = form.call(*given)
        return form.with_written(returned, tensors_in(given[place] for place in places))

    def recorded(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        # If a gradient is asked for, the operator that updates raises the error. Every other call is redispatched,
        # because a program may functionalize tensors that have autograd's keys.
        if private.is_recorded(tuple(tensors_in((*args, *kwargs.values())))) or private.may_be_dual():
            if only_writes:  # the operator that writes would only warn
                arguments = named(functional, complete(functional, args, kwargs))
                refuse_gradients(form.name, arguments, *THROUGH_OUT, may_be_dual=private.differentiating())
            return computed(*args, **kwargs)
        return functional.redispatch(private.below_autograd(keyset), *args, **kwargs)

    def fake(*args: Any, **kwargs: Any) -> Any:
        lowering.register_waiting()
        return computed(*args, **kwargs)

    def functionalized(*args: Any, **kwargs: Any) -> Any:
        given = complete(op, args, kwargs)
        contract.check_apart(form, form.targets(given))
        if form.functional is not None and torch.compiler.is_exporting():
            # Another process may load an exported program. It knows the functional form, but perhaps not this operator.
            *results, new = None, [by_position(form.functional, form.functional)(*given[: len(form.kinds)])]
        else:
            returned = by_position(functional, functional)(*given)
            *results, new = as_tuple(returned)
        targets = tensors_in(given[place] for place in places)
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
    lowering.register(form, functional)


def _define(op: Any) -> Any:
    """Define an operator with the arguments of ``op`` that writes to none of them, and return it."""
    qualified = f"_functional_{op.name().partition('::')[2]}"
    arguments, _, _ = private.schema(op).removeprefix(op.name()).rpartition(" -> ")
    results = [str(x.type) for x in private.results(op) if x.alias_info is None]
    unmarked = re.sub(r"Tensor\(\S+?!( -> )?\)", "Tensor", arguments)
    library.define(f"{qualified}{unmarked} -> ({', '.join([*results, 'Tensor[]'])})")
    return private.overload(library.ns, qualified)
