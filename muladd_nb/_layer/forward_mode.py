"""Forward mode in one call: one kernel computes an operator's result and its tangent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from . import torch_private as private
from ._library import implement
from .operator import Form, by_position
from .partials import Partial, added, zeros_of


def dual_of(form: Form, value_and_tangent: Form, *, compiled: bool) -> Callable[..., Tensor | None]:
    """Return a function that computes a dual result below Autograd, given the dispatch keys and all arguments.

    It calls the operator ``value_and_tangent``, which also takes a tangent for each tensor that can have one. The
    function returns the plain result if no tensor has a tangent, and None if it cannot compute the call: there is no
    kernel for the dtype, or the call is also recorded in reverse mode, which needs a separate product for each tangent,
    or the program is compiled and ``compiled`` is false.
    """
    tensors, dtypes = [*form.inputs.values()], value_and_tangent.dtypes
    places = [place for x, place in form.inputs.items() if (x,) in form.family]
    redispatch = private.redispatch(value_and_tangent.op)
    without_tangents = by_position(private.redispatch(form.op), form.op, leading=1)

    def dual(keyset: Any, args: tuple[Any, ...]) -> Tensor | None:
        # In inference mode there are no tangents, and unpack_dual fails on a transform's tensors.
        if torch.is_inference_mode_enabled() or private.is_recorded(args) or (private.traces() and not compiled):
            return None
        inputs = [args[place] for place in tensors]
        if any(x is None or x.layout is not torch.strided or x.is_inference() for x in inputs):
            return None
        if args[places[0]].dtype not in dtypes:
            return None
        primals, given = [*args], {}
        for place in tensors:
            primals[place], tangent = private.unpack_dual(args[place], level=0)
            if tangent is not None:
                given[place] = tangent
        if not given and not form.tensor_numbers:  # a number that is a tensor may have a tangent, which is an error
            return without_tangents(private.below_autograd(keyset), *args)
        if not given or not given.keys() <= {*places}:
            return None
        of_each = [(given.get(place), primals[place]) for place in places]
        tangents = tuple([zeros_of(x, x.shape) if tangent is None else tangent for tangent, x in of_each])
        if private.is_recorded(tangents) or not private.dispatch_alike((primals[places[0]], *tangents)):
            return None
        try:
            made = redispatch(private.below_autograd(keyset), *primals, *tangents)
        except RuntimeError:
            return None  # the call goes on without this kernel, so that the error names this operator
        result: Tensor = private.make_dual(*made, level=0)
        return result

    return dual


def register_value_and_tangent(form: Form, partials: Mapping[str, Partial]) -> None:
    """Register the Autograd kernel of the operator that computes a value and its tangent.

    If a call is recorded, the kernel computes the two separately, as ATen does. Then each requires grad only if it
    depends on a tensor that does, and saves only what its own gradients read.
    """
    of = form.family[()]
    redispatch = private.redispatch(form.op)
    count = len(of.kinds)
    tensors = [x for x in of.inputs if (x,) in form.family]
    read = {y for partial in partials.values() for y in partial.reads}

    def kernel(keyset: Any, *args: Any) -> tuple[Tensor, Tensor]:
        if not (private.is_recorded(args) or (private.may_be_dual() and any(map(private.has_tangent, args)))):
            value, tangent = redispatch(private.below_autograd(keyset), *args)
            return value, tangent
        inputs, tangents = args[:count], args[count:]
        value = of.call(*inputs)
        values = {x: y for x, y in zip(of.kinds, inputs, strict=True) if x in read}
        shape = torch.broadcast_shapes(value.shape, *(x.shape for x in tangents))  # vmap may batch only the tangents
        products = []
        for x, given in zip(tensors, tangents, strict=True):
            tangent = given.expand(shape)
            times = partials[x].in_forward_mode
            product = times((tangent,), values) if times else None
            if product is not None:
                # Expanded zeros may stand for a missing tangent: then the product is zero even if the derivative is
                # infinite. A tangent that requires grad is not missing, and its product is kept.
                may_be_missing = not (given.requires_grad or any(given.stride()))
                is_lost = (tangent == 0) & product.isnan()
                products.append(torch.where(is_lost, tangent, product) if may_be_missing else product)
        sum_of_products = added(products)
        return value, torch.zeros_like(value) if sum_of_products is None else sum_of_products

    implement(form.op, kernel, "Autograd", with_keyset=True)
