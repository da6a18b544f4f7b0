"""PyTorch's generic checks of an operator, which its own test suite runs on ATen. test_opcheck.py has more of them."""

import itertools

import layouts
import pytest
import torch
from calls import FUNCTIONS
from conftest import each
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close
from torch.testing._internal import common_utils, composite_compliance
from torch.testing._internal.optests import aot_autograd_check, make_fx_check

common_utils.TEST_SCIPY = False  # otherwise the first check imports SciPy, which takes two seconds


def samples(call, device, dtype=torch.float32):
    """Yield the arguments of calls with tensors of several shapes, some with gaps in memory."""
    for shape in [(3,), (2, 3), (0, 2), (2, 1, 3), ()]:
        for layout in (layouts.contiguous, layouts.every_other_column) if shape else (layouts.contiguous,):
            tensors = [torch.randn(shape, device=device, dtype=dtype) for _ in call.names]
            yield call.arguments(*(layout(x).detach().requires_grad_() for x in tensors))[0]


@each(FUNCTIONS)
def test_it_is_traced_with_symbolic_shapes(call, device):
    for args in samples(call, device):
        make_fx_check(call.function, args, {}, tracing_mode="symbolic")


@each(FUNCTIONS)
@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_a_traced_gradient_is_that_of_other_values_and_has_a_derivative(call, device, pre_dispatch):
    """The map of torch._higher_order_ops records a backward pass in this manner, and differentiates it."""

    def gradients(*tensors, create_graph=False):
        return torch.autograd.grad(call(*tensors).sin().sum(), tensors, create_graph=create_graph)

    def inputs():
        return [torch.randn(3, device=device, dtype=torch.float64, requires_grad=True) for _ in call.names]

    def derivative(of, tensors):
        return torch.autograd.grad(sum(x.square().sum() for x in of), tensors)

    traced, other = make_fx(gradients, pre_dispatch=pre_dispatch)(*inputs()), inputs()
    made, expected = traced(*other), gradients(*other, create_graph=True)
    assert_close(made, expected)
    assert_close(derivative(made, other), derivative(expected, other))


@each(FUNCTIONS)
def test_aot_autograd_with_static_shapes(call, device):
    """opcheck tries dynamic shapes."""
    for args in itertools.islice(samples(call, device), 4):
        aot_autograd_check(call.function, args, {}, dynamic=False)


@each(FUNCTIONS)
def test_composite_compliance_of_the_derivatives(call, device):
    """PyTorch's check that a derivative supports subclasses: no step bypasses them."""
    for args in samples(call, device, torch.float64):
        composite_compliance.check_with_mode(call.function, args, {}, assert_close)
        composite_compliance.check_all_permutations(call.function, args, {}, assert_close)
        composite_compliance.check_backward_formula(call.function, args, {}, assert_equal_fn=assert_close)
        composite_compliance.check_forward_ad_formula(call.function, args, {}, assert_equal_fn=assert_close)


# ---- Nested transforms in any order, compared with ATen.


def scalar(g):
    return lambda a, b: g(a, b).sum()


TRANSFORMS = {
    "grad": lambda g: torch.func.grad(scalar(g)),
    "vjp": lambda g: lambda a, b: torch.func.vjp(g, a, b)[1](g(a, b))[1],
    "jvp": lambda g: lambda a, b: torch.func.jvp(g, (a, b), (b, a))[1],
    "jacrev": lambda g: lambda a, b: torch.func.jacrev(g)(a, b).sum(-1),
    "jacfwd": lambda g: lambda a, b: torch.func.jacfwd(g, 1)(a, b).sum(-1),
    "vmap": lambda g: lambda a, b: torch.func.vmap(g, (0, None))(torch.stack([a, b]), b).sum(0),
}


@pytest.mark.parametrize(
    "depth", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))], ids=lambda depth: f"{depth} deep"
)
@pytest.mark.parametrize("inside", [torch.enable_grad, torch.no_grad])
def test_nestings(device, depth, inside):
    a, b = (torch.randn(2, dtype=torch.float64, device=device) for _ in range(2))

    def nest(functions):
        def nested(a, b):
            first, *others = functions
            with inside():
                x = first(a, b)
            for function in others:
                x = function(x, a, b)
            return x

        return nested

    ours, aten = nest(FUNCTIONS), nest([call.expected for call in FUNCTIONS])
    # tests/fuzz/nesting.py tries random nestings. Here we try every seventh of depth 4.
    for names in itertools.islice(itertools.product(TRANSFORMS, repeat=depth), 0, None, 7 if depth == 4 else 1):
        mine, theirs = ours, aten
        for name in names:
            mine, theirs = TRANSFORMS[name](mine), TRANSFORMS[name](theirs)
        torch.testing.assert_close(mine(a, b), theirs(a, b), msg=lambda text: f"{names}: {text}")
