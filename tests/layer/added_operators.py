"""Test what the cases of operators.py do not: messages, defaults, and special tensors."""

import dataclasses
import warnings

import layouts
import pytest
import torch
from operators import OPERATORS, adam_, ramp, ramped, rescale_, stepped
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, jacfwd, jacrev, jvp, vjp, vmap

import muladd_nb
from muladd_nb import _C
from muladd_nb._layer import Elementwise, autograd
from muladd_nb._operators import FORMS

ops = torch.ops.muladd_nb
CASES = {case.name: case for case in OPERATORS}
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def tensors(*shape, dtype=torch.float64, n=3):
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=torch.float64).to(dtype) for _ in range(n)]


def of_tensors(function, args):
    return [function(x) if torch.is_tensor(x) else x for x in args]


WRITING = [form for form in FORMS if form.operator in CASES and form.kind in ("writing", "out") and not form.role]


@pytest.mark.parametrize("form", WRITING, ids=lambda form: form.op.name())
def test_every_form_writes_the_bits_of_the_result(form):
    case = CASES[form.operator]
    args = case.sample(case.dtypes[0], shape=(300, 70))
    expected = case.call(*args)
    if form.tensor_numbers:
        args = [torch.tensor(x, dtype=torch.float64) if isinstance(x, float) else x for x in args]
    out = torch.empty(70, 300, dtype=expected.dtype).t()
    if form.kind == "out":
        by_place, by_keyword = case.given(args)
        assert form.op(*by_place, **by_keyword, out=out) is out
    else:
        assert form.op(*args, out) is None
    assert torch.equal(out, expected)
    assert out._version == 1


def test_integers_have_all_their_bits():
    wide = torch.randint(-(2**62), 2**62, (50, 70))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        x = wide.to(dtype)
        assert torch.equal(ops.popcount(x), sum((x.long() >> i) & 1 for i in range(8 * dtype.itemsize)).to(dtype))
    x = torch.arange(5)
    for n in (2**62 + 1, -(2**63)):
        assert torch.equal(ops.shift(x, n), x + n)
        assert torch.equal(torch.compile(ops.shift, fullgraph=True)(x, n), x + n)


def test_a_number_may_be_a_tensor_without_a_batch_under_vmap():
    x, y, w = tensors(2, 3, dtype=torch.float32)
    number = torch.tensor(0.5, dtype=torch.float64)
    batched = vmap(ops.blend, (0, None, 0, 0, None))
    assert torch.equal(batched(x, number, y, w, 0.5), ops.blend(x, 0.5, y, w, 0.5))


def test_the_operators_of_the_package_are_as_they_were():
    x, y, w = tensors(2, 3, dtype=torch.float32)
    torch.testing.assert_close(muladd_nb.mymuladd(x, y, w), x * y + w)
    result, pull = vjp(lambda x: muladd_nb.mymuladd(x, y, 0.5), x)
    torch.testing.assert_close(pull(torch.ones_like(result))[0], y)


def test_compiled_autograd_warns_of_nothing_of_the_layer():
    x, y, w = (t.requires_grad_() for t in tensors(50))
    expected = torch.autograd.grad(ops.blend(x, 0.5, y, w, -3.0).sum(), (x, y, w))
    with (
        torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")),
        warnings.catch_warnings(record=True) as of,
    ):
        warnings.simplefilter("always")
        ops.blend(x, 0.5, y, w, -3.0).sum().backward()
    assert not [warning for warning in of if "_layer" in str(warning.message)]
    for leaf, gradient in zip((x, y, w), expected, strict=True):
        torch.testing.assert_close(leaf.grad, gradient)


# ---- Tensors and results with another dtype than C, and several results


def test_a_product_of_two_dtypes_is_of_the_wider_one():
    x, weight = tensors(50, dtype=torch.float16, n=1)[0], torch.randn(50)
    leaf = weight.clone().requires_grad_()
    result = ops.weigh(x, leaf)
    assert torch.equal(torch.autograd.grad(result, leaf, x)[0], x.float() * x.float())
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(ops.weigh(forward_ad.make_dual(x, x), weight)).tangent
    assert torch.equal(tangent, (x * weight).half())


def clipped(x, limit):
    return torch.where(x > limit, limit, x).to(x.dtype), x > limit, torch.where(x > limit, x.double() ** 2, 0).float()


# These have float32 tensors or results, whose derivatives by finite differences are not exact.
OF_FLOAT32 = {
    "weigh": (lambda x: (x, x.float().cos()), 2, lambda x, weight: ((x * weight).to(x.dtype),)),
    "clip": (lambda x: (x, 0.25), 1, clipped),
}


@pytest.mark.parametrize("name", OF_FLOAT32)
def test_gradients_and_tangents_beside_float32(name):
    arguments_of, count, same = OF_FLOAT32[name]
    args = arguments_of(tensors(4, 3, n=1)[0])
    given, numbers, every = args[:count], args[count:], tuple(range(count))
    tangents = tuple(x.cos() for x in given)

    def ours(*xs):
        results = getattr(ops, name)(*xs)
        return results if isinstance(results, tuple) else (results,)

    def derivatives(op):
        def f(*xs):
            return tuple(y.sin() for y in op(*xs, *numbers) if y.is_floating_point())

        def of_one(*xs):  # the others get no gradient
            return f(*xs)[-1].sum()

        gradient = grad(lambda *xs: sum(y.sum() * (i + 2) for i, y in enumerate(f(*xs))), every)
        yield jvp(f, given, tangents)
        yield gradient(*given)
        yield grad(of_one, every)(*given)
        yield jvp(gradient, given, tangents)
        yield jacrev(f, every)(*given)
        yield jacfwd(f, every)(*given)
        yield vmap(grad(of_one, every))(*given)

    for actual, expected in zip(derivatives(ours), derivatives(same), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_higher_derivatives_by_a_tensor_with_a_dtype_of_its_own_are_those_of_the_formula(dtype):
    """A kernel computes the gradient of x, and the formula its derivative by ``scale``, in reverse mode only."""
    (x,), (scale,) = tensors(2, 3, dtype=dtype, n=1), tensors(3, n=1)

    def derivatives(function):
        made = grad(lambda *xs: function(*xs).sin().sum(), (0, 1))
        for _ in range(2):
            made = jacrev(made, (0, 1))
            yield made(x, scale)

    formula = next(form.promises.formula for form in FORMS if form.operator == "gauge")
    for actual, expected in zip(derivatives(ops.gauge), derivatives(formula), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match="^gauge: in forward mode there is no higher derivative by scale, which has"):
        jacfwd(grad(lambda *xs: ops.gauge(*xs).sum()), 1)(x, scale)


def test_a_result_of_integers_is_a_constant():
    (x,) = tensors(4, 3, n=1)
    assert not ops.quantize(x.clone().requires_grad_(), 64.0).requires_grad
    by_x = grad(lambda x: (x * ops.quantize(x, 1.0)).sum())(x)
    assert torch.equal(by_x, x.round().clamp(-128, 127))


def test_autocast_leaves_an_out_that_has_a_dtype_of_its_own():
    x = tensors(3, dtype=torch.float32, n=1)[0]
    with torch.autocast("cpu", torch.bfloat16):
        ops.quantize_out(x, 64.0, out := torch.empty(3, dtype=torch.int8))
        assert torch.equal(out, ops.quantize(x, 64.0))
        ops.product_out(x, x, out := torch.empty(3, dtype=torch.float64))
        assert torch.equal(out, ops.product(x, x))


def test_a_wrong_dtype_ends_in_a_sentence():
    x = tensors(2, 3, dtype=torch.float32, n=1)[0]
    for name, bad, sentence in (
        ("popcount", (x,), "x must be uint8, int8, int16, int32, int64 or bool, got float32"),
        ("masked_scale", (x, x, 0.5), "keep must be bool, got float32"),
        ("masked_scale", (x, x[0, :2] > 0, 0.5), "x and keep must have shapes that broadcast, got [2, 3] and [2]"),
        ("masked_scale", (x > 0, x > 0, 0.5), "x must be float16, bfloat16, float32 or float64, got bool"),
        ("masked_scale", (x, (x > 0).to("meta"), 0.5), "x and keep must be on the same device, got cpu and meta"),
        ("dequantize", (x, x), "q must be int8, got float32"),
        ("dequantize", (x[0, :2].to(torch.int8), x), "q and scale must have shapes that broadcast, got [2] and [2, 3]"),
        ("weigh", (x, x.double()), "weight must be float32, got float64"),
        ("quantize_out", (x, 0.5, torch.empty(2, 3)), "out must be int8, got float32"),
        ("product_out", (x, x, torch.empty(2, 3)), "out must be float64, got float32"),
    ):
        with pytest.raises(RuntimeError) as real:
            getattr(ops, name)(*bad)
        assert str(real.value).startswith(f"{name}: {sentence}")
        with FakeTensorMode() as mode, pytest.raises(RuntimeError) as fake:
            getattr(ops, name)(*of_tensors(mode.from_tensor, bad))
        assert str(fake.value).splitlines()[0] == str(real.value)


def test_out_shares_no_byte_with_an_input_of_another_dtype():
    memory = torch.zeros(64, dtype=torch.int8)
    x, of_8 = memory[:32].view(torch.float32), memory
    ops.quantize_out(x, 1.0, of_8[32:40])
    ops.quantize_out(memory.view(torch.float32)[::2], 1.0, memory[4:].view(-1)[:60:8][:8])  # in the gaps
    for out in (of_8[:8], of_8[31:39], of_8[3:32:4][:8]):
        with pytest.raises(RuntimeError, match=r"^quantize_out: out must be x itself or share no memory with it"):
            ops.quantize_out(x, 1.0, out)


def form_of(name):
    return next(form for form in FORMS if form.name == name and not form.tensor_numbers)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sum_difference", "aten is for one result"),
        ("weigh", "aten is for one result, and tensors that share its dtype"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_refused(name, sentence):
    with pytest.raises(ValueError, match=f"^{name}: .*{sentence}"):
        autograd.register(dataclasses.replace(form_of(name), promises=Elementwise(aten=torch.ops.aten.mul.Tensor)))


# ---- Eight inputs, and a derivative by hand


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("of_x", layouts.ALL)
def test_eight_inputs_and_a_function_of_cmath(dtype, of_x):
    xs = tensors(4, 3, 5, 67, dtype=dtype, n=8)
    result = ops.sum8(of_x(xs[0]), *xs[1:7], of_x(xs[7]))
    expected, eps = xs[0].double().exp() + sum(x.double() for x in xs[1:]), torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), expected, rtol=4 * eps, atol=16 * eps)


def test_an_input_without_a_derivative_is_refused_where_one_is_asked_for():
    xs = tensors(3, n=8)
    pull = vjp(lambda *xs: ops.sum8(*xs, xs[0].detach()), *xs[:7])[1]
    torch.testing.assert_close(pull(torch.ones(3).double())[:2], (xs[0].exp(), torch.ones(3).double()))
    instead = "detach h, or have vjp return one$"
    with pytest.raises(RuntimeError, match=f"^sum8: h has no gradient, but requires one; {instead}"):
        grad(lambda h: ops.sum8(*xs[:7], h).sum())(xs[7])
    with pytest.raises(RuntimeError, match="^sum8: h has no gradient, but requires one; detach h"):
        jvp(lambda h: ops.sum8(*xs[:7], h), (xs[7].detach(),), (xs[0],))


def test_what_autocast_leaves_alone_is_no_error_in_a_region():
    xs = tensors(3, dtype=torch.float32, n=8)
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.sum8(*xs).dtype == torch.float32
        assert ops.sum8(xs[0].bfloat16(), *xs[1:]).dtype == torch.float32
        assert ops.sum8(*(x.bfloat16() for x in xs)).dtype == torch.bfloat16


# ---- Defaults, and keyword-only numbers

GIVEN = [((), {}), ((0.5,), {}), ((), {"slope": 0.25, "twice": True}), ((0.25,), {"bias": 2.0, "n": 4})]
given = pytest.mark.parametrize(("args", "kwargs"), GIVEN)
both = pytest.mark.parametrize("op", [ops.ramp, ramp], ids=["operator", "function"])


@given
@both
def test_defaults_and_keywords(op, args, kwargs):
    x = tensors(5, 7, dtype=torch.float32)[0]
    expected = ramped(x, *args, **kwargs)
    assert torch.equal(op(x, *args, **kwargs), expected)
    out = torch.empty_like(x)
    assert op(x, *args, **kwargs, out=out) is out
    assert torch.equal(out, expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert op(x, *args, **kwargs).dtype == torch.bfloat16
    assert op(x.to("meta"), *args, **kwargs).shape == x.shape
    jagged = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2, 5]))
    assert torch.equal(op(jagged, *args, **kwargs).values(), expected)
    with pytest.raises(RuntimeError, match=r"ramp: x must be a dense tensor"):
        op(x.to_sparse(), *args, **kwargs)


@given
@both
def test_transforms_of_defaults_and_keywords(op, args, kwargs):
    x = tensors(5, 7)[0]
    assert torch.equal(vmap(lambda x: op(x, *args, **kwargs))(x), ramped(x, *args, **kwargs))
    out = torch.empty_like(x)
    vmap(lambda x, out: op(x, *args, **kwargs, out=out))(x, out)
    assert torch.equal(out, ramped(x, *args, **kwargs))
    assert torch.autograd.gradcheck(lambda x: op(x, *args, **kwargs), x.clone().requires_grad_(), check_forward_ad=True)
    gradient = vmap(grad(lambda x: op(x, *args, **kwargs).sum()))(x)
    assert torch.equal(gradient, vmap(grad(lambda x: ramped(x, *args, **kwargs).sum()))(x))
    torch.library.opcheck(ops.ramp.default, (x, *args), kwargs)


def test_programs_with_defaults_and_keywords():
    """One program with all calls compiles faster than a program for each."""

    def calls(x, *functions):
        return [-function(x.abs(), *args, **kwargs) for args, kwargs in GIVEN for function in functions]

    class Module(torch.nn.Module):
        def forward(self, x):
            return calls(x, ops.ramp, ramp)

    x = tensors(5, 7, dtype=torch.float32)[0].requires_grad_()
    expected = calls(x, ramped, ramped)
    gradients = [torch.autograd.grad(y.sum(), x)[0] for y in expected]
    results = torch.compile(Module(), fullgraph=True)(x)
    assert all(map(torch.equal, results, expected))
    of_results = [torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in results]
    assert all(map(torch.equal, of_results, gradients))
    exported = torch.export.export(Module(), (x,)).run_decompositions()
    assert all(map(torch.equal, exported.module()(x), expected))


def test_numbers_of_a_program_with_keywords_change():
    compiled = torch.compile(lambda x, slope, bias: -ramp(x.abs(), slope, bias=bias), fullgraph=True, dynamic=True)
    x = tensors(5, 7, dtype=torch.float32)[0]
    for slope, bias in ((0.5, 0.25), (-2.0, 0.125), (4.0, -1.0)):
        assert torch.equal(compiled(x, slope, bias), -ramped(x.abs(), slope, bias=bias))


# ---- Tensors that are updated

updating = pytest.mark.parametrize("name", [case.name for case in OPERATORS if case.written])


@updating
def test_updates_go_past_the_dispatcher(name):
    case, before = CASES[name], _C.calls_past_dispatcher()
    for op in (getattr(ops, name), case.ops[0]):
        by_place, by_keyword = case.given(case.sample(torch.float32))
        assert op(*by_place, **by_keyword) is None
    assert _C.calls_past_dispatcher() == before + 2


@updating
def test_an_update_is_counted_on_the_meta_device(name):
    case = CASES[name]
    for function in (case.function, case.ops[0]):
        args = of_tensors(lambda x: x.to("meta"), case.sample(torch.float32))
        by_place, by_keyword = case.given(args)
        assert function(*by_place, **by_keyword) is None
        assert all(
            x._version == (y in case.written) for y, x in zip(case.names, args, strict=True) if torch.is_tensor(x)
        )


def test_a_number_that_is_a_double_is_not_rounded():
    p, m, v, gradient = tensors(5, dtype=torch.float32, n=4)
    adam_(p, m.zero_(), v, gradient, 0.5, beta1=0.999)
    assert torch.equal(m, (1 - 0.999) * gradient)


def test_updates_of_many_elements():
    """With this size, several threads share the work, and stores bypass the cache."""
    args = [x.abs() for x in tensors(3_000_001, dtype=torch.float32, n=4)]
    expected = stepped(*args, 0.5, beta1=0.25)
    adam_(*args, 0.5, beta1=0.25)
    torch.testing.assert_close(tuple(args[:3]), expected)


def test_updates_in_other_tensors():
    args = [x.abs() for x in tensors(5, 7, dtype=torch.float32, n=4)]
    expected = stepped(*args, 0.5)
    rows = torch.tensor([0, 2, 5])
    jagged = [torch.nested.nested_tensor_from_jagged(x.clone(), rows) for x in args]
    adam_(*jagged, 0.5)
    assert torch.equal(jagged[1].values(), expected[1])
    x = torch.randn(5, dtype=torch.complex64)
    imaginary, by = x.conj().imag, torch.tensor(2.0)
    quadrupled = imaginary.clone() * 4
    assert imaginary.is_neg()
    rescale_(by, imaginary)
    assert torch.equal(imaginary, quadrupled)
    with pytest.raises(RuntimeError, match="adam_: p must be a dense tensor"):
        adam_(args[0].to_sparse(), *args[1:], 0.5)
    for context, needs_grad in ((torch.inference_mode, False), (torch.no_grad, True)):
        with context():
            given = [x.clone().requires_grad_(needs_grad) for x in args]
            adam_(*given, 0.5)
            assert torch.equal(given[0], expected[0])
    half = [x.half() for x in args]
    of_half = [x.half() for x in stepped(*(x.float() for x in half), 0.5)]
    with torch.autocast("cpu", torch.bfloat16):  # computes in the dtype of what is written to
        adam_(*half[:3], half[3].float(), 0.5)
    torch.testing.assert_close(half[:3], of_half)


def test_what_is_updated_may_be_what_is_read_but_not_updated_twice():
    x = torch.ones(4, 4)
    with pytest.raises(RuntimeError, match="p is written to and must share no memory with m"):
        adam_(x, x, x.clone(), x.clone(), 0.5)
    with pytest.raises(RuntimeError, match="p must be gradient itself or share no memory with it"):
        adam_(x, x.clone(), x.clone(), x.t(), 0.5)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="but p has a tangent"):
        adam_(forward_ad.make_dual(x.clone(), x), x.clone(), x.clone(), x, 0.5)
    p, m, v = x.clone(), x.clone(), x.clone()
    adam_(p, m, v, p, 0.5)
    assert torch.equal(p, stepped(x, x, x, x, 0.5)[0])


def test_what_is_updated_has_no_derivative_to_promise():
    no_derivative = dict.fromkeys(("save", "vjp", "jvp"), lambda *_: None)
    for promises in ({"derivative": no_derivative}, {"formula": lambda by, x, n: x * by * n}):
        with pytest.raises(ValueError, match="rescale_: an operator that updates its arguments has no derivative"):
            autograd.register(dataclasses.replace(form_of("rescale_"), promises=Elementwise(**promises)))
