"""Autocast follows the region's dtype, with gradients, vmap and compilation."""

import itertools
from contextlib import nullcontext

import pytest
import torch
from calls import RETURNING
from conftest import each

import muladd_nb

ops = torch.ops.muladd_nb

target = pytest.mark.parametrize("target", [torch.bfloat16, torch.float16], ids=str)


@each(RETURNING)
@target
def test_the_region_chooses_the_dtype(device, call, target):
    a, b = torch.randn(3, 4, device=device), torch.randn(3, 4, device=device)
    with torch.autocast(device, target):
        result = call(a, b)
        mixed = call(a, b.to(target))
    assert result.dtype == target
    assert torch.equal(result, call(a.to(target), b.to(target)))
    assert torch.equal(mixed, result)
    with torch.autocast(device, target, enabled=False):
        assert call(a, b).dtype == torch.float32
    assert call(a, b).dtype == torch.float32


@each(RETURNING)
def test_float64_is_left_alone(device, call):
    a = torch.randn(3, device=device, dtype=torch.float64)
    with torch.autocast(device, torch.bfloat16):
        assert torch.equal(call(a, a), call(a, a).double())
        assert call(a, a).dtype == torch.float64


@each(RETURNING)
@target
def test_gradients_come_in_the_dtype_of_the_inputs(device, call, target):
    inputs = [torch.randn(3, 4, device=device, requires_grad=True) for _ in call.names]
    with torch.autocast(device, target):
        result = call(*inputs)
    cast = [x.detach().to(target).requires_grad_() for x in inputs]
    expected = torch.autograd.grad(call.expected(*cast).sum(), cast)
    for gradient, right in zip(torch.autograd.grad(result.sum(), inputs), expected, strict=True):
        assert gradient.dtype == torch.float32
        assert torch.equal(gradient, right.float())


@each(RETURNING)
@target
def test_vmap(device, call, target):
    a, b = torch.randn(3, 4, device=device), torch.randn(4, device=device)
    with torch.autocast(device, target):
        result = torch.vmap(call, (0, None))(a, b)
    assert torch.equal(result, call(a.to(target), b.to(target).expand(3, 4)))


def test_compiled(device):
    """Both dtypes in one program, because compiling two programs takes twice as long."""

    def f(a, b):
        results = []
        for target in (torch.bfloat16, torch.float16):
            with torch.autocast(device, target):
                results.append(muladd_nb.mymuladd(a, b, 0.5))
        return results

    inputs = [torch.randn(3, 4, device=device, requires_grad=True) for _ in range(2)]
    results, expected = torch.compile(f, fullgraph=True)(*inputs), f(*inputs)
    assert [result.dtype for result in results] == [torch.bfloat16, torch.float16]
    assert all(map(torch.equal, results, expected))
    ours, theirs = (torch.autograd.grad(of, inputs, [torch.ones_like(x) for x in of]) for of in (results, expected))
    torch.testing.assert_close(ours, theirs)


def test_what_is_written_into_is_not_cast(device):
    a, out = torch.randn(3, device=device), torch.empty(3, device=device)
    with torch.autocast(device, torch.bfloat16):
        ops.mymuladd_out(a, a, 0.5, out)
    assert torch.equal(out, ops.mymuladd(a, a, 0.5))


@each(RETURNING)
def test_a_storage_that_is_smaller_than_its_tensor_is_not_read_by_a_cast(device, call):
    a = torch.zeros(2, 100, device=device)
    a.untyped_storage().resize_(64)
    with (
        torch.autocast(device),
        pytest.raises(RuntimeError, match=f": {call.names[0]} must lie in its storage, got shape "),
    ):
        call(a, a)


@each(RETURNING)
@target
@pytest.mark.parametrize(("n", "backend"), [
    *itertools.product((5, 70_000), (None, "aot_eager")),
    *(pytest.param(n, "inductor", marks=pytest.mark.slow) for n in (5, 70_000)),
])  # fmt: skip
def test_a_backward_pass_is_computed_in_the_dtype_of_the_forward(device, call, target, n, backend):
    """The backward pass ignores the region that it runs in, in whose dtype 300,000 is infinite or not exact."""
    inputs = [torch.full((n,), x, device=device, requires_grad=True) for x in (1.0, 300_001.0, 2.0)[: len(call.names)]]

    def derivatives(function, region):
        result = function(*inputs)
        with region:
            gradients = torch.autograd.grad(result.sum(), inputs, create_graph=backend is None)
            if any(x.requires_grad for x in gradients):
                gradients += torch.autograd.grad(sum(gradients).sum(), inputs, materialize_grads=True)
        return gradients

    function = torch.compile(call, backend=backend) if backend else call
    ours, right = derivatives(function, torch.autocast(device, target)), derivatives(call.expected, nullcontext())
    assert all(map(torch.equal, ours, right))
