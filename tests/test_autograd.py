"""Derivatives in reverse and forward mode, of any order; they save only the tensors that they need."""

import itertools
from functools import partial

import torch
from calls import RETURNING
from conftest import each
from torch.autograd import forward_ad

import muladd_nb

ops = torch.ops.muladd_nb


def some(names):
    """Yield all ways to choose some of them."""
    return [needs for needs in itertools.product([True, False], repeat=len(names)) if any(needs)]


@each(RETURNING)
def test_gradcheck(device, call):
    inputs = [torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True) for _ in call.names]
    assert torch.autograd.gradcheck(
        call, inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(call, inputs, check_fwd_over_rev=True, check_batched_grad=True)
    first, *others = inputs
    transposed = [x.t().detach().clone().requires_grad_() for x in others]
    assert torch.autograd.gradcheck(lambda first, *others: call(first, *(x.t() for x in others)), (first, *transposed))


@each(RETURNING)
def test_gradients(device, dtype, call):
    for needs in some(call.names):
        inputs = [torch.randn(5, 7, device=device).to(dtype).requires_grad_(need) for need in needs]
        wanted = [x for x in inputs if x.requires_grad]
        grad = torch.randn(5, 7, device=device).to(dtype)
        ours, right = (torch.autograd.grad(f(*inputs), wanted, grad) for f in (call, call.expected))
        assert all(map(torch.equal, ours, right))


@each(RETURNING)
def test_third_derivative(device, call):
    def third(f):
        x = torch.full((3,), 0.7, dtype=torch.float64, device=device, requires_grad=True)
        y = f(f(x, x), x).pow(4).sum()
        for _ in range(3):
            (g,) = torch.autograd.grad(y, x, create_graph=True)
            y = g.sum()
        return y

    torch.testing.assert_close(third(call), third(call.expected))


@each(RETURNING)
def test_fourth_derivative_in_forward_mode(device, call):
    x = torch.full((3,), 0.7, dtype=torch.float64, device=device)

    def fourth(f):
        def g(x):
            return f(f(x, x), x).pow(2)

        for level in range(4):
            inner = torch.func.grad(lambda x, g=g: g(x).sum()) if level == 1 else g
            g = partial(lambda inner, x: torch.func.jvp(inner, (x,), (torch.ones_like(x),))[1], inner)
        return g(x)

    torch.testing.assert_close(fourth(call), fourth(call.expected))


def test_only_what_a_needed_gradient_reads_is_saved(device):
    packed = []
    a, b = (torch.randn(3, device=device, requires_grad=need) for need in (True, False))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        ops.mymuladd(a, b, 0.5)
    assert len(packed) == 1
    assert packed[0].data_ptr() == b.data_ptr()


def test_backward_is_made_of_mymul(device):
    a = torch.randn(3, device=device, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        ops.mymuladd(a, a.detach(), 0.5).sum().backward()
    assert sum(event.name == "muladd_nb::mymul" for event in profiler.events()) == 1


@each(RETURNING)
def test_nothing_is_recorded_without_need(device, call):
    a, b = torch.randn(3, device=device, requires_grad=True), torch.randn(3, device=device)
    assert call(b).grad_fn is None
    with torch.no_grad():
        assert not call(a, b).requires_grad
    with torch.inference_mode():
        assert call(a, b).is_inference()
        with torch.enable_grad():
            assert not call(a, b).requires_grad


@each(RETURNING)
def test_dual_numbers(device, dtype, call):
    for needs in some(call.names):
        inputs, tangents = ([torch.randn(3, 4, device=device).to(dtype) for _ in needs] for _ in range(2))
        with forward_ad.dual_level():
            given = [forward_ad.make_dual(x, t) if n else x for x, t, n in zip(inputs, tangents, needs, strict=True)]
            ours, right = (forward_ad.unpack_dual(f(*given)) for f in (call, call.expected))
        torch.testing.assert_close(ours.tangent, right.tangent)
        assert torch.equal(ours.primal, call(*inputs))


def test_c_is_any_real_number(device):
    a = torch.randn(3, device=device)
    for c in (1, True, 0.5, float("inf")):
        assert torch.equal(muladd_nb.mymuladd(a, a, c), ops.mymuladd(a, a, float(c)))


def test_a_modulation_learns_gamma_and_beta(device):
    x = torch.randn(8, 3, device=device)
    ours, theirs = ([torch.full((3,), 0.5, device=device, requires_grad=True) for _ in range(2)] for _ in range(2))
    muladd_nb.mymuladd(x, ours[0].expand_as(x), ours[1].expand_as(x)).square().sum().backward()
    (x * theirs[0] + theirs[1]).square().sum().backward()
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, reference.grad)


def test_gradient_accumulates_in_expanded_and_shared_inputs(device):
    row = torch.randn(1, 4, device=device, requires_grad=True)
    ops.mymuladd(row.expand(3, 4), row.expand(3, 4), 0.5).sum().backward()
    torch.testing.assert_close(row.grad, 6 * row.detach())
