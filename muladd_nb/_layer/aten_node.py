"""Records small calls with a node of ATen, which is in C++: a node in Python takes several times as long.

The entry of an operator names an operator of ATen with the same derivative (``aten``). Its kernel at the key Autograd
makes the node, and then redispatches to a kernel that computes. We add a kernel to the operator, at a key that PyTorch
has no kernel for. It computes nothing, and returns what this library has computed (``aten_node.h``).

Other calls are recorded by a node in Python. A profiler, for example, can make the forward pass of a call use one node
and its recomputation the other. ``torch.utils.checkpoint`` matches the tensors that the two nodes save by their order.
So the node in Python saves them in the order of ATen's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .. import _C
from . import torch_private as private
from ._library import name

# The keys of backends that PyTorch has no kernels for. Each library of a process takes another one.
UNUSED = "FPGA", "Metal", "Vulkan", "CustomRNGKeyId"
MOST_TENSORS = 3  # kMostRedispatched in ask_torch.h


@cache
def node_of(aten: Any) -> tuple[int, int, Any, Mapping[str, int]] | None:
    """Return for C++ what makes a node of ``aten``, or None on a torch that lacks what is needed.

    It is the address of a function, the dispatch keys to call it with, the handle of ``aten``, and the keys whose
    kernels no program may have replaced.
    """
    redispatch = private.redispatch_in_cpp(aten)
    unused = next((key for key in UNUSED if private.has_kernel_for(aten, key) is False), None)
    if not (redispatch and private.set_error and unused):
        return None
    _C.take_computed(aten.name().removeprefix("aten::"), unused)
    keys = "AutogradCPU", unused  # the kernel at Autograd is the same for all devices
    kernels = private.numbers_of("Autograd", *keys)
    return redispatch, private.bits_of(*keys), private.handle_of(aten), kernels


def order_of(op: Any, aten: Any, reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tensors that ATen's node saves, in its order.

    ``reads`` maps each tensor to the arguments that its derivative reads. Raise ``ValueError`` if ``aten`` is not an
    operator of as many tensors (at most three), or if its node saves other tensors for a gradient than the derivative
    reads.
    """
    takes = [*private.arguments(aten), *private.results(aten)] if isinstance(aten, private.OpOverload) else []
    if [str(x.type) for x in takes if not x.alias_info] != ["Tensor"] * (1 + len(reads)) or len(reads) > MOST_TENSORS:
        raise ValueError(
            f"{name(op)}: aten must be an overload of ATen, such as torch.ops.aten.mul.Tensor, that takes {[*reads]} "
            f"and returns a new tensor; at most {MOST_TENSORS} tensors can be passed; got {aten}"
        )
    if private.has_kernel_for(aten, "CompositeImplicitAutograd"):
        raise ValueError(f"{name(op)}: aten must be an operator with a node of its own; {aten} calls other operators")

    def saved_for(some: Sequence[str]) -> list[str | None]:
        """Return what the node saves if only ``some`` tensors require grad."""
        leaves = [torch.ones(1, device="cpu").requires_grad_(x in some) for x in reads]
        name_of = {leaf.data_ptr(): x for x, leaf in zip(reads, leaves, strict=True)}
        saved: list[str | None] = []

        def pack(x: Tensor) -> Tensor:
            saved.append(name_of.get(x.data_ptr()))
            return x

        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
                requires_grad = aten(*leaves).requires_grad
        except RuntimeError as error:
            raise ValueError(f"{name(op)}: aten must take tensors of any shape; {aten} raises: {error}") from error
        if not requires_grad:
            raise ValueError(f"{name(op)}: aten must have a derivative by {[*some]}, but {aten} has none")
        return saved

    # In a new thread, because modes, transforms and hooks may be active where the package is imported.
    with ThreadPoolExecutor(1) as thread:
        order, *each = thread.map(saved_for, [list(reads), *([x] for x in reads)])
    for (argument, read), saved_for_it in zip(reads.items(), each, strict=True):
        if saved_for_it != [one for one in order if one in read] or not set(read) <= set(order):
            saved = ["another tensor" if one is None else one for one in saved_for_it]
            raise ValueError(
                f"{name(op)}: for the gradient of {argument} aten saves {saved}, and the derivative reads {[*read]}"
            )
    return [x for x in order if x is not None]
