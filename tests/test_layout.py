"""The result has the strides of torch.empty_like(a), and no input is copied to be read."""

import itertools
import random

import layouts
import pytest
import torch
from calls import FUNCTIONS, WRITES
from torch._subclasses import FakeTensorMode
from torch.profiler import ProfilerActivity, profile

ops = torch.ops.muladd_nb

EXPANDED = [
    lambda x: x[:1].expand_as(x),
    lambda x: x[..., :1].expand_as(x),
    lambda x: x[:1, :, :1].expand_as(x),
    lambda x: x.narrow(0, 0, 1),
    lambda x: x[:0],
]


@pytest.mark.parametrize("of_a", [*layouts.ALL, *EXPANDED])
def test_strides_are_those_of_empty_like(device, dtype, of_a):
    a = of_a(torch.randn(4, 3, 5, 6, device=device).to(dtype))
    b = torch.randn(a.shape, device=device).to(dtype)
    expected = torch.empty_like(a).stride()
    for call in FUNCTIONS:
        assert call(a, b).stride() == expected
        assert call(a.to("meta"), b.to("meta")).stride() == torch.empty_like(a.to("meta")).stride()
        with FakeTensorMode() as mode:
            assert call(mode.from_tensor(a), mode.from_tensor(b)).stride() == expected


@pytest.mark.parametrize("seed", range(100))
def test_strides_of_any_part_of_a_tensor_are_those_of_empty_like(device, seed):
    lot = random.Random(seed)
    dims = lot.randrange(1, 5)
    a = torch.ones([lot.choice([1, 2, 3, 4]) for _ in range(dims)], device=device)
    if lot.random() < 0.5:
        a = a.permute(lot.sample(range(dims), dims))
    a = a[tuple(lot.choice([slice(None), slice(1), slice(1, None), slice(0, None, 2)]) for _ in range(dims))]
    a = a.unsqueeze(lot.randrange(a.dim() + 1)) if lot.random() < 0.3 else a
    a = a.expand([lot.choice([size, 2]) if size == 1 else size for size in a.shape])
    assert ops.mymul(a, a).stride() == torch.empty_like(a).stride(), (a.shape, a.stride())


@pytest.mark.parametrize("of_a", [*layouts.ALL, *EXPANDED[:3]])
@pytest.mark.parametrize("of_b", EXPANDED[:3])
def test_expanded_inputs(device, dtype, of_a, of_b):
    x, y = (torch.randn(4, 3, 5, 66, device=device).to(dtype) for _ in range(2))
    a, b = of_a(x), of_b(y)
    for call, tensors in itertools.product(FUNCTIONS, [(a, b, x), (b, a, x), (x, a, b)]):
        assert torch.equal(call(*tensors), call(*(x.contiguous() for x in tensors)))


@pytest.mark.parametrize("of_b", [*layouts.ALL, *EXPANDED[:3]])
def test_inputs_are_read_in_place(device, of_b):
    a = torch.randn(4, 3, 5, 6, device=device)
    b = of_b(torch.randn(4, 3, 5, 6, device=device))
    for call in FUNCTIONS:
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            call(a, b)
        names = {event.name for event in profiler.events()}
        assert call.form.op._schema.name in names
        assert not {name for name in names if name.startswith("aten::") and "empty" not in name}


@pytest.mark.parametrize("shape", [(129, 257), (1000, 3), (3, 1000), (2, 300, 5), (64, 64), (1, 70)])
def test_transposed_against_contiguous(device, dtype, shape):
    a = torch.randn(shape, device=device).to(dtype)
    b = torch.randn(shape[::-1], device=device).to(dtype).permute(*range(len(shape) - 1, -1, -1))
    for call in FUNCTIONS:
        assert torch.equal(call(a, b), call(a, b.contiguous()))
        assert torch.equal(call(b, a), call(b.contiguous(), a))
    for call in WRITES:
        out = torch.empty_like(b)
        call(a, out=out)
        assert torch.equal(out, call.result(a))


@pytest.mark.parametrize(
    ("shape", "strides"), [((1, 4), (100, 1)), ((4, 1, 5), (5, 1, 1)), ((0, 4), (7, 9)), ((2, 1, 3), (1, 50, 2))]
)
def test_odd_strides_are_the_same_real_fake_and_compiled(device, shape, strides):
    a = torch.empty_strided(shape, strides, device=device).fill_(1.0)
    expected = torch.empty_like(a).stride()
    assert ops.mymul(a, a).stride() == expected
    with FakeTensorMode() as mode:
        assert ops.mymul(mode.from_tensor(a), mode.from_tensor(a)).stride() == expected
    assert torch.compile(lambda a: ops.mymul(a, a).stride(), backend="aot_eager")(a) == expected
