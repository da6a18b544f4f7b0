"""Let Inductor write in place again. functional.py replaced an operator that writes by one that returns new values.

Inductor lowers the new operator to a call of the one that writes. If the results cannot differ, the call may write into
the tensor itself, and the copy that follows is left out:

    (new,) = _functional_ema_(x, y)     nothing after this reads the memory of x,
    z = sin(new)                        nothing else writes there while new is needed,
    copy_(x, new)                       and if x is an input of the program, it becomes new.

Otherwise, and in branches, loops and nested regions, the call writes into a copy.

We do not use Inductor's own pass, because it ignores the other arguments of the call. In Inductor's programs a clone of
x may be x itself, so a call that takes both would read memory while it overwrites it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from . import contract
from . import torch_private as private
from .operator import Form, by_position, complete

_COPY = torch.ops.aten.copy_.default


def lowered(inductor: Any, op: Any, form: Form) -> Callable[..., Any]:
    """Return Inductor's lowering of ``op``, which returns the values that the operator of ``form`` writes."""
    call_kernel = by_position(private.lowering_of_write(inductor, form.op), form.op)
    like = torch.ops.aten.empty_like if form.kind in ("writing", "out") else torch.ops.aten.clone
    fresh = inductor.lowerings[like.default]
    is_kernel = form.kind == "kernel"

    def lower(*args: Any, **kwargs: Any) -> Any:
        program = inductor.now.graph
        call = program.current_node
        locations = _Locations(inductor.storage, call.graph)
        written: list[Any] = []
        targets: list[Node] = []

        def target(x: Any, node: Any) -> Any:
            if isinstance(x, (list, tuple)):
                return [*map(target, x, node)]
            if x is None:
                return None
            written.append(in_place(x, node) or fresh(x))
            return written[-1]

        def in_place(x: Any, node: Node) -> Any:
            if isinstance(program, inductor.branch):  # views of a clone are not known to be views of x here
                return None
            # Two targets may be one node, because Inductor removes clones. Each needs its own memory.
            if sum(locations.of(other).may_overlap(locations.of(node)) for other in targets) > 1:
                return None
            results = _results(call, len(written))
            copies = _copies(locations, call, node, results, is_kernel=is_kernel)
            if copies is None:
                return None
            realized = inductor.realized(x)
            if realized.get_name() != x.get_name():  # a tensor without strides is copied
                return None
            inductor.mark_written(program, x.get_name())  # first computes everything that reads it
            _note(locations, node, results, copies)
            return x if realized is x.data else inductor.TensorBox(realized)

        given, nodes = [*complete(op, args, kwargs)], complete(op, call.args, call.kwargs)
        map_arg([nodes[place] for place in form.writes.values()], targets.append)
        for place, node in enumerate(nodes):
            if place in form.writes.values():
                given[place] = target(given[place], node)
            elif is_kernel:  # it may rely on the strides that it was traced with
                given[place] = inductor.as_traced(given[place], map_arg(node, lambda x: x.meta["val"]))
        return form.with_written(call_kernel(*given), written)

    return lower


def _results(call: Node, place: int) -> list[Node]:
    """Return the nodes that take the new tensor at ``place``. New tensors are a list, the last or only result."""
    last = len(private.results(call.target)) - 1
    lists = [x for x in call.users if x.args[1] == last] if last else [call]
    return [x for one in lists for x in one.users if x.target is getitem and x.args[1] == place]


class _Location(NamedTuple):
    """The memory that the elements of a tensor are in, and their layout there, if it is known."""

    memory: Any
    layout: tuple[tuple[Any, ...], tuple[Any, ...], Any] | None  # shape, strides and offset

    def may_overlap(self, other: _Location) -> bool:
        """Return whether both may share an element."""
        if self.memory is None or self.memory != other.memory:
            return False
        mine, its = self.extent(), other.extent()
        return mine is None or its is None or (mine[0] < its[1] and its[0] < mine[1])

    def extent(self) -> tuple[int, int] | None:
        """Return where the elements begin and end in the memory, if these are known numbers."""
        if self.layout is None:
            return None
        shape, strides, begin = self.layout
        if not all(type(x) is int for x in (*shape, *strides, begin)):
            return None
        return begin, begin + (0 if 0 in shape else contract.extent(shape, strides))


class _Locations:
    """The locations of the tensors of a program."""

    def __init__(self, storage: Callable[[Node], Any], graph: Graph) -> None:
        self._storage = storage
        # For each result that was written in place: the memory that it is in, and the offset, if known. It is stored in
        # the graph, because other packages with a copy of this file may write in the same program.
        self._of_results: dict[Any, tuple[Any, Any]] = vars(graph).setdefault("elementwise_written", {})

    def of(self, x: Any) -> _Location:
        """Return the location of a tensor. Anything else has no memory."""
        memory = self._storage(x) if isinstance(x, Node) else None
        if memory is None:
            return _Location(None, None)
        tensor = x.meta["val"]
        shape, strides = tuple(map(_expression, tensor.shape)), tuple(map(_expression, tensor.stride()))
        offset = _expression(tensor.storage_offset())
        of_base = self._storage(_base(x))
        if of_base is not None and of_base != memory:  # x was a view of a clone, which Inductor has removed
            memory, offset = of_base, None
        while memory in self._of_results:
            memory, by = self._of_results[memory]
            offset = None if by is None or offset is None else offset + by
        return _Location(memory, None if offset is None else (shape, strides, offset))

    def share(self, result: Node, target: Node) -> None:
        """Note that a result is in the memory of the tensor that it was written to."""
        mine, its = self.of(result), self.of(target)
        alike = mine.layout and its.layout and mine.layout[:2] == its.layout[:2]
        by = its.layout[2] - mine.layout[2] if alike and mine.layout and its.layout else None
        self._of_results[mine.memory] = its.memory, by


def _base(x: Node) -> Node:
    """Return the node that ``x`` is a view of, or ``x``."""
    while x.op == "call_function":
        of = x.args[0] if x.target is getitem else x  # one of several views
        if not (isinstance(of, Node) and private.is_view(of.target) and isinstance(of.args[0], Node)):
            break
        x = of.args[0]
    return x


def _expression(size: Any) -> Any:
    return size if type(size) is int else size.node.expr


def _copies(
    locations: _Locations, call: Node, target: Node, results: list[Node], *, is_kernel: bool
) -> list[Node] | None:
    """Return the copies that become unnecessary if a call writes into its argument, or None if it must not."""
    here = locations.of(target)

    def touches(x: Any) -> bool:
        return locations.of(x).may_overlap(here)

    read: list[Node] = []  # one entry for each time that the memory is read
    map_arg((call.args, call.kwargs), lambda x: read.append(x) if touches(x) else None)
    # An element-wise operator may read the elements that it writes to.
    if here.memory is None or (len(read) > 1 and (is_kernel or any(locations.of(x) != here for x in read))):
        return None
    made = {locations.of(x).memory for x in results}
    nodes = [*call.graph.nodes]
    is_input = any(x.op in ("placeholder", "get_attr") and locations.of(x).memory == here.memory for x in nodes)
    later = nodes[nodes.index(call) + 1 :]
    takes = [any(locations.of(y).memory in made for y in x.all_input_nodes) for x in later]
    copies: list[Node] = []
    is_overwritten = False
    for i, x in enumerate(later):
        reads = any(map(touches, x.all_input_nodes))
        if not (reads or takes[i]) or x.target is getitem or private.is_view(x.target):
            continue  # a view counts where it is used
        if x.target is _COPY and touches(x.args[0]):
            if locations.of(x.args[1]).memory in made and _is_there(locations, results[0], target, x):
                copies.append(x)
                is_overwritten = True
                continue
            if any(takes[i:]) or (touches(x.args[1]) and not is_overwritten):
                return None
            is_overwritten = is_overwritten or locations.of(x.args[0]) == here
        elif private.is_mutable(x.target) or (reads and not is_overwritten):
            return None
        elif is_input and takes[i] and x.op == "output":
            return None  # the program would return a tensor that shares memory with its input
    return copies if is_overwritten or not is_input else None


def _note(locations: _Locations, target: Node, results: list[Node], copies: list[Node]) -> None:
    """Note that a call writes into ``target``, and that ``copies`` are unnecessary."""
    for copy in copies:  # each now copies a tensor onto itself, and Inductor drops it
        copy.args = (copy.args[0], copy.args[0])
    for result in results:
        locations.share(result, target)


def _is_there(locations: _Locations, result: Node, target: Node, copy: Node) -> bool:
    """Return whether a copy of the result, or of a view of all of it, would change nothing after a write in place."""
    made, here, to, what = (locations.of(x).layout for x in (result, target, *copy.args[:2]))
    if made is None or here is None or to is None or what is None:
        return False
    if copy.args[1] is result and to == here:
        return True
    same_strides = made[:2] == here[:2] and what[:2] == to[:2]
    return same_strides and math.prod(what[0]) == math.prod(made[0]) and what[2] - made[2] == to[2] - here[2]
