"""The operators that test_layer.py adds in a copy of the tree: what the layer makes of their few lines."""

import contextlib
import itertools

import layouts
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import muladd_nb
from muladd_nb._operators import FORMS

ops = torch.ops.muladd_nb
ALPHA, BETA = 0.5, -3.0
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]

# Each with the same in ATen. `blend` has three tensors and, between them, two numbers.
OURS = {
    "blend": lambda x, y, w: ops.blend(x, ALPHA, y, w, BETA),
    "bent": lambda x, y, w: ops.bent(x),
}
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
    assert len(packed) == {"blend": 0, "bent": 1}[name]  # alpha alone; x


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
    # The table says "cast" of blend and "float32" of bent.
    inner = target if name == "blend" else torch.float32
    assert result.dtype == inner
    assert torch.equal(result, OURS[name](*(t.to(inner) for t in (x, y.to(target), w))))


def test_bad_input_ends_in_a_sentence():
    x, y, w = tensors(2, 3, dtype=torch.float32)
    for bad, sentence in {
        (x, y[0], w): "blend: x and y must have the same shape, got [2, 3] and [3]",
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
    with pytest.raises(RuntimeError, match=r"^blend: alpha has no gradient, but requires one; detach alpha"):
        ops.blend.tensor_alpha_beta(x, alpha, y, w, alpha)


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
    instead = r"detach h, or give it a partial derivative in muladd_nb/_operators\.py$"
    with pytest.raises(RuntimeError, match=f"^sum8: h has no gradient, but requires one; {instead}"):
        ops.sum8(*xs[:7], xs[7].requires_grad_())
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
