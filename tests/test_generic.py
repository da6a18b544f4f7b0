"""PyTorch's own generic checks of an operator, from OpInfo entries, as its test suite runs them on ATen."""

import itertools

import layouts
import pytest
import torch
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.autograd import gradcheck, gradgradcheck
from torch.testing._internal import common_utils, composite_compliance

common_utils.TEST_SCIPY = False  # or the next line imports SciPy, for two seconds

from torch.testing._internal.opinfo.core import ErrorInput, OpInfo, SampleInput  # noqa: E402
from torch.testing._internal.optests import (  # noqa: E402
    aot_autograd_check,
    autograd_registration_check,
    fake_check,
    make_fx_check,
)

ops = torch.ops.muladd_nb
TENSORS = {"mymuladd": 2, "mymul": 2, "mymuladd.Tensor": 3}
SHAPES = [(), (3,), (2, 3), (0, 2), (2, 1, 3)]


def sample_inputs(info, device, dtype, requires_grad, **kwargs):
    for shape in SHAPES:
        tensors = [
            torch.randn(shape, device=device).to(dtype).requires_grad_(requires_grad) for _ in range(info.tensors)
        ]
        yield SampleInput(tensors[0], args=(*tensors[1:], *[0.5] * (info.name == "mymuladd")))


def error_inputs(info, device, **kwargs):
    a, more = torch.zeros(2, 3, device=device), info.tensors - 2
    number = [0.5] * (info.name == "mymuladd")
    for b, sentence in {
        torch.zeros(2, device=device): r"must have (the same shape|shapes that broadcast), got \[2, 3\]",
        torch.zeros(2, 3, device=device, dtype=torch.float64): "must have the same dtype, got float32 and float64",
        torch.zeros(2, 3, device="meta"): "must be on the same device",
    }.items():
        yield ErrorInput(SampleInput(a, args=(b, *[a] * more, *number)), error_regex=sentence)


def info(name, op, aten):
    found = OpInfo(
        name,
        op=op,
        ref=aten,
        dtypes={torch.float16, torch.bfloat16, torch.float32, torch.float64},
        sample_inputs_func=sample_inputs,
        error_inputs_func=error_inputs,
        supports_out=False,
        supports_forward_ad=True,
        supports_fwgrad_bwgrad=True,
        check_batched_forward_grad=True,
    )
    found.tensors = TENSORS[name]
    return found


OPERATORS = [
    info("mymuladd", ops.mymuladd, lambda a, b, c: a * b + c),
    info("mymul", ops.mymul, torch.mul),
    info("mymuladd.Tensor", ops.mymuladd.Tensor, lambda a, b, c: a * b + c),
]
operator = pytest.mark.parametrize("info", OPERATORS, ids=lambda info: info.name)


def noncontiguous(sample):
    """The same sample in memory with gaps."""
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
        torch.testing.assert_close(info(sample.input, *sample.args), expected.to(dtype), rtol=2e-2, atol=1e-2)


@operator
def test_the_error_inputs_are_refused(info, device):
    for error in info.error_inputs(device):
        sample = error.sample_input
        with pytest.raises(error.error_type, match=error.error_regex):
            info(sample.input, *sample.args, **sample.kwargs)


@operator
def test_the_schema_says_what_is_written_and_returned(info, device):
    for sample in samples(info, device):
        with SchemaCheckMode() as mode:
            info(sample.input, *sample.args)
    assert mode.ops  # it has seen them


@pytest.mark.parametrize(
    "write",
    [
        lambda a, b, out: ops.myadd_out(a, b, out),
        lambda a, b, out: ops.mymuladd_out(a, b, 0.5, out),
        lambda a, b, out: ops.mymuladd_out.Tensor(a, b, a, out),
        lambda a, b, out: ops.mymuladd.out(a, b, 0.5, out=out),
        lambda a, b, out: ops.mymul.out(a, b, out=out),
    ],
)
def test_the_schema_says_so_of_writes_too(write, device):
    a, b, out = (torch.randn(2, 3, device=device) for _ in range(3))
    with SchemaCheckMode(), CrossRefFakeMode():
        write(a, b, out)
        write(a, b, layouts.transposed(out))


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
    """What PyTorch asks of a derivative that subclasses pass through: no step of it takes a short cut past them."""
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


# ---- Transforms in any order, one level of each in the other, against the same in ATen.


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

    def ours(a, b):
        with inside():
            x = ops.mymuladd(a, b, 0.5)
        return ops.mymuladd.Tensor(x, ops.mymul(x, a), b)

    def aten(a, b):
        with inside():
            x = a * b + 0.5
        return x * (x * a) + b

    # tests/fuzz/nesting.py is about nestings at random; of those four deep, every seventh.
    for names in itertools.islice(itertools.product(TRANSFORMS, repeat=depth), 0, None, 7 if depth == 4 else 1):
        mine, theirs = ours, aten
        for name in names:
            mine, theirs = TRANSFORMS[name](mine), TRANSFORMS[name](theirs)
        torch.testing.assert_close(mine(a, b), theirs(a, b), msg=lambda text: f"{names}: {text}")
