"""Results are rounded once, and are bit for bit the same everywhere."""

import itertools

import exact
import forked
import layouts
import pytest
import torch
from calls import FIRST_FORMS
from conftest import on_cuda
from exact import bits, hard_values

ops = torch.ops.muladd_nb


@pytest.mark.parametrize("c", [0.0, 0.1, -1.0, 2.0**-130, 1e-8, 1e300])
def test_correctly_rounded_against_exact_arithmetic(device, dtype, c):
    values = hard_values(dtype)
    values = values[values.isfinite()]
    a = values.repeat(2)
    b = torch.cat([values.flip(0), values.roll(3)])
    a, b = a.to(device), b.to(device)
    for call in FIRST_FORMS:
        tensors, out = [a, b, a.flip(0)][: len(call.names)], torch.empty_like(a)
        result = call(*tensors, out=out, c=c)
        numbers = zip(*(x.double().tolist() for x in tensors), strict=True)
        expected = torch.tensor([exact.value(call, x, c, dtype) for x in numbers], dtype=dtype, device=device)
        assert torch.equal(bits(out if call.writes else result), bits(expected)), call


@pytest.mark.parametrize(("dtype", "u"), [(torch.float32, 2.0**-12), (torch.float64, 2.0**-27)])
def test_one_rounding_where_two_would_show(device, dtype, u):
    # (1 + u)^2 - (1 + 2u) is u^2; rounding the product first would give zero.
    a = torch.tensor([1 + u], device=device, dtype=dtype)
    assert ops.mymuladd(a, a, -(1 + 2 * u)).item() == u * u


inf, nan = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("a", "b", "c", "result"),
    [
        (inf, 2.0, 1.0, inf),
        (inf, -2.0, 1.0, -inf),
        (inf, 0.0, 1.0, nan),
        (inf, 1.0, -inf, nan),
        (nan, 1.0, 1.0, nan),
        (1.0, nan, inf, nan),
        (1.0, 1.0, nan, nan),
        (0.0, -1.0, 0.0, 0.0),
        (0.0, -1.0, -0.0, -0.0),
        (-0.0, -1.0, -0.0, 0.0),
        (1.0, -1.0, 1.0, 0.0),
    ],
)
def test_infinities_nan_and_signed_zeros(device, dtype, a, b, c, result):
    for n in (1, 37):  # the vector path and its tail
        x, y = (torch.full((n,), value, device=device, dtype=dtype) for value in (a, b))
        got = ops.mymuladd(x, y, c)
        want = torch.full((n,), result, device=device, dtype=dtype)
        assert torch.equal(got.isnan(), want.isnan())
        assert result != result or torch.equal(bits(got), bits(want))


def test_every_16_bit_number_survives(device):
    for dtype in (torch.float16, torch.bfloat16):
        every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).to(device)
        product = ops.mymul(every, torch.ones_like(every))
        same = bits(product) == bits(every)
        assert (same | every.isnan()).all()
        assert product[every.isnan()].isnan().all()


def test_bits_do_not_depend_on_position(device, dtype):
    a, b = torch.randn(300, device=device).to(dtype), torch.randn(300, device=device).to(dtype)
    whole = ops.mymuladd(a, b, 0.3)
    for start, stop in itertools.product(range(9), range(280, 300)):
        assert torch.equal(bits(ops.mymuladd(a[start:stop], b[start:stop], 0.3)), bits(whole[start:stop]))


@pytest.mark.parametrize("of_a", layouts.ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("of_b", layouts.ALL, ids=lambda f: f.__name__)
def test_bits_do_not_depend_on_layout(device, dtype, of_a, of_b):
    a, b = (torch.randn(3, 5, 35, 17, device=device).to(dtype) for _ in range(2))
    reference = bits(ops.mymuladd(a, b, 0.3))
    assert torch.equal(bits(ops.mymuladd(of_a(a), of_b(b), 0.3).contiguous()), reference)
    out = of_b(torch.zeros_like(a))
    ops.mymuladd_out(of_a(a), b, 0.3, out)
    assert torch.equal(bits(out.contiguous()), reference)


def test_bits_do_not_depend_on_size(dtype):
    """Tries sizes below and above those from which threads, huge pages and streaming stores are used."""
    a, b = (torch.randn(1 << 12).to(dtype) for _ in range(2))
    small = bits(ops.mymuladd(a, b, 0.3))
    large = bits(ops.mymuladd(a.repeat(1 << 12), b.repeat(1 << 12), 0.3))
    assert torch.equal(large, small.repeat(1 << 12))
    offset = bits(ops.mymuladd(a.repeat(1 << 12)[3:], b.repeat(1 << 12)[3:], 0.3))
    assert torch.equal(offset, large[3:])


@on_cuda()
def test_bits_are_those_of_the_cpu(dtype):
    values = hard_values(dtype)
    a, b = values.repeat(len(values)), values.repeat_interleave(len(values))
    cpu, cuda = ops.mymuladd(a, b, 0.3), ops.mymuladd(a.cuda(), b.cuda(), 0.3).cpu()
    assert (cpu.isnan() == cuda.isnan()).all()
    assert torch.equal(bits(cpu)[~cpu.isnan()], bits(cuda)[~cpu.isnan()])


DIGEST = """
import hashlib, sys, torch, muladd_nb
digest = hashlib.sha256()
generator = torch.Generator().manual_seed(0)
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    for shape in ((1 << 21,), (1031, 517), (3, 5, 7, 11)):
        a, b = (torch.ldexp(torch.randn(shape, generator=generator, dtype=torch.float64),
                            torch.randint(-30, 16, shape, generator=generator)).to(dtype) for _ in range(2))
        for x, y in ((a, b), (a.transpose(0, -1), b.transpose(0, -1).contiguous())):
            digest.update(muladd_nb.mymuladd(x, y, 0.3).contiguous().view(torch.uint8).numpy().tobytes())
            digest.update(muladd_nb.mymul(x, y).contiguous().view(torch.uint8).numpy().tobytes())
            for summed in torch.ops.muladd_nb._mymuladd_gradients.Tensor(x, y[..., :1], y[:1], x, 7):
                digest.update(summed.contiguous().view(torch.uint8).numpy().tobytes())
print(muladd_nb.build_info()["simd"], digest.hexdigest(), file=sys.stderr)
"""


@pytest.fixture
def digest(tmp_path):
    """Return the instruction set that a new process uses, and the digest of its results."""

    def digest(first="", **environment):
        code = f"import os, torch; os.environ.update({environment}); {first}{DIGEST}"
        status, printed = forked.python(code, tmp_path / "printed")
        assert status == 0, printed
        return printed.split()

    return digest


def test_bits_do_not_depend_on_instruction_set_or_threads(digest):
    baseline = digest(MULADD_NB_SIMD="baseline")
    assert baseline[0] == "baseline"
    best = digest()
    assert best[1] == baseline[1]
    if best[0] == "avx512":
        assert digest(MULADD_NB_SIMD="avx2") == ["avx2", baseline[1]]
    for threads in (1, 3):
        assert digest(f"torch.set_num_threads({threads})")[1] == baseline[1]
    assert digest(MULADD_NB_HUGEPAGES="0")[1] == baseline[1]


@pytest.mark.parametrize("n", [100, 1 << 20])
def test_bits_do_not_depend_on_what_the_caller_does_to_subnormals(n):
    a, b = torch.full((n,), 1e-30), torch.full((n,), 1e-12)
    out = torch.empty(n)
    expected = bits(ops.mymul(a, b))
    assert (expected != 0).all()
    assert torch.set_flush_denormal(True)
    try:
        ops.mymul.out(a, b, out=out)
        tiny = float.fromhex("0x1p-1022") / 2  # the caller's setting has not changed
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(bits(out), expected)
    assert tiny == 0
