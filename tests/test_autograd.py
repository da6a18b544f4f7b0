"""Derivatives: reverse and forward mode, any number of times, saving no more than they need."""

import pytest
import torch
from torch.autograd import forward_ad

import muladd_nb

ops = torch.ops.muladd_nb

FUNCTIONS = {
    "mymuladd": (lambda a, b: ops.mymuladd(a, b, 0.5), lambda a, b: a * b + 0.5),
    "mymuladd.Tensor": (lambda a, b: ops.mymuladd.Tensor(a, b, a), lambda a, b: a * b + a),
    "mymul": (ops.mymul, torch.mul),
    "public_mymuladd": (lambda a, b: muladd_nb.mymuladd(a, b, 0.5), lambda a, b: a * b + 0.5),
    "public_mymul": (muladd_nb.mymul, torch.mul),
}
function = pytest.mark.parametrize(("ours", "reference"), FUNCTIONS.values(), ids=FUNCTIONS)


@function
def test_gradcheck(device, ours, reference):
    a, b = (torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(
        ours, (a, b), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(ours, (a, b), check_fwd_over_rev=True, check_batched_grad=True)
    transposed = b.t().detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: ours(a, b.t()), (a, transposed))


@function
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_gradients(device, dtype, ours, reference, needs):
    a, b = (torch.randn(5, 7, device=device).to(dtype).requires_grad_(need) for need in needs)
    wanted = [x for x in (a, b) if x.requires_grad]
    grad = torch.randn(5, 7, device=device).to(dtype)
    mine = torch.autograd.grad(ours(a, b), wanted, grad)
    theirs = torch.autograd.grad(reference(a, b), wanted, grad)
    assert all(torch.equal(x, y) for x, y in zip(mine, theirs, strict=True))


@function
def test_third_derivative(device, ours, reference):
    def third(f):
        x = torch.full((3,), 0.7, dtype=torch.float64, device=device, requires_grad=True)
        y = f(f(x, x), x).sum()
        for _ in range(3):
            (g,) = torch.autograd.grad(y, x, create_graph=True)
            y = g.sum()
        return y

    torch.testing.assert_close(third(ours), third(reference))


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


@function
def test_nothing_is_recorded_without_need(device, ours, reference):
    a, b = torch.randn(3, device=device, requires_grad=True), torch.randn(3, device=device)
    assert ours(b, b).grad_fn is None
    with torch.no_grad():
        assert not ours(a, b).requires_grad
    with torch.inference_mode():
        assert ours(a, b).is_inference()


@function
def test_dual_numbers(device, dtype, ours, reference):
    a, b, ta, tb = (torch.randn(3, 4, device=device).to(dtype) for _ in range(4))
    for tangents in ((ta, tb), (ta, None), (None, tb)):
        with forward_ad.dual_level():
            pair = [x if t is None else forward_ad.make_dual(x, t) for x, t in zip((a, b), tangents, strict=True)]
            mine, theirs = (forward_ad.unpack_dual(f(*pair)) for f in (ours, reference))
        torch.testing.assert_close(mine.tangent, theirs.tangent)
        assert torch.equal(mine.primal, ours(a, b))


def test_c_is_any_real_number(device):
    a = torch.randn(3, device=device)
    for c in (1, True, 0.5, float("inf")):
        assert torch.equal(muladd_nb.mymuladd(a, a, c), ops.mymuladd(a, a, float(c)))


@pytest.mark.parametrize("needs", [(True, True, True), (False, False, True), (False, True, True), (True, False, False)])
def test_c_that_is_a_tensor_has_a_gradient(device, dtype, needs):
    tensors = [torch.randn(5, 7, device=device).to(dtype).requires_grad_(need) for need in needs]
    wanted = [x for x in tensors if x.requires_grad]
    grad = torch.randn(5, 7, device=device).to(dtype)
    expected = torch.autograd.grad(tensors[0] * tensors[1] + tensors[2], wanted, grad)
    for function in (muladd_nb.mymuladd, ops.mymuladd.Tensor):
        result = function(*tensors)
        mine = torch.autograd.grad(result, wanted, grad)
        assert all(torch.equal(x, y) for x, y in zip(mine, expected, strict=True))


def test_gradcheck_of_three_tensors(device):
    tensors = [torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(
        muladd_nb.mymuladd, tensors, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(muladd_nb.mymuladd, tensors, check_fwd_over_rev=True, check_batched_grad=True)


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
