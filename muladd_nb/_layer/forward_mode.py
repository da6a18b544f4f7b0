"""Forward mode in one call: an operator's result and its tangent, of one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import contract
from . import torch_private as private
from .operator import Form


def dual_of(form: Form, value_and_tangent: Form, *, compiled: bool) -> Callable[..., Tensor | None]:
    """Return what computes a dual result below Autograd, given its keys and all arguments, or returns None.

    That is by an operator that takes a tangent of each tensor that can have one, too: if there are kernels for the
    dtype, and nothing is recorded in reverse mode, which needs the tangents one by one; in compiled programs if
    ``compiled``.
    """
    tensors, dtypes = [*form.inputs.values()], value_and_tangent.dtypes
    places = [place for x, place in form.inputs.items() if (x,) in form.family]
    redispatch = private.redispatch(value_and_tangent.op)

    def dual(keyset: Any, args: tuple[Any, ...]) -> Tensor | None:
        if torch.is_inference_mode_enabled():  # which has no tangents, and takes apart no tensor of a transform
            return None
        inputs = [args[place] for place in tensors]
        if any(x is None or x.layout is not torch.strided or x.is_inference() for x in inputs):
            return None
        if args[places[0]].dtype not in dtypes or private.is_recorded(args) or (private.traces() and not compiled):
            return None
        pairs = {place: forward_ad.unpack_dual(args[place], level=0) for place in tensors}
        given = {place for place, pair in pairs.items() if pair.tangent is not None}
        if not given or not given <= {*places}:
            return None
        tangents: list[Any] = [
            pairs[place].tangent if place in given else pairs[place].primal.new_zeros(()).expand(args[place].shape)
            for place in places
        ]
        if private.is_recorded(tuple(tangents)) or not private.dispatch_alike((pairs[places[0]].primal, *tangents)):
            return None
        contract.check(form, args)  # whose words are of this operator and its arguments alone
        primals = [pairs[place].primal if place in pairs else x for place, x in enumerate(args)]
        made = redispatch(private.below_autograd(keyset), *primals, *tangents)
        result: Tensor = forward_ad.make_dual(*made, level=0)
        return result

    return dual
