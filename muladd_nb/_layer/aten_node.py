"""The node of ATen that records some calls of an operator: our own, which records the others, must look the same.

Which of the two a call gets depends on who listens, and a profiler in another thread can change that between a forward
pass and its recomputation. ``torch.utils.checkpoint`` pairs what the two save by its order alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from ._library import name


def order_of(op: Any, aten: Callable[..., Tensor], reads: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return the tensors that ATen's node has as inputs, and those that it saves, in its order.

    ``reads`` has what the derivative by each tensor reads. Raise ``ValueError`` if that is not one node, or saves for a
    gradient what its derivative does not read.
    """

    def look(some: Sequence[str]) -> tuple[list[str | None], list[str | None]]:
        """Return the inputs, and what is saved, where some of them require grad."""
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

    # A new thread has none of the modes, transforms and hooks that there may be around the import.
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
    return [x for x in inputs if x is not None], [x for x in order if x is not None]
