"""Each operator works with every subset of its optional tensors."""

import itertools

import layouts
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, jacfwd, jacrev, jvp, vmap

from muladd_nb._layer.public import public
from muladd_nb._operators import FORMS

ops = torch.ops.muladd_nb
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@public(FORMS)
def affine(weight, x, bias=None, c=2.0, n=None, out=None):
    pass


@public(FORMS)
def fade_(x, keep=None, by=0.5):
    pass


def same(weight, x, bias=None, c=2.0, n=None):
    y = x if weight is None else weight * x
    y = c * (y + (0 if bias is None else bias))
    return y if n is None else y * n.to(x.dtype)


def arguments(there, *shape, dtype=torch.float32, of_x=lambda x: x):
    torch.manual_seed(0)
    weight, x, bias = (of_x(torch.randn(*shape, dtype=torch.float64).to(dtype)) for _ in range(3))
    n = of_x(torch.randint(-3, 4, shape, dtype=torch.int32))
    return [weight if "w" in there else None, x, bias if "b" in there else None, 0.5, n if "n" in there else None]


def of_tensors(function, args):
    return [function(x) if torch.is_tensor(x) else x for x in args]


def close(actual, expected, dtype):
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(actual.double(), expected.double(), rtol=4 * eps, atol=16 * eps)


every = pytest.mark.parametrize("there", ["", "w", "b", "n", "wb", "wn", "bn", "wbn"])
both = pytest.mark.parametrize("function", [ops.affine, affine], ids=["operator", "function"])


@every
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("of_x", layouts.ALL)
def test_values(there, dtype, of_x):
    args = arguments(there, 4, 5, 67, dtype=dtype, of_x=of_x)
    result = ops.affine(*args)
    close(result, same(*of_tensors(lambda x: x.double() if x.is_floating_point() else x, args)), dtype)
    assert result.dtype == dtype
    assert result.stride() == torch.empty_like(args[1]).stride()
    meta = ops.affine(*of_tensors(lambda x: x.to("meta"), args))
    assert (meta.dtype, meta.shape, meta.stride()) == (result.dtype, result.shape, result.stride())


@every
def test_every_form_and_way_gives_the_same_bits(there):
    args = arguments(there, 300, 70)
    expected = ops.affine(*args)
    scalar = of_tensors(lambda x: x, args)
    scalar[3] = torch.tensor(0.5, dtype=torch.float64)
    assert torch.equal(affine(*args), expected)
    assert torch.equal(ops.affine.tensor_c(*scalar), expected)
    for write in (ops.affine_out, lambda *x: ops.affine.out(*x[:-1], out=x[-1]), lambda *x: affine(*x[:-1], out=x[-1])):
        out = torch.empty(70, 300).t()
        write(*args, out)
        assert torch.equal(out, expected)
        assert out._version == 1
    for place, x in enumerate(args):  # in place
        if torch.is_tensor(x) and x.dtype == expected.dtype:
            given = of_tensors(torch.clone, args)
            affine(*given, out=given[place])
            assert torch.equal(given[place], expected)
    vmapped = vmap(ops.affine, tuple(1 if torch.is_tensor(x) else None for x in args), 1)
    assert torch.equal(vmapped(*args), expected)
    one = [x[0] if place != 1 and torch.is_tensor(x) else x for place, x in enumerate(args)]
    assert torch.equal(vmap(ops.affine, (None, 0, None, None, None))(*one), ops.affine(*one))
    out = torch.empty_like(expected)
    in_dims = tuple(0 if torch.is_tensor(x) else None for x in args)
    vmap(lambda *x: affine(*x[:-1], out=x[-1]), (*in_dims, 0))(*args, out)
    assert torch.equal(out, expected)


def test_defaults_may_be_left_out_or_given_by_name():
    w, x, b, _, n = arguments("wbn", 5, 7)
    for function in (ops.affine, affine):
        assert torch.equal(function(None, x), 2 * x)
        assert torch.equal(function(w, x, n=n), same(w, x, n=n))
        assert torch.equal(function(weight=None, x=x, bias=b), same(None, x, b))
        assert torch.equal(function(None, x, out=torch.empty_like(x)), 2 * x)
        assert function(None, x.to("meta")).shape == x.shape
        assert torch.equal(vmap(function, (None, 0))(None, x), 2 * x)
        assert torch.equal(grad(lambda x, f=function: f(None, x).sum())(x), torch.full_like(x, 2))
        compiled = torch.compile(lambda x, b, f=function: -f(None, x.abs(), b), fullgraph=True)
        assert torch.equal(compiled(x, None), -2 * x.abs())
        assert torch.equal(compiled(x, b), -same(None, x.abs(), b))


@every
@both
def test_broadcasting(there, function):
    for shapes in itertools.product([(7,), (5, 1), (1,), (), (3, 5, 7)], repeat=2):
        args = arguments(there, 5, 7)
        for place, shape in zip((0, 2), shapes, strict=True):
            args[place] = None if args[place] is None else torch.randn(shape)
        result = function(*args)
        close(result, same(*args), torch.float32)
        meta = function(*of_tensors(lambda x: x.to("meta"), args))
        assert (meta.shape, meta.stride()) == (result.shape, result.stride())


@every
def test_derivatives(there):
    args = arguments(there, 4, 3, dtype=torch.float64)
    places = [place for place in range(3) if args[place] is not None]
    given = tuple(args[place] for place in places)
    each = tuple(range(len(given)))

    def derivatives(function):
        def f(*xs):
            of_places = dict(zip(places, xs, strict=True))
            return function(*(of_places.get(place, x) for place, x in enumerate(args))).sin()

        gradient = grad(lambda *xs: f(*xs).sum(), each)
        tangents = tuple(x.cos() for x in given)
        yield jvp(f, given, tangents)
        yield gradient(*given)
        yield jvp(gradient, given, tangents)
        yield jacrev(f, each)(*given)
        yield jacfwd(f, each)(*given)
        for place in each:  # the gradient of one tensor
            leaves = [x.clone().requires_grad_(i == place) for i, x in enumerate(given)]
            yield torch.autograd.grad(f(*leaves).sum(), leaves[place])

    expected = [*derivatives(same)]
    for function in (ops.affine, affine):
        for actual, of_same in zip(derivatives(function), expected, strict=True):
            torch.testing.assert_close(actual, of_same)


@pytest.mark.parametrize("is_there", [True, False])
def test_derivatives_of_a_formula(is_there):
    x, by = arguments("b", 4, 3, dtype=torch.float64)[1:3]
    args = (x.requires_grad_(), by[0].clone().requires_grad_() if is_there else None)
    assert torch.autograd.gradcheck(ops.offset, args, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(ops.offset, args)
    for backend in ("aot_eager", "inductor"):
        compiled = torch.compile(lambda *args: ops.offset(*args) * 2, fullgraph=True, backend=backend)
        assert torch.equal(compiled(*args), ops.offset(*args) * 2)
        of_x = (torch.autograd.grad(f(*args).sum(), args[0])[0] for f in (compiled, lambda *x: ops.offset(*x) * 2))
        assert torch.equal(*of_x)


@every
@pytest.mark.parametrize(
    ("function", "dtype", "dynamic"), [(ops.affine, torch.float32, False), (affine, torch.float64, True)]
)
def test_programs(there, function, dtype, dynamic):
    torch._dynamo.reset()

    class Module(torch.nn.Module):
        def forward(self, weight, x, *others):
            return function(weight, x.abs(), *others).neg()

    args = arguments(there, 5, 7, dtype=dtype)
    leaves = of_tensors(lambda x: x.clone().requires_grad_(x.is_floating_point()), args)
    expected = Module()(*leaves)
    wanted = [x for x in leaves if torch.is_tensor(x) and x.requires_grad]
    of_leaves = torch.autograd.grad(expected.sum(), wanted)
    compiled = torch.compile(Module(), fullgraph=True, dynamic=dynamic)
    result = compiled(*leaves)
    assert torch.equal(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), wanted), of_leaves)
    exported = torch.export.export(Module(), tuple(args)).run_decompositions()
    assert torch.equal(exported.module()(*args), expected)


def test_a_compiled_derivative_of_a_size_that_depends_on_data():
    w, x, b, _, _ = arguments("wbn", 9, 3)

    def loss(w, x, b):
        return ops.affine(w, x[x[:, 0] > 0], b).sin().sum()

    found = []
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for f in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
            leaves = [y.clone().requires_grad_() for y in (w[0], x, b[:1])]
            f(*leaves).backward()
            found.append([y.grad for y in leaves])
    torch.testing.assert_close(*found)


@every
def test_opcheck(there):
    args = arguments(there, 5, 7)
    torch.library.opcheck(ops.affine.default, args)
    torch.library.opcheck(ops.affine_out.default, (*args, torch.empty(5, 7)))
    leaves = of_tensors(lambda x: x.requires_grad_(x.is_floating_point()), args)
    torch.library.opcheck(ops.affine.default, leaves)


@every
def test_autocast(there):
    args = arguments(there, 5, 7)
    with torch.autocast("cpu", torch.bfloat16):
        result = ops.affine(*args)
        affine(*args, out=(out := torch.empty(5, 7)))
    assert torch.equal(result, ops.affine(*of_tensors(lambda x: x.bfloat16() if x.is_floating_point() else x, args)))
    assert torch.equal(out, ops.affine(*args))


@every
@both
def test_jagged(there, function):
    args = arguments(there, 5, 7)
    rows = torch.tensor([0, 2, 5])
    nested = of_tensors(lambda x: torch.nested.nested_tensor_from_jagged(x, rows), args)
    assert torch.equal(function(*nested).values(), function(*args))


def test_what_is_wrong_with_one_is_said():
    w, x, b, c, _ = arguments("wbn", 2, 3)
    for args, sentence in (
        ((w, None), "x must be a tensor, got None"),
        ((w.double(), x), "x and weight must have the same dtype, got float32 and float64"),
        ((None, x, b.half()), "x and bias must have the same dtype, got float32 and float16"),
        ((None, x, None, c, x), "n must be int32, got float32"),
        ((w, x, b[0, :2]), "weight, x and bias must have shapes that broadcast, got [2, 3], [2, 3] and [2]"),
        ((None, x, b[0, :2]), "x and bias must have shapes that broadcast, got [2, 3] and [2]"),
        ((w.to("meta"), x), "x and weight must be on the same device, got cpu and meta"),
        ((None, x, b.to_sparse()), "bias must be a dense tensor, got the layout torch.sparse_coo"),
    ):
        with pytest.raises(RuntimeError) as real:
            ops.affine(*args)
        assert str(real.value).startswith(f"affine: {sentence}")
        if not any(torch.is_tensor(x) and x.is_sparse for x in args):
            with FakeTensorMode() as mode, pytest.raises(RuntimeError) as fake:
                ops.affine(*(mode.from_tensor(x) if torch.is_tensor(x) else x for x in args))
            assert str(fake.value).splitlines()[0] == str(real.value)
    shrunk = b.clone()
    shrunk.untyped_storage().resize_(8)
    with pytest.raises(RuntimeError, match="affine: bias must lie in its storage"):
        affine(None, x, shrunk)
    with pytest.raises(RuntimeError, match="affine_out: out must be bias itself or share no memory with it"):
        ops.affine_out(None, torch.ones(3), b.view(-1)[:3], c, None, b.view(-1)[1:4])
    with pytest.raises(TypeError, match="affine: bias must be a tensor or None, got 1.0, of type float"):
        affine(None, x, 1.0)
    with pytest.raises(RuntimeError, match="affine: no gradient is recorded through out, but bias requires grad"):
        affine(None, x, b.requires_grad_(), out=torch.empty_like(x))


@pytest.mark.parametrize("is_there", [True, False])
def test_updates(is_there):
    x = torch.randn(3, 5, 7)
    keep = x > 0.5 if is_there else None
    expected = torch.where(x > 0.5, x, x * 0.25) if is_there else x * 0.25
    for function in (
        ops.fade_,
        fade_,
        torch.compile(fade_, fullgraph=True),
        vmap(fade_, (0, 0 if is_there else None, None), None),
    ):
        function(y := x.clone(), keep, 0.25)
        assert torch.equal(y, expected)
        assert y._version >= 1
    torch.library.opcheck(ops.fade_.default, (x.clone(), keep, 0.25))
    with pytest.raises(RuntimeError, match="fade_: what it writes to has no derivative, but x requires grad"):
        fade_(x.clone().requires_grad_(), keep)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="but x has a tangent"):
        fade_(forward_ad.make_dual(x.clone(), x), keep)
    fade_(y := x.clone())
    assert torch.equal(y, x * 0.5)
