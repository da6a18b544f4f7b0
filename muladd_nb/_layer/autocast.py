"""Autocast: an operator runs in the dtype of the region, in float32, or in the widest dtype of its inputs.

``torch.library.register_autocast`` fixes the dtype at registration and ignores the user's: under
``autocast("cpu", torch.float16)`` its operators may still compute in bfloat16. As for ATen's operators, float64 is not
cast. Tensors with a dtype of their own are not cast either. A form that writes computes in the dtype of the
first floating-point tensor that it writes to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor

from . import contract, unsupported
from . import torch_private as private
from ._library import implement, library
from .operator import Form, complete, tensors_in, with_tensors

_DEVICES = ("cpu", "cuda")


def register(form: Form) -> None:
    """Register the autocast kernels of an operator that takes floating-point numbers."""
    for device_type in _DEVICES if any(dtype.is_floating_point for dtype in form.dtypes) else ():
        implement(form.op, _kernel(form, device_type), f"Autocast{device_type.upper()}")


def casts(x: Tensor, device_type: str) -> bool:
    """Return whether autocast for a type of device casts a tensor."""
    is_float = x.is_floating_point() and x.dtype != torch.float64
    # A tensor that no kernel takes is not cast, so that the error comes from the operator and names it.
    return is_float and x.device.type == device_type and unsupported.complaint(x) is None


def dtype_of(form: Form, inputs: Iterable[Tensor], targets: Iterable[Tensor], device_type: str) -> torch.dtype | None:
    """Return the dtype that the inputs of a call are cast to, or None. A call that writes uses its target's dtype."""
    for target, own in zip(targets, chain(form.of_results, repeat(None)), strict=False):
        if own is None and target.is_floating_point():
            return target.dtype if casts(target, device_type) else None
    of_region = torch.get_autocast_dtype(device_type)
    if form.promises.autocast == "cast" and of_region in form.dtypes:
        return of_region
    # float32 is the widest dtype that is cast. It is used for float16 together with bfloat16, and if the functor does
    # not take the inputs' dtype.
    dtypes = {x.dtype for x in inputs if casts(x, device_type)}
    in_float32 = form.promises.autocast == "float32" or len(dtypes) > 1 or not dtypes.issubset(form.dtypes)
    return torch.float32 if in_float32 else None


def _kernel(form: Form, device_type: str) -> Callable[..., Any]:
    names = private.argument_names(form.op)
    kept = {*form.own, *form.numbers, *form.writes}  # a write into a copy would be lost
    read = [(place, name) for place, name in enumerate(names) if name not in kept]

    def autocast(*args: Any, **kwargs: Any) -> Any:
        args = complete(form.op, args, kwargs)
        targets = form.targets(args)
        contract.check_defined(form, args, targets)
        tensors = tensors_in([args[place] for place, _ in read])
        dtype = dtype_of(form, tensors, targets.values(), device_type)
        cast = [*args]
        if dtype is not None:
            for place, name in read:
                cast[place] = with_tensors(partial(_cast, form, name, dtype, device_type), cast[place])
        with WithoutAutocast():
            return form.call(*cast)

    return autocast


def _cast(form: Form, name: str, dtype: torch.dtype, device_type: str, x: Tensor) -> Tensor:
    if not casts(x, device_type):
        return x
    contract.check_in_storage(form, name, x)
    return x.to(dtype)


class WithoutAutocast:
    """A context without autocast. ``torch.autocast(..., enabled=False)`` takes several times as long."""

    def __enter__(self) -> None:
        self.enabled = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
        for device in self.enabled:
            torch.set_autocast_enabled(device, False)

    def __exit__(self, *_: object) -> None:
        for device in self.enabled:
            torch.set_autocast_enabled(device, True)


_backward = threading.local()  # whether a backward pass of this layer is running


class AsInForward(WithoutAutocast):
    """A context that computes a derivative in the dtype of the forward pass, in whichever autocast region it runs.

    A context manager that is made from a generator would take as long as the kernel of a small call.
    """

    def __init__(self, *, backward: bool = False) -> None:
        self.before = in_backward()
        self.is_running = self.before or backward

    def __enter__(self) -> None:
        _backward.is_running = self.is_running
        super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        _backward.is_running = self.before


def in_backward() -> bool:
    """Return whether a backward pass of an operator of this layer is running in this thread."""
    return getattr(_backward, "is_running", False)


def define_uncast(op: Any) -> Any:
    """Define a copy of an operator that autocast ignores, for compiled backward passes."""
    packet, _, overload = op.name().partition("::")[2].partition(".")
    qualified = f"_{packet.lstrip('_')}_uncast.{overload}".rstrip(".")
    library.define(qualified + private.schema(op).removeprefix(op.name()))

    def call(*args: Any, **kwargs: Any) -> Any:
        with WithoutAutocast():
            return op(*args, **kwargs)

    library.impl(qualified, private.skip_in_dynamo(call), "CompositeExplicitAutograd")
    library.impl(qualified, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"{library.ns}::{qualified}", call)
    return private.overload(library.ns, qualified)
