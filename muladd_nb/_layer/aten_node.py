"""Finds in which order ATen's node saves tensors, so that the node in Python saves them in the same order.

Small calls are recorded by ATen's node, and others by a node in Python. A profiler, for example, can make the forward
pass of a call use one node and its recomputation the other. ``torch.utils.checkpoint`` matches the tensors that the
two nodes save by their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from ._library import name


def order_of(op: Any, aten: Callable[..., Tensor], reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tensors that ATen's node saves, in its order.

    ``reads`` maps each tensor to the arguments that its derivative reads. Raise ``ValueError`` if ``aten`` makes more
    than one node, or if the node saves other tensors for a gradient than the derivative reads.
    """

    def look(some: Sequence[str]) -> tuple[list[str | None], list[str | None]]:
        """Return the inputs and the saved tensors of the node if only ``some`` tensors require grad."""
        leaves = [torch.ones(1, device="cpu").requires_grad_(x in some) for x in reads]
        name_of = {leaf.data_ptr(): x for x, leaf in zip(reads, leaves, strict=True)}
        saved: list[str | None] = []

        def pack(x: Tensor) -> Tensor:
            saved.append(name_of.get(x.data_ptr()))
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            node: Any = aten(*leaves).grad_fn
        inputs = [getattr(edge, "variable", None) for edge, _ in node.next_functions] if node else []
        return [None if x is None else name_of[x.data_ptr()] for x in inputs], saved

    # In a new thread, because modes, transforms and hooks may be active where the package is imported.
    with ThreadPoolExecutor(1) as thread:
        (inputs, order), *each = thread.map(look, [list(reads), *([x] for x in reads)])
    if set(inputs) != set(reads):
        raise ValueError(f"{name(op)}: aten must be one operator of ATen, on {[*reads]}")
    for (argument, read), (_, saved_for_it) in zip(reads.items(), each, strict=True):
        if saved_for_it != [one for one in order if one in read] or not set(read) <= set(order):
            saved = ["another tensor" if one is None else one for one in saved_for_it]
            raise ValueError(
                f"{name(op)}: for the gradient of {argument} aten saves {saved}, and the derivative reads {[*read]}"
            )
    return [x for x in order if x is not None]
