"""Random shapes that broadcast give ATen's values, shape and strides; the result may be larger than each, or empty."""

import math
from collections import Counter

import torch
from calls import CALLS
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

COUNTS = Counter()
BROADCASTING = [call for call in CALLS if call.form.broadcasts and not call.writes and len(call.names) > 1]


@st.composite
def shapes(draw):
    """Return shapes of three tensors that broadcast. In each, dimensions of a common shape may be 1 or missing."""
    whole = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 70]), max_size=4))
    return [
        [size if draw(st.booleans()) else 1 for size in whole][draw(st.integers(0, len(whole))) :] for _ in range(3)
    ]


@given(
    call=st.sampled_from(BROADCASTING),
    shapes=shapes(),
    is_turned=st.lists(st.booleans(), min_size=3, max_size=3),
    requires_grad=st.booleans(),
)
def right_where_it_broadcasts(call, shapes, is_turned, requires_grad):
    x = [torch.arange(1.0, 1 + math.prod(shape)).sin().reshape(shape) for shape in shapes]
    x = [y.mT.contiguous().mT if turn and y.dim() > 1 else y for y, turn in zip(x, is_turned, strict=True)]
    x = [y.requires_grad_(requires_grad) for y in x][: len(call.names)]
    expected, result = call.expected(*x), call(*x)
    torch.testing.assert_close(result, expected)
    with FakeTensorMode() as mode:
        fake = call(*map(mode.from_tensor, x))
    like = next((y for y in x if y.shape == result.shape), None)
    strides = torch.empty(result.shape).stride() if like is None else torch.empty_like(like).stride()
    for how, made in (("real", result), ("fake", fake), ("meta", call(*(y.to("meta") for y in x)))):
        assert (made.shape, made.stride()) == (expected.shape, strides), f"{how}: {made.stride()}, not {strides}"
    if requires_grad:
        gradients = [torch.autograd.grad(y.sum(), x) for y in (result, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    is_larger = all(y.numel() < result.numel() for y in x)
    COUNTS["right, larger than every input" if is_larger else "right, empty" if result.numel() == 0 else "right"] += 1
