"""Operands with random layouts, overlaps, offsets, alignments and storages give exact results, or the right error."""

import math
from collections import Counter
from dataclasses import dataclass

import torch
from calls import CALLS, Call
from exact import bits, hard_values, value
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

COUNTS = Counter()
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
KINDS = ("plain", "plain", "misaligned", "lazy clone", "original of a lazy clone", "shrunk")


@dataclass
class Memory:
    """The memory of the views. Its storage is shortened by `cut` elements; views that need these must be refused."""

    kind: str
    cut: int


@dataclass
class View:
    memory: int
    offset: int
    strides: tuple[int, ...]

    def indices(self, shape):
        """Return the indices of its elements in the memory, in order."""
        reached = [self.offset]
        for size, stride in zip(shape, self.strides, strict=True):
            reached = [x + stride * i for x in reached for i in range(size)]
        return reached


@dataclass
class Case:
    call: Call
    dtype: torch.dtype
    shape: tuple[int, ...]
    memories: list[Memory]
    views: list[View]  # of the inputs, then of out
    c: float
    seed: int  # of the random elements


@st.composite
def strides(draw, shape):
    kind = draw(st.sampled_from(["dense", "dense", "gaps", "any"]))
    if kind == "any":
        return tuple(draw(st.integers(0, 9)) for _ in shape)
    order = draw(st.permutations(range(len(shape))))
    result, step = [0] * len(shape), 1
    for d in order:
        if kind == "gaps":
            step += draw(st.integers(0, 3))
        result[d] = step
        step *= max(shape[d], 1)
    return tuple(0 if draw(st.integers(0, 9)) == 9 else stride for stride in result)  # expanded


@st.composite
def cases(draw):
    call = draw(st.sampled_from(CALLS))
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    if shape and draw(st.integers(0, 7)) == 7:  # large enough for vectors, buffers, tiles and several threads
        shape = (draw(st.sampled_from([67, 1031, 40_000])), *(min(size, 3) for size in shape[1:3]))
    memories = draw(st.lists(st.builds(Memory, st.sampled_from(KINDS), st.integers(1, 3)), min_size=1, max_size=3))
    view = st.builds(View, st.integers(0, len(memories) - 1), st.integers(0, 12), strides(shape))
    count = len(call.names) + call.writes
    views = draw(st.lists(view, min_size=count, max_size=count))
    if call.writes and draw(st.integers(0, 3)) == 0:
        views[-1] = views[0]  # in place
    c = draw(st.sampled_from([0.5, -0.0, 0.1, 1e300, math.inf, math.nan]))
    return Case(call, draw(st.sampled_from(DTYPES)), shape, memories, views, c, draw(st.integers(0, 99)))


def due_refusals(case, sizes):
    """Return a part of each error message that the call may raise; an empty list if it must not raise any."""
    names = case.call.names + ["out"] * case.call.writes
    elements = [view.indices(case.shape) for view in case.views]
    due = []
    for name, view, reached in zip(names, case.views, elements, strict=True):
        if reached and max(reached) >= sizes[view.memory]:
            due.append(f"{name} must lie in its storage")
    if case.call.writes and elements[-1]:
        out, written = case.views[-1], set(elements[-1])
        if len(written) < len(elements[-1]):
            due.append("out must not overlap itself")
        for name, view, reached in zip(names[:-1], case.views[:-1], elements[:-1], strict=True):
            if view.memory == out.memory and reached != elements[-1] and written & set(reached):
                due.append(f"out must be {name} itself or share no memory with it")
    return due


def memory_of(kind, values):
    """Return memory with these values, and other objects that share it."""
    if kind == "misaligned":
        raw = bytearray(values.numel() * values.element_size() + 1)
        memory = torch.frombuffer(raw, dtype=values.dtype, offset=1)
        memory.copy_(values)
        return memory, None
    other = torch._lazy_clone(values) if "lazy" in kind else None
    return (other, values) if kind == "lazy clone" else (values, other)


@given(case=cases())
def right_in_any_layout(case):
    generator = torch.Generator().manual_seed(case.seed)
    pool = hard_values(case.dtype)
    pool = torch.cat([pool, torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan]).to(case.dtype)])
    pool = pool[torch.randperm(len(pool), generator=generator)[:8]]
    numbers = pool.double().tolist()

    extents = [1] * len(case.memories)
    for view in case.views:
        if 0 not in case.shape:
            last = view.offset + sum(s * (n - 1) for s, n in zip(view.strides, case.shape, strict=True))
            extents[view.memory] = max(extents[view.memory], last + 1)
    picks = [torch.randint(len(pool), (extent + 13,), generator=generator) for extent in extents]
    sizes, bases, others = [], [], []
    for memory, pick, extent in zip(case.memories, picks, extents, strict=True):
        base, other = memory_of(memory.kind, pool[pick])
        sizes.append(max(extent - memory.cut, 0) if memory.kind == "shrunk" else len(pick))
        bases.append(base)
        others.append(other)
    views = [bases[v.memory].as_strided(case.shape, v.strides, v.offset) for v in case.views]
    for memory, base, size in zip(case.memories, bases, sizes, strict=True):
        if memory.kind == "shrunk":
            base.untyped_storage().resize_(size * base.element_size())
    tensors, out = (views[:-1], views[-1]) if case.call.writes else (views, None)

    due = due_refusals(case, sizes)
    version = out._version if case.call.writes else 0
    try:
        result = case.call(*tensors, out=out, c=case.c)
    except RuntimeError as error:
        assert any(refusal in str(error) for refusal in due), f"due are {due}, got {error}"
        COUNTS["refused as expected"] += 1
    else:
        assert not due, f"due are {due}, but it was done"
        COUNTS["right"] += 1
    assert not case.call.writes or out._version == version + (not due)

    if not due:
        indices = [picks[v.memory].as_strided(case.shape, v.strides, v.offset) for v in case.views]
        flat = sum(index.reshape(-1) * len(pool) ** k for k, index in enumerate(indices[: len(case.call.names)]))
        combinations, inverse = torch.unique(flat, return_inverse=True)
        exact = [
            value(
                case.call, [numbers[n // len(pool) ** k % len(pool)] for k in range(len(tensors))], case.c, case.dtype
            )
            for n in combinations.tolist()
        ]
        expected = torch.tensor(exact, dtype=case.dtype)[inverse].reshape(case.shape)
        got = out if case.call.writes else result
        assert same_bits(got, expected), f"expected {expected}, got {got}"
        if not case.call.writes:
            assert got.stride() == torch.empty_like(tensors[0]).stride(), f"strides {got.stride()}"
            with FakeTensorMode() as mode:
                fake = case.call(*map(mode.from_tensor, tensors), c=case.c)
            assert fake.stride() == got.stride(), f"fake strides {fake.stride()}, real {got.stride()}"

    for place, (base, other, pick, size) in enumerate(zip(bases, others, picks, sizes, strict=True)):
        before = pool[pick][:size]
        if case.call.writes and not due and case.views[-1].memory == place and 0 not in case.shape:
            before.as_strided(case.shape, case.views[-1].strides, case.views[-1].offset).copy_(out)
        assert same_bits(base.as_strided((size,), (1,)), before), f"memory {place} was written beside out"
        assert other is None or same_bits(other, pool[pick]), f"the other of the lazy clone {place} was written"


def same_bits(x, y):
    x, y = x.contiguous(), y.contiguous()
    return torch.equal(x.isnan(), y.isnan()) and bool(((bits(x) == bits(y)) | x.isnan()).all())
