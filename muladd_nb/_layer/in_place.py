"""What Inductor has for an operator that returns what another one writes (functional.py): a call of the other one.

It writes into a tensor of the program, and the copy that follows is left out, if nobody can tell:

    (new,) = _functional_ema_(x, y)     nobody reads the memory of x from here on,
    z = sin(new)                        nothing else is written there while new is needed,
    copy_(x, new)                       and where x is an input, it gets new.

Otherwise, and in branches, loops and nested regions, it writes into a copy. Inductor's own pass for this does not ask
what else the call reads. But in Inductor's programs a clone of x is x itself, and no operator may read what another of
its arguments overwrites.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import getitem
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.fx import Graph, Node

from . import torch_private as private
from .operator import Form, by_position, complete

_COPY = torch.ops.aten.copy_.default


def lowered(inductor: Any, op: Any, form: Form) -> Callable[..., Any]:
    """Return what Inductor has for ``op``, which returns what the operator of ``form`` writes."""
    call_kernel = by_position(inductor.kernel(form.op, add_to_fallback_set=False), form.op)
    like = torch.ops.aten.empty_like if form.kind in ("writing", "out") else torch.ops.aten.clone
    fresh = inductor.lowerings[like.default]
    is_kernel = form.kind == "functional"

    def lower(*args: Any, **kwargs: Any) -> Any:
        program = inductor.now.graph
        call = program.current_node
        places = _Places(inductor.storage, call.graph)
        new: dict[Node, Any] = {}
        written: list[Any] = []

        def target(x: Any, node: Any) -> Any:
            if isinstance(x, (list, tuple)):
                return [*map(target, x, node)]
            if x is None:
                return None
            if node not in new:
                new[node] = in_place(x, node) or fresh(x)
            written.append(new[node])
            return new[node]

        def in_place(x: Any, node: Node) -> Any:
            if isinstance(program, inductor.branch):  # where views of a clone that is x are not known as views of x
                return None
            results = _results(call, len(written))
            copies = _copies(places, call, node, results, is_kernel=is_kernel)
            if copies is None:
                return None
            realized = inductor.realized(x)
            if realized.get_name() != x.get_name():  # what has no strides is copied
                return None
            inductor.mark_written(program, x.get_name())  # which computes what reads it
            for copy in copies:
                copy.args = (copy.args[0], copy.args[0])
            for result in results:
                places.share(result, node)
            return x if realized is x.data else inductor.TensorBox(realized)

        given = [*complete(op, args, kwargs)]
        for place, node in enumerate(complete(op, call.args, call.kwargs)):
            if place in form.writes:
                given[place] = target(given[place], node)
            elif is_kernel:  # which may count on the strides that it was traced with
                given[place] = inductor.as_traced(given[place], _values(node))
        return form.with_written(call_kernel(*given), written)

    return lower


def _results(call: Node, place: int) -> list[Node]:
    """Return what a program takes of a result: of the one at ``place`` of the list that is the last, or only, one."""
    several = len(private.results(call.target)) - 1
    lists = [x for x in call.users if x.args[1] == several] if several else [call]
    return [x for several in lists for x in several.users if x.target is getitem and x.args[1] == place]


def _values(node: Any) -> Any:
    if isinstance(node, (list, tuple)):
        return [*map(_values, node)]
    return node.meta["val"] if isinstance(node, Node) else None


class _Place(NamedTuple):
    """Where the elements of a tensor are: in which memory, and how they lie in it, if that is known."""

    memory: Any
    layout: tuple[tuple[Any, ...], tuple[Any, ...], Any] | None  # shape, strides and offset

    def may_overlap(self, other: _Place) -> bool:
        """Return whether elements of both may be in one place."""
        if self.memory is None or self.memory != other.memory:
            return False
        mine, its = self.extent(), other.extent()
        return mine is None or its is None or (mine[0] < its[1] and its[0] < mine[1])

    def extent(self) -> tuple[int, int] | None:
        """Return where in the memory the elements begin and end, if these are known numbers."""
        if self.layout is None:
            return None
        shape, strides, begin = self.layout
        if not all(type(x) is int for x in (*shape, *strides, begin)):
            return None
        return begin, begin + (0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))


# By program: in whose memory results are that were written in place, and how much further on, if that is known.
_written: WeakKeyDictionary[Graph, dict[Any, tuple[Any, Any]]] = WeakKeyDictionary()


class _Places:
    """The places of the tensors of a program."""

    def __init__(self, storage: Callable[[Node], Any], graph: Graph) -> None:
        self._storage = storage
        self._of_results = _written.setdefault(graph, {})

    def of(self, x: Any) -> _Place:
        """Return the place of a tensor; what is none has no memory."""
        memory = self._storage(x) if isinstance(x, Node) else None
        if memory is None:
            return _Place(None, None)
        tensor = x.meta["val"]
        shape, strides = tuple(map(_expression, tensor.shape)), tuple(map(_expression, tensor.stride()))
        offset = _expression(tensor.storage_offset())
        while memory in self._of_results:
            memory, by = self._of_results[memory]
            offset = None if by is None or offset is None else offset + by
        return _Place(memory, None if offset is None else (shape, strides, offset))

    def share(self, result: Node, target: Node) -> None:
        """Note that a result is in the memory of what it was written to."""
        mine, its = self.of(result), self.of(target)
        alike = mine.layout and its.layout and mine.layout[:2] == its.layout[:2]
        by = its.layout[2] - mine.layout[2] if alike and mine.layout and its.layout else None
        self._of_results[mine.memory] = its.memory, by


def _expression(size: Any) -> Any:
    return size if type(size) is int else size.node.expr


def _copies(places: _Places, call: Node, target: Node, results: list[Node], *, is_kernel: bool) -> list[Node] | None:
    """Return the copies that are not needed if a call writes into an argument, or None if it must not."""
    here = places.of(target)

    def touches(x: Any) -> bool:
        return places.of(x).may_overlap(here)

    read: list[Node] = []  # every time it is
    torch.fx.node.map_arg((call.args, call.kwargs), lambda x: read.append(x) if touches(x) else None)
    # An element-wise operator may read the elements that it writes to.
    if here.memory is None or (len(read) > 1 and (is_kernel or any(places.of(x) != here for x in read))):
        return None
    made = {places.of(x).memory for x in results}
    nodes = [*call.graph.nodes]
    is_input = any(x.op in ("placeholder", "get_attr") and places.of(x).memory == here.memory for x in nodes)
    later = nodes[nodes.index(call) + 1 :]
    takes = [any(places.of(y).memory in made for y in x.all_input_nodes) for x in later]
    copies: list[Node] = []
    is_overwritten = False
    for i, x in enumerate(later):
        reads = any(map(touches, x.all_input_nodes))
        if not (reads or takes[i]) or x.target is getitem or private.is_view(x.target):
            continue  # a view is asked about where it is used
        if x.target is _COPY and touches(x.args[0]):
            if places.of(x.args[1]).memory in made and _is_there(places, results[0], target, x):
                copies.append(x)
                is_overwritten = True
                continue
            if any(takes[i:]) or (touches(x.args[1]) and not is_overwritten):
                return None
            is_overwritten = is_overwritten or places.of(x.args[0]) == here
        elif private.is_mutable(x.target) or (reads and not is_overwritten):
            return None
        elif is_input and takes[i] and x.op == "output":
            return None  # the caller would have two tensors in one memory
    return copies if is_overwritten or not is_input else None


def _is_there(places: _Places, result: Node, target: Node, copy: Node) -> bool:
    """Return whether a copy of a result, or of a view of all of it, moves nothing if it was written to the target."""
    made, here, to, what = (places.of(x).layout for x in (result, target, *copy.args[:2]))
    if made is None or here is None or to is None or what is None:
        return False
    if copy.args[1] is result and to == here:
        return True
    same_strides = made[:2] == here[:2] and what[:2] == to[:2]
    return same_strides and math.prod(what[0]) == math.prod(made[0]) and what[2] - made[2] == to[2] - here[2]
