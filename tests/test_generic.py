"""PyTorch's generic checks of an operator, which its own test suite runs on ATen."""

import itertools

import layouts
import pytest
import torch
from calls import FUNCTIONS, OPERATORS
from conftest import each
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.autograd import gradcheck, gradgradcheck
from torch.testing._internal import common_utils, composite_compliance

common_utils.TEST_SCIPY = False  # otherwise the next line imports SciPy, which takes two seconds

from torch.testing._internal.opinfo.core import OpInfo, SampleInput  # noqa: E402
from torch.testing._internal.optests import (  # noqa: E402
    aot_autograd_check,
    autograd_registration_check,
    fake_check,
    make_fx_check,
)

SHAPES = [(), (3,), (2, 3), (0, 2), (2, 1, 3)]


def sample_inputs(info, device, dtype, requires_grad, **kwargs):
    for shape in SHAPES:
        tensors = [torch.randn(shape, device=device).to(dtype).requires_grad_(requires_grad) for _ in info.call.names]
        (first, *args), _ = info.call.arguments(*tensors)
        yield SampleInput(first, args=tuple(args))


def info(call):
    found = OpInfo(
        str(call),
        op=call.function,
        ref=lambda *args: call.expected(*(x for x in args if isinstance(x, torch.Tensor))),
        dtypes={*call.form.dtypes},
        sample_inputs_func=sample_inputs,
        supports_out=False,
        supports_forward_ad=True,
        supports_fwgrad_bwgrad=True,
        check_batched_forward_grad=True,
    )
    found.call = call
    return found


operator = pytest.mark.parametrize("info", [*map(info, FUNCTIONS)], ids=lambda info: info.name)


def noncontiguous(sample):
    """Return the same sample in memory with gaps."""
    return sample.transform(
        lambda x: (
            layouts.every_other_column(x.detach()).requires_grad_(x.requires_grad)
            if isinstance(x, torch.Tensor) and x.dim() > 0
            else x
        )
    )


def samples(info, device, dtype=torch.float64, *, requires_grad=False):
    for sample in info.sample_inputs(device, dtype, requires_grad=requires_grad):
        yield sample
        yield noncontiguous(sample)


@operator
def test_it_is_what_aten_gives(info, device, dtype):
    for sample in samples(info, device, dtype):
        widened = [x.double() if isinstance(x, torch.Tensor) else x for x in (sample.input, *sample.args)]
        expected = info.ref(*widened)
        torch.testing.assert_close(info(sample.input, *sample.args), expected.to(dtype))


@operator
def test_the_schema_says_what_is_written_and_returned(info, device):
    for sample in samples(info, device):
        with SchemaCheckMode() as mode:
            info(sample.input, *sample.args)
    assert mode.ops  # the mode has seen operators


@each([call for call in OPERATORS if call.writes])
def test_the_schema_says_so_of_writes_too(call, device):
    a, b, c, out = (torch.randn(2, 3, device=device) for _ in range(4))
    with SchemaCheckMode(), CrossRefFakeMode():
        call(a, b, c, out=out)
        call(a, b, c, out=layouts.transposed(out))


@operator
def test_fake_tensors_are_what_real_ones_are(info, device, dtype):
    for sample in samples(info, device, dtype):
        with CrossRefFakeMode():
            info(sample.input, *sample.args)


@operator
def test_optests(info, device):
    for sample in samples(info, device, torch.float32, requires_grad=True):
        args = (sample.input, *sample.args)
        fake_check(info.op, args, {})
        make_fx_check(info.op, args, {}, tracing_mode="symbolic")
        overload = info.op if isinstance(info.op, torch._ops.OpOverload) else info.op.default
        autograd_registration_check(overload, args, {})


@operator
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_aot_autograd(info, device, dynamic):
    for sample in itertools.islice(samples(info, device, torch.float32, requires_grad=True), 2, 6):
        aot_autograd_check(info.op, (sample.input, *sample.args), {}, dynamic=dynamic)


@operator
def test_composite_compliance_of_the_derivatives(info, device):
    """PyTorch's check that a derivative supports subclasses: no step bypasses them."""
    for sample in samples(info, device, requires_grad=True):
        args = (sample.input, *sample.args)
        composite_compliance.check_with_mode(info.op, args, {}, torch.testing.assert_close)
        composite_compliance.check_all_permutations(info.op, args, {}, torch.testing.assert_close)
        composite_compliance.check_backward_formula(info.op, args, {}, assert_equal_fn=torch.testing.assert_close)
        composite_compliance.check_forward_ad_formula(info.op, args, {}, assert_equal_fn=torch.testing.assert_close)


@operator
def test_gradients(info, device):
    for sample in samples(info, device, requires_grad=True):
        if sample.input.numel():
            args = (sample.input, *sample.args)
            gradcheck(info.op, args, check_batched_grad=True, check_forward_ad=True, check_batched_forward_grad=True)
            gradgradcheck(info.op, args, check_batched_grad=True, check_fwd_over_rev=True, check_rev_over_rev=True)


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
