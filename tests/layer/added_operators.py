"""Tests of the operators that test_layer.py adds, in a few lines each, to a copy of the tree."""

import contextlib
import dataclasses
import itertools
import warnings

import layouts
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import muladd_nb
from muladd_nb import _C
from muladd_nb._layer import Elementwise, autograd
from muladd_nb._layer.public import public
from muladd_nb._operators import FORMS

ops = torch.ops.muladd_nb
ALPHA, BETA = 0.5, -3.0
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]

# Two operators, and the same in ATen. `blend` has three tensors, and two numbers between them.
OURS = {"blend": lambda x, y, w: ops.blend(x, ALPHA, y, w, BETA), "bent": lambda x, y, w: ops.bent(x)}
ATEN = {"blend": lambda x, y, w: ALPHA * x + BETA * y * w, "bent": lambda x, y, w: x / (1 + x.abs())}
NUMBERS = {"blend": [(1, ALPHA), (4, BETA)], "bent": []}

both = pytest.mark.parametrize("name", OURS)


def tensors(*shape, dtype=torch.float64, n=3):
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=torch.float64).to(dtype) for _ in range(n)]


def arguments(name, x, y, w):
    return (x, ALPHA, y, w, BETA) if name == "blend" else (x,)


def close(result, expected, dtype):
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), expected, rtol=4 * eps, atol=16 * eps)


@both
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("of_x", layouts.ALL)
def test_values_on_every_dtype_and_layout(name, dtype, of_x):
    x, y, w = tensors(4, 3, 5, 67, dtype=dtype)
    result = OURS[name](of_x(x), y, of_x(w))
    close(result, ATEN[name](x.double(), y.double(), w.double()), dtype)
    assert result.dtype == dtype
    assert result.stride() == torch.empty_like(of_x(x)).stride()
    assert torch.equal(result, OURS[name](x, y, w))


@both
def test_every_form_gives_the_same_bits(name):
    x, y, w = tensors(300, 70, dtype=torch.float32)
    expected, given = OURS[name](x, y, w), arguments(name, x, y, w)
    writing, variant = (getattr(ops, f"{name}_out").default, getattr(ops, name).out)
    out = torch.empty_like(x)
    assert writing(*given, out) is None
    assert torch.equal(out, expected)
    out = torch.empty(70, 300).t()
    version = out._version
    assert variant(*given, out=out) is out
    assert torch.equal(out, expected)
    assert out._version == version + 1
    if NUMBERS[name]:
        scalars = [torch.tensor(g, dtype=torch.float64) if isinstance(g, float) else g for g in given]
        assert torch.equal(ops.blend.tensor_alpha_beta(*scalars), expected)
        ops.blend_out.tensor_alpha_beta(*scalars, out.zero_())
        assert torch.equal(out, expected)
    writing(*given, x)  # in place
    assert torch.equal(x, expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_an_integer_operator(dtype):
    torch.manual_seed(0)
    bits = 8 * dtype.itemsize
    x = torch.randint(-(2**62), 2**62, (50, 70)).to(dtype)
    expected = sum((x.long() >> i) & 1 for i in range(1 if dtype == torch.bool else bits)).to(dtype)
    for of_x in (layouts.contiguous, layouts.transposed, layouts.every_other_column):
        result = ops.popcount(of_x(x))
        assert result.dtype == dtype
        assert torch.equal(result, expected)
    compiled = torch.compile(lambda x: ops.popcount(x) + 0, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), expected)
    assert torch.equal(vmap(ops.popcount, 1, 1)(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ops.popcount(x), expected)
    assert ops.popcount(x.to("meta")).dtype == dtype
    torch.library.opcheck(ops.popcount.default, (x,))


def test_an_integer_operator_refuses_other_dtypes():
    with pytest.raises(
        RuntimeError, match="^popcount: x must be uint8, int8, int16, int32, int64 or bool, got float32"
    ):
        ops.popcount(torch.zeros(3))


# Operators whose tensors or result have another dtype than C: arguments, and the same in ATen.
def quantized(x, scale):
    return (x * scale).round().clamp(-128, 127).to(torch.int8)


MIXED = {
    "masked_scale": lambda x: (x, x > 0, 0.5),
    "dequantize": lambda x: ((x * 50).to(torch.int8), x.abs()),
    "weigh": lambda x: (x, x.float().cos()),
    "quantize": lambda x: (x, 64.0),
    "product": lambda x: (x, x.cos()),
}
SAME = {
    "masked_scale": lambda x, keep, scale: torch.where(keep, x * scale, 0),
    "dequantize": lambda q, scale: q.to(scale.dtype) * scale,
    "weigh": lambda x, weight: (x * weight).to(x.dtype),
    "quantize": quantized,
    "product": lambda x, y: x.double() * y.double(),
}
DIFFERENTIABLE = {"masked_scale": [0], "dequantize": [1], "weigh": [0, 1], "quantize": [], "product": [0, 1]}
mixed = pytest.mark.parametrize("name", MIXED)


@mixed
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("of_x", layouts.ALL)
def test_a_dtype_of_its_own(name, dtype, of_x):
    args = [of_x(x) if isinstance(x, torch.Tensor) else x for x in MIXED[name](tensors(5, 67, dtype=dtype, n=1)[0])]
    expected = SAME[name](*(x.double() if torch.is_tensor(x) and x.is_floating_point() else x for x in args))
    op = getattr(ops, name)
    result, like = op(*args), SAME[name](*args)
    assert result.dtype == like.dtype
    # 16-bit dtypes are computed in float32 and rounded once, so some quantized elements differ by one.
    torch.testing.assert_close(result.double(), expected.double(), rtol=torch.finfo(dtype).eps, atol=1e-6)
    first = next(filter(torch.is_tensor, args))
    assert result.stride() == torch.empty_like(first).stride()
    meta = op(*(x.to("meta") if torch.is_tensor(x) else x for x in args))
    assert (meta.dtype, meta.stride()) == (result.dtype, result.stride())
    out = torch.empty(67, 5, dtype=result.dtype).t()
    getattr(ops, f"{name}_out")(*args, out)
    assert torch.equal(out, result)
    assert op.out(*args, out=out.zero_()) is out
    assert torch.equal(out, result)
    batched = vmap(op, tuple(1 if torch.is_tensor(x) else None for x in args), 1)(*args)
    assert torch.equal(batched, result)


@mixed
def test_derivatives_beside_a_dtype_of_its_own(name):
    args = MIXED[name](tensors(4, 3, dtype=torch.float32 if name == "product" else torch.float64, n=1)[0])
    given = tuple(args[place] for place in DIFFERENTIABLE[name])
    every = tuple(range(len(given)))

    def derivatives(op):
        def f(*xs):
            of_places = dict(zip(DIFFERENTIABLE[name], xs, strict=True))
            return op(*(of_places.get(place, x) for place, x in enumerate(args))).sin()

        gradient = grad(lambda *xs: f(*xs).sum(), every)
        tangents = tuple(x.cos() for x in given)
        yield jvp(f, given, tangents)
        yield gradient(*given)
        yield jvp(gradient, given, tangents)
        yield jacrev(f, every)(*given)
        yield jacfwd(f, every)(*given)

    if not given:
        x = args[0].requires_grad_()
        assert not ops.quantize(x, 64.0).requires_grad
        assert torch.equal(grad(lambda x: (x * ops.quantize(x, 1.0)).sum())(x.detach()), quantized(x, 1.0).double())
        return
    for actual, expected in zip(derivatives(getattr(ops, name)), derivatives(SAME[name]), strict=True):
        torch.testing.assert_close(actual, expected)


def test_a_product_of_two_dtypes_is_of_the_wider_one():
    x, weight = tensors(50, dtype=torch.float16, n=1)[0], torch.randn(50)
    leaf = weight.clone().requires_grad_()
    result = ops.weigh(x, leaf)
    assert torch.equal(torch.autograd.grad(result, leaf, x)[0], x.float() * x.float())
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(ops.weigh(forward_ad.make_dual(x, x), weight)).tangent
    assert torch.equal(tangent, (x * weight).half())


@mixed
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_dtype_of_its_own_compiled(name, backend):
    args = MIXED[name](tensors(5, 7, dtype=torch.float32, n=1)[0])
    args = [x.requires_grad_() if place in DIFFERENTIABLE[name] else x for place, x in enumerate(args)]

    def f(*args):
        return getattr(ops, name)(*args) + 1

    compiled = torch.compile(f, fullgraph=True, backend=backend)
    assert torch.equal(compiled(*args), f(*args))
    wanted = [args[place] for place in DIFFERENTIABLE[name]]
    if wanted:
        of_both = [torch.autograd.grad(g(*args).sum(), wanted) for g in (compiled, f)]
        torch.testing.assert_close(*of_both)
    torch.library.opcheck(getattr(ops, name).default, args)
    with torch.no_grad():
        out = torch.empty_like(getattr(ops, name)(*args))
        torch.library.opcheck(getattr(ops, f"{name}_out").default, (*(x for x in args), out))


def test_autocast_leaves_what_has_a_dtype_of_its_own():
    x = tensors(3, dtype=torch.float32, n=1)[0]
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.weigh(x, x).dtype == torch.bfloat16
        assert ops.weigh(x.bfloat16(), x).dtype == torch.bfloat16
        assert ops.masked_scale(x, x > 0, 0.5).dtype == torch.bfloat16
        assert ops.dequantize(x.to(torch.int8), x).dtype == torch.bfloat16
        assert ops.quantize(x, 64.0).dtype == torch.int8
        ops.quantize_out(x, 64.0, out := torch.empty(3, dtype=torch.int8))
        assert torch.equal(out, ops.quantize(x, 64.0))
        assert ops.product(x, x).dtype == torch.float64
        ops.product_out(x, x, out := torch.empty(3, dtype=torch.float64))
        assert torch.equal(out, ops.product(x, x))


def test_a_wrong_dtype_ends_in_a_sentence():
    x = tensors(2, 3, dtype=torch.float32, n=1)[0]
    for name, bad, sentence in (
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
            getattr(ops, name)(*(mode.from_tensor(x) if torch.is_tensor(x) else x for x in bad))
        assert str(fake.value).splitlines()[0] == str(real.value)


def test_out_shares_no_byte_with_an_input_of_another_dtype():
    memory = torch.zeros(64, dtype=torch.int8)
    x, of_8 = memory[:32].view(torch.float32), memory
    ops.quantize_out(x, 1.0, of_8[32:40])
    ops.quantize_out(memory.view(torch.float32)[::2], 1.0, memory[4:].view(-1)[:60:8][:8])  # in the gaps
    for out in (of_8[:8], of_8[31:39], of_8[3:32:4][:8]):
        with pytest.raises(RuntimeError, match=r"^quantize_out: out must be x itself or share no memory with it"):
            ops.quantize_out(x, 1.0, out)


def clipped(x, limit):
    return torch.where(x > limit, limit, x).to(x.dtype), x > limit, torch.where(x > limit, x.double() ** 2, 0).float()


SEVERAL = {
    "sum_difference": (lambda x: (x, x.cos()), lambda x, y: (x + y, x - y)),
    "product_above": (lambda x: (x, x.cos()), lambda x, y: (x * y, x > y)),
    "clip": (lambda x: (x, 0.25), clipped),
}
several = pytest.mark.parametrize("name", SEVERAL)


@several
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("of_x", layouts.ALL)
def test_several_results(name, dtype, of_x):
    arguments_of, same = SEVERAL[name]
    (x,) = tensors(5, 67, dtype=dtype, n=1)
    args = [of_x(x) if torch.is_tensor(x) else x for x in arguments_of(x)]
    results = getattr(ops, name)(*args)
    assert isinstance(results, tuple)
    meta = getattr(ops, name)(*(x.to("meta") if torch.is_tensor(x) else x for x in args))
    rows = vmap(getattr(ops, name), tuple(0 if torch.is_tensor(x) else None for x in args))(*args)
    for result, expected, of_meta, of_rows in zip(results, same(*args), meta, rows, strict=True):
        torch.testing.assert_close(result, expected)
        assert result.stride() == torch.empty_like(args[0]).stride() == of_meta.stride()
        assert result.dtype == of_meta.dtype
        assert torch.equal(result, of_rows)


@several
def test_derivatives_of_several_results(name):
    arguments_of, same = SEVERAL[name]
    args = arguments_of(tensors(4, 3, dtype=torch.float32, n=1)[0])
    given = tuple(filter(torch.is_tensor, args))
    numbers = args[len(given) :]
    every = tuple(range(len(given)))
    tangents = tuple(x.cos() for x in given)

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

    for actual, expected in zip(derivatives(getattr(ops, name)), derivatives(same), strict=True):
        torch.testing.assert_close(actual, expected)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, x.cos()) for x in given]
        assert all(y.dtype == forward_ad.unpack_dual(y).tangent.dtype
                   for y in getattr(ops, name)(*duals, *numbers) if y.is_floating_point())  # fmt: skip


@several
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_several_results_compiled(name, backend):
    arguments_of, _ = SEVERAL[name]
    args = [x.requires_grad_() if torch.is_tensor(x) else x
            for x in arguments_of(tensors(5, 7, dtype=torch.float32, n=1)[0].sin())]  # fmt: skip

    def f(*args):
        return tuple(y + 1 for y in getattr(ops, name)(*args))

    actual, expected = torch.compile(f, fullgraph=True, backend=backend)(*args), f(*args)
    assert all(map(torch.equal, actual, expected))
    wanted = [x for x in args if torch.is_tensor(x)]
    of_both = [torch.autograd.grad(sum(y.sum() for y in results), wanted) for results in (actual, expected)]
    torch.testing.assert_close(*of_both)
    torch.library.opcheck(getattr(ops, name).default, args)
    with torch.autocast("cpu", torch.bfloat16):
        dtypes = [y.dtype for y in getattr(ops, name)(*args)]
    others = {"sum_difference": [torch.bfloat16], "product_above": [torch.bool], "clip": [torch.bool, torch.float32]}
    assert dtypes == [torch.bfloat16, *others[name]]


REFUSED = {
    "aten is for one result": ("sum_difference", {"aten": torch.mul}),
    "aten is for one result, and tensors that share its dtype": ("weigh", {"aten": torch.mul}),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_promise_that_cannot_be_kept_is_refused(sentence):
    name, promises = REFUSED[sentence]
    (form,) = (form for form in FORMS if form.name == name and form.kind == "functional" and not form.tensor_numbers)
    with pytest.raises(ValueError, match=f"^{name}: .*{sentence}"):
        autograd.register(dataclasses.replace(form, promises=Elementwise(**promises)))


def weigh(function):
    return lambda *xs: (function(*xs) * torch.linspace(1, 2, xs[0].numel()).view_as(xs[0])).sum()


def dual(function):
    def tangent(x, *rest):
        with forward_ad.dual_level():
            result = function(forward_ad.make_dual(x, torch.ones_like(x)), *rest)
            return forward_ad.unpack_dual(result).tangent

    return tangent


NESTINGS = {
    "jvp": lambda f: lambda *xs: jvp(f, xs, xs[::-1]),
    "jacfwd_of_jacrev": lambda f: jacfwd(jacrev(f)),
    "vmap_of_grad": lambda f: vmap(grad(weigh(f))),
    "dual_over_grad": lambda f: dual(grad(weigh(f))),
    "grad_of_jvp": lambda f: grad(lambda *xs: jvp(f, xs, xs)[1].sum()),
    "hessian_of_vmap": lambda f: hessian(weigh(vmap(f))),
}


@both
@pytest.mark.parametrize("nesting", NESTINGS)
def test_transforms(name, nesting):
    xs = tensors(4, 3)
    transform = NESTINGS[nesting]
    torch.testing.assert_close(transform(OURS[name])(*xs), transform(ATEN[name])(*xs))


@both
@pytest.mark.parametrize("modes", list(itertools.product([torch.no_grad, contextlib.nullcontext], repeat=2)), ids=str)
def test_no_grad_at_each_level(name, modes):
    def nested(f):
        def inner(x):
            with modes[0]():
                y = f(x, x, x)
            return (y * x).sum()

        def outer(x):
            with modes[1]():
                y = f(x, x, x)
            return (grad(inner)(x) * y).sum()

        return grad(outer)

    (x,) = tensors(5, n=1)
    torch.testing.assert_close(nested(OURS[name])(x), nested(ATEN[name])(x))


@both
def test_gradcheck_and_opcheck(name):
    xs = [x.requires_grad_() for x in tensors(2, 3)]
    assert torch.autograd.gradcheck(OURS[name], xs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(OURS[name], xs, check_fwd_over_rev=True)
    for form in FORMS:
        if form.op.overloadpacket.__name__ in (name, f"{name}_out") and form.op._overloadname == "default":
            given = arguments(name, *(x.detach() for x in tensors(2, 3)))
            torch.library.opcheck(
                form.op, given if "_out" not in form.op.name() else (*given, torch.empty(2, 3).double())
            )


@both
def test_only_what_a_gradient_reads_is_saved(name):
    x, y, w = tensors(2, 3)
    x.requires_grad_()
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        OURS[name](x, y, w)
    assert len(packed) == {"blend": 0, "bent": 1}[name]  # blend needs only alpha; bent needs x


@both
def test_compiled(name):
    def f(x, y, w):
        return OURS[name](x.sin(), y, w).cos().sum()

    xs = [x.requires_grad_() for x in tensors(5, 7)]
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
    wanted = xs if name == "blend" else xs[:1]
    torch.testing.assert_close(torch.autograd.grad(compiled(*xs), wanted), torch.autograd.grad(f(*xs), wanted))


@both
def test_vmap(name):
    x, y, w = tensors(4, 3)
    result = vmap(OURS[name], (0, 1, None))(x, y[:3].reshape(3, 3).repeat(1, 2)[:, :4], w[0])
    expected = vmap(ATEN[name], (0, 1, None))(x, y[:3].reshape(3, 3).repeat(1, 2)[:, :4], w[0])
    torch.testing.assert_close(result, expected)
    out = torch.zeros(4, 3, dtype=torch.float64)

    def write(x, y, w, out):
        getattr(ops, f"{name}_out")(*arguments(name, x, y, w), out)
        return out

    vmap(write)(x, y, w, out)
    assert torch.equal(out, OURS[name](x, y, w))


@both
@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(name, target):
    x, y, w = tensors(3, 4, dtype=torch.float32)
    with torch.autocast("cpu", target):
        result = OURS[name](x, y.to(target), w)
    # The table has "cast" for blend and "float32" for bent.
    inner = target if name == "blend" else torch.float32
    assert result.dtype == inner
    assert torch.equal(result, OURS[name](*(t.to(inner) for t in (x, y.to(target), w))))


def test_bad_input_ends_in_a_sentence():
    x, y, w = tensors(2, 3, dtype=torch.float32)
    for bad, sentence in {
        (x, y[:, :2], w): "blend: x, y and w must have shapes that broadcast, got [2, 3], [2, 2] and [2, 3]",
        (x, y, w.double()): "blend: x and w must have the same dtype, got float32 and float64",
        (x, y, w.to("meta")): "blend: x and w must be on the same device, got cpu and meta",
        (x.int(), y, w): "blend: x must be float16, bfloat16, float32 or float64, got int32",
    }.items():
        with pytest.raises(RuntimeError) as real:
            OURS["blend"](*bad)
        assert str(real.value).startswith(sentence)
        with FakeTensorMode() as mode, pytest.raises(RuntimeError) as fake:
            OURS["blend"](*map(mode.from_tensor, bad))
        assert str(fake.value).splitlines()[0] == str(real.value)
    out = torch.zeros(3).expand(2, 3)
    with pytest.raises(RuntimeError, match=r"^bent_out: out must not overlap itself"):
        ops.bent_out(x, out)
    memory = torch.zeros(9)
    with pytest.raises(RuntimeError, match=r"^bent.out: out must be x itself or share no memory with it"):
        ops.bent.out(memory[:8], out=memory[1:])
    alpha = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    for call in ops.blend, ops.blend.tensor_alpha_beta:
        with pytest.raises(RuntimeError, match=r"^blend.*: alpha has no gradient, but requires one; detach alpha"):
            call(x, alpha, y, w, alpha)
    number = alpha.detach()
    assert torch.equal(
        torch.func.vmap(ops.blend, (0, None, 0, 0, None))(x, number, y, w, 0.5), ops.blend(x, 0.5, y, w, 0.5)
    )


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("of_x", layouts.ALL)
def test_eight_inputs_and_a_function_of_cmath(dtype, of_x):
    xs = tensors(4, 3, 5, 67, dtype=dtype, n=8)
    result = ops.sum8(of_x(xs[0]), *xs[1:7], of_x(xs[7]))
    close(result, xs[0].double().exp() + sum(x.double() for x in xs[1:]), dtype)


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


def test_the_operators_of_the_package_are_as_they_were():
    x, y, w = tensors(2, 3, dtype=torch.float32)
    torch.testing.assert_close(muladd_nb.mymuladd(x, y, w), x * y + w)
    result, pull = vjp(lambda x: muladd_nb.mymuladd(x, y, 0.5), x)
    torch.testing.assert_close(pull(torch.ones_like(result))[0], y)


# ---- Numbers that are ints and bools


def chosen(x, n, alpha, first, y):
    return x * n * alpha if first else y


def test_ints_and_bools():
    x, y = (t.to(torch.float32) for t in tensors(5, 7, n=2))
    for n, alpha, first in ((3, 0.5, True), (-2, 0.25, True), (3, 0.5, False)):
        expected = chosen(x, n, alpha, first, y)
        assert torch.equal(ops.choose(x, n, alpha, first, y), expected)
        assert torch.equal(ops.choose.tensor_alpha(x, n, torch.tensor(alpha, dtype=torch.float64), first, y), expected)
        assert torch.equal(ops.choose.out(x, n, alpha, first, y, out=torch.empty_like(x)), expected)
        assert ops.choose(x.to("meta"), n, alpha, first, y.to("meta")).shape == x.shape
        assert torch.equal(vmap(lambda x, y, n=n, a=alpha, f=first: ops.choose(x, n, a, f, y))(x, y), expected)
        wide = [t.double().requires_grad_() for t in (x, y)]
        assert torch.autograd.gradcheck(
            lambda x, y, n=n, a=alpha, f=first: ops.choose(x, n, a, f, y), wide, check_forward_ad=True
        )
        compiled = torch.compile(
            lambda x, n, a, f, y: ops.choose(x.abs(), n, a, f, y).neg(), fullgraph=True, dynamic=True
        )
        assert torch.equal(compiled(x, n, alpha, first, y), -chosen(x.abs(), n, alpha, first, y))
    torch.library.opcheck(ops.choose.default, (x, 3, 0.5, True, y))


def test_an_int_has_all_its_bits():
    x = torch.arange(5)
    for n in (2**62 + 1, -(2**63)):
        assert torch.equal(ops.shift(x, n), x + n)
        assert torch.equal(torch.compile(ops.shift, fullgraph=True)(x, n), x + n)


# ---- Defaults, and keyword-only numbers


@public(FORMS)
def ramp(x, slope=2.0, *, n=-3, bias=1e-3, twice=False, out=None):
    pass


def ramped(x, slope=2.0, *, n=-3, bias=1e-3, twice=False):
    y = x * slope * n + bias
    return 2 * y if twice else y


GIVEN = [((), {}), ((0.5,), {}), ((), {"slope": 0.25, "twice": True}), ((0.25,), {"bias": 2.0, "n": 4})]
given = pytest.mark.parametrize(("args", "kwargs"), GIVEN)


@given
def test_defaults_and_keywords(args, kwargs):
    x = tensors(5, 7, dtype=torch.float32)[0]
    expected = ramped(x, *args, **kwargs)
    assert torch.equal(ops.ramp(x, *args, **kwargs), expected)
    assert torch.equal(ramp(x, *args, **kwargs), expected)
    for op in (ops.ramp, ramp):
        out = torch.empty_like(x)
        assert op(x, *args, **kwargs, out=out) is out
        assert torch.equal(out, expected)
        with torch.autocast("cpu", torch.bfloat16):
            assert op(x, *args, **kwargs).dtype == torch.bfloat16
    assert ops.ramp(x.to("meta"), *args, **kwargs).shape == x.shape
    jagged = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2, 5]))
    assert torch.equal(ops.ramp(jagged, *args, **kwargs).values(), expected)
    with pytest.raises(RuntimeError, match=r"ramp: x must be a dense tensor"):
        ops.ramp(x.to_sparse(), *args, **kwargs)


@given
def test_transforms_of_defaults_and_keywords(args, kwargs):
    x = tensors(5, 7)[0]
    for op in (ops.ramp, ramp):
        assert torch.equal(vmap(lambda x, op=op: op(x, *args, **kwargs))(x), ramped(x, *args, **kwargs))
        out = torch.empty_like(x)
        vmap(lambda x, out, op=op: op(x, *args, **kwargs, out=out))(x, out)
        assert torch.equal(out, ramped(x, *args, **kwargs))
        assert torch.autograd.gradcheck(
            lambda x, op=op: op(x, *args, **kwargs), x.clone().requires_grad_(), check_forward_ad=True
        )
        gradient = vmap(grad(lambda x, op=op: op(x, *args, **kwargs).sum()))(x)
        assert torch.equal(gradient, vmap(grad(lambda x: ramped(x, *args, **kwargs).sum()))(x))
    torch.library.opcheck(ops.ramp.default, (x, *args), kwargs)


@given
@pytest.mark.parametrize("op", [ops.ramp, ramp], ids=["operator", "function"])
def test_programs_with_defaults_and_keywords(op, args, kwargs):
    class Module(torch.nn.Module):
        def forward(self, x):
            return op(x.abs(), *args, **kwargs).neg()

    x = tensors(5, 7, dtype=torch.float32)[0].requires_grad_()
    expected = -ramped(x.abs(), *args, **kwargs)
    result = torch.compile(Module(), fullgraph=True)(x)
    assert torch.equal(result, expected)
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])
    assert torch.equal(torch.export.export(Module(), (x,)).run_decompositions().module()(x), expected)


def test_numbers_of_a_program_with_keywords_change():
    compiled = torch.compile(lambda x, slope, bias: -ramp(x.abs(), slope, bias=bias), fullgraph=True, dynamic=True)
    x = tensors(5, 7, dtype=torch.float32)[0]
    for slope, bias in ((0.5, 0.25), (-2.0, 0.125), (4.0, -1.0)):
        assert torch.equal(compiled(x, slope, bias), -ramped(x.abs(), slope, bias=bias))


# ---- Tensors that are updated


@public(FORMS)
def adam_(p, m, v, gradient, lr, *, beta1=0.5, beta2=0.75, eps=0.125):
    pass


@public(FORMS)
def rescale_(by, x, n=2):
    pass


@public(FORMS)
def count_(x, hits, limit):
    pass


def stepped(p, m, v, gradient, lr, *, beta1=0.5, beta2=0.75, eps=0.125):
    m = beta1 * m + (1 - beta1) * gradient
    v = beta2 * v + (1 - beta2) * gradient * gradient
    root = v.double().sqrt().to(v.dtype)  # if MKL computes torch's float32 sqrt, it is not correctly rounded
    return p - lr * m / (root + eps), m, v


# The operators with their public functions, tensors of a shape for each, and the new values of the written tensors.
UPDATES = {
    "adam_": (
        (ops.adam_, adam_),
        lambda *shape: [x.abs() for x in tensors(*shape, dtype=torch.float32, n=4)],
        (0.5,),
        {"beta1": 0.25},
        {i: lambda *args, i=i: stepped(*args, 0.5, beta1=0.25)[i] for i in range(3)},
    ),
    "rescale_": (
        (ops.rescale_, rescale_),
        lambda *shape: [tensors(*shape, dtype=torch.float32)[0][..., :1], tensors(*shape, dtype=torch.float32)[1]],
        (3,),
        {},
        {1: lambda by, x: x * by * 3},
    ),
    "count_": (
        (ops.count_, count_),
        lambda *shape: [tensors(*shape, dtype=torch.float32)[0], torch.arange(5 * 7).view(5, 7).expand(shape).clone()],
        (0.25,),
        {},
        {1: lambda x, hits: hits + (x > 0.25)},
    ),
}
updates = pytest.mark.parametrize(("functions", "make", "numbers", "options", "becomes"), UPDATES.values(), ids=UPDATES)


def check_updates(function, args, becomes, layout=None):
    expected = {place: compute(*(x.clone() for x in args)) for place, compute in becomes.items()}
    given = [layout(x) if layout else x.clone() for x in args]
    before = [x.clone() for x in given]
    versions = [x._version for x in given]
    function(*given)
    for place, x in enumerate(given):
        torch.testing.assert_close(x, expected.get(place, before[place]))
        assert (x._version > versions[place]) == (place in expected)


@updates
def test_updates_go_past_the_dispatcher(functions, make, numbers, options, becomes):
    before = _C.calls_past_dispatcher()
    functions[0](*make(5, 7), *numbers, **options)
    functions[0].default(*make(5, 7), *numbers, **options)
    assert _C.calls_past_dispatcher() == before + 2


@updates
@pytest.mark.parametrize("of_x", [None, *layouts.ALL])
def test_updates(functions, make, numbers, options, becomes, of_x):
    for function in functions:
        check_updates(lambda *args, f=function: f(*args, *numbers, **options), make(3, 5, 7), becomes, of_x)
        assert function(*make(2, 5, 7), *numbers, **options) is None
        on_meta = [x.to("meta") for x in make(5, 7)]
        assert function(*on_meta, *numbers, **options) is None
        assert [x._version for x in on_meta] == [int(place in becomes) for place in range(len(on_meta))]
        if len(functions[0].default._schema.arguments) > 3:
            continue
        with torch.autocast("cpu", torch.bfloat16):
            check_updates(lambda *args, f=function: f(*args, *numbers, **options), make(5, 7), becomes)


def test_a_number_that_is_a_double_is_not_rounded():
    p, m, v, gradient = tensors(5, dtype=torch.float32, n=4)
    adam_(p, m.zero_(), v, gradient, 0.5, beta1=0.999)
    assert torch.equal(m, (1 - 0.999) * gradient)


def test_updates_of_many_elements():
    """With this size, several threads share the work, and stores bypass the cache."""
    args = UPDATES["adam_"][1](3_000_001)
    check_updates(lambda *args: adam_(*args, 0.5, beta1=0.25), args, UPDATES["adam_"][-1])


@updates
def test_compiled_updates(functions, make, numbers, options, becomes):
    args = make(5, 7)
    for function, backend in itertools.product(functions, ("aot_eager", "inductor")):
        compiled = torch.compile(
            lambda *args, f=function: f(*args, *numbers, **options), backend=backend, fullgraph=True
        )
        check_updates(compiled, args, becomes)
        wide = [torch.stack([x, x], -1) for x in args]
        in_views = torch.compile(
            lambda *wide, f=function: f(*(x[..., 1] for x in wide), *numbers, **options), backend=backend
        )
        check_updates(lambda *views, f=in_views, wide=wide: f(*wide), args, {})
        for place, x in enumerate(args):
            assert torch.equal(wide[place][..., 1], becomes[place](*args) if place in becomes else x)
            assert torch.equal(wide[place][..., 0], x)


@updates
def test_exported_updates(functions, make, numbers, options, becomes):
    class Module(torch.nn.Module):
        def forward(self, *args):
            return functions[1](*args, *numbers, **options)

    check_updates(torch.export.export(Module(), tuple(make(5, 7))).run_decompositions().module(), make(5, 7), becomes)
    torch.library.opcheck(functions[0].default, (*make(5, 7), *numbers), options)


@updates
def test_batched_updates(functions, make, numbers, options, becomes):
    args = make(3, 5, 7)
    for function in functions:

        def call(*args, f=function):
            return f(*args, *numbers, **options)

        check_updates(vmap(call, out_dims=None), args, becomes)
        *_, written = becomes
        in_dims = tuple(None if place == written else 0 for place in range(len(args)))
        one = [x[0] if place == written else x for place, x in enumerate(args)]
        with pytest.raises(RuntimeError, match="must have a batch dimension under vmap where .* has one"):
            vmap(call, in_dims, out_dims=None)(*one)


@updates
def test_updates_that_are_refused(functions, make, numbers, options, becomes):
    args = make(5, 7)
    for function in functions:

        def refused(message, place, x, f=function, args=args):
            given = [y.clone() if i != place else x(y) for i, y in enumerate(args)]
            with pytest.raises(RuntimeError, match=message):
                f(*given, *numbers, **options)

        for place, x in enumerate(args):
            name = functions[0].default._schema.arguments[place].name
            refused(f"{name} must be a tensor, got None", place, lambda x: None)
            if x.is_floating_point():
                refused(f"has no derivative, but {name} requires grad", place, lambda x: x.clone().requires_grad_())
                with torch.no_grad():
                    given = [y.clone() for y in args]
                    given[place].requires_grad_()
                    function(*given, *numbers, **options)
                with forward_ad.dual_level():
                    refused(f"but {name} has a tangent", place, lambda x: forward_ad.make_dual(x.clone(), x))
            if place in becomes:
                refused(f"{name} must not overlap itself", place, lambda x: x[:1].expand_as(x))
                refused(f"{name}.* must have .* shape", place, lambda x: x[:1].clone())
                with torch.inference_mode():
                    made_there = x.clone()
                refused(f"{name} was made in inference mode", place, lambda x, y=made_there: y)
    x = torch.ones(4, 4)
    with pytest.raises(RuntimeError, match="p is written to and must share no memory with m"):
        adam_(x, x, x.clone(), x.clone(), 0.5)
    with pytest.raises(RuntimeError, match="p must be gradient itself or share no memory with it"):
        adam_(x, x.clone(), x.clone(), x.t(), 0.5)
    p, m, v = x.clone(), x.clone(), x.clone()
    adam_(p, m, v, p, 0.5)
    assert torch.equal(p, stepped(x, x, x, x, 0.5)[0])


def test_updates_in_other_tensors():
    rows = torch.tensor([0, 2, 5])
    args = UPDATES["adam_"][1](5, 7)
    jagged = [torch.nested.nested_tensor_from_jagged(x.clone(), rows) for x in args]
    adam_(*jagged, 0.5)
    assert torch.equal(jagged[1].values(), stepped(*args, 0.5)[1])
    x = torch.randn(5, dtype=torch.complex64)
    imaginary, by = x.conj().imag, torch.tensor(2.0)
    expected = imaginary.clone() * 4
    assert imaginary.is_neg()
    rescale_(by, imaginary)
    assert torch.equal(imaginary, expected)
    with pytest.raises(RuntimeError, match="adam_: p must be a dense tensor"):
        adam_(args[0].to_sparse(), *args[1:], 0.5)
    with torch.inference_mode():
        given = [x.clone() for x in args]
        adam_(*given, 0.5)
        assert torch.equal(given[0], stepped(*args, 0.5)[0])
    half = [x.half() for x in args]
    expected = [x.half() for x in stepped(*(x.float() for x in half), 0.5)]
    with torch.autocast("cpu", torch.bfloat16):  # computes in the dtype of what is written to
        adam_(*half[:3], half[3].float(), 0.5)
    for x, y in zip(half, expected, strict=False):
        torch.testing.assert_close(x, y)


def test_the_rate_of_a_compiled_update_changes():
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(adam_, backend=counter, fullgraph=True, dynamic=True)
    for lr in (0.5, 0.25, 2.0, 0.125):
        args = UPDATES["adam_"][1](5, 7)
        check_updates(
            lambda *args, lr=lr: compiled(*args, lr),
            args,
            {i: lambda *args, i=i, lr=lr: stepped(*args, lr)[i] for i in range(3)},
        )
    assert counter.frame_count == 1


def test_what_is_updated_has_no_derivative_to_promise():
    (form,) = (form for form in FORMS if form.name == "rescale_" and not form.tensor_numbers)
    no_derivative = dict.fromkeys(("save", "vjp", "jvp"), lambda *_: None)
    for promises in ({"derivative": no_derivative}, {"formula": lambda by, x, n: x * by * n}):
        with pytest.raises(ValueError, match="rescale_: an operator that updates its arguments has no derivative"):
            autograd.register(dataclasses.replace(form, promises=Elementwise(**promises)))


def test_compiled_autograd_warns_of_nothing_of_the_layer():
    x, y, w = (t.requires_grad_() for t in tensors(50))
    expected = torch.autograd.grad(OURS["blend"](x, y, w).sum(), (x, y, w))
    with (
        torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")),
        warnings.catch_warnings(record=True) as of,
    ):
        warnings.simplefilter("always")
        OURS["blend"](x, y, w).sum().backward()
    assert not [warning for warning in of if "_layer" in str(warning.message)]
    for leaf, gradient in zip((x, y, w), expected, strict=True):
        torch.testing.assert_close(leaf.grad, gradient)
