"""Calls of ``torch.ops.NAMESPACE.op``, which torch calls a packet: it stands for all overloads of an operator.

torch tries one overload after the other, and calls the first whose types it can convert the arguments to. It converts
a tensor with one element to a ``float``, so the gradient of that tensor would be lost. With other tensors the
conversion fails, which takes 0.2 ms. Here, if a tensor is passed for a number, the call goes to an overload that takes
a tensor there. If there is none, a tensor whose gradient would be lost is an error. A call that can take the fast path
takes it. torch handles every other call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.overrides import has_torch_function

from .. import _C
from . import torch_private as private
from .fast_path import parameters
from .operator import Form, tensors_in
from .recording import refuse_gradients_of_numbers

OpOverloadPacket: Any = type(torch.ops.aten.mul)
_forms: dict[Any, list[Form]] = {}  # the forms of each packet


def register(form: Form) -> None:
    """Replace the function that resolves a call of the form's packet. Derivatives keep torch's."""
    if form.role or form.tensor_numbers:
        return
    packet = form.op.overloadpacket
    _forms.setdefault(packet, []).append(form)
    if _forms[packet][0].kind != "out":  # a packet of out variants alone stays as it is
        # Python looks for __call__ in the class, so each packet gets one. A function in C gets no `self`.
        methods = {"__call__": _caller(packet, _forms[packet]), "__signature__": inspect.signature(packet)}
        packet.__class__ = type("OpOverloadPacket", (OpOverloadPacket,), methods)


def _caller(packet: Any, forms: Sequence[Form]) -> Callable[..., Any]:
    """Return a function in C that tries the fast path, and calls ``call`` if it cannot."""
    first, by_torch = forms[0], partial(OpOverloadPacket.__call__, packet)
    names = private.argument_names(first.op)
    positional = private.positional_names(first.op)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(positional, args, strict=False)) | kwargs
        tensors = [x for x in first.floats if tensors_in([given.get(x)])]
        if not (tensors or "out" in kwargs) or has_torch_function((*args, *kwargs.values())):
            return by_torch(*args, **kwargs)
        for form in forms:
            if form.floats.keys().isdisjoint(tensors) and given.keys() <= {*private.argument_names(form.op)}:
                return form.op(*args, **kwargs)
        refuse_gradients_of_numbers(first, [given.get(x) for x in names])
        return by_torch(*args, **kwargs)

    alike = [form for form in forms if form.kind == first.kind and [*form.kinds] == [*first.kinds]]
    return _C.fast_path(parameters(first.op), alike, None, call, has_out=first.kind == "writing")
