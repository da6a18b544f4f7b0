"""An operator works with every subset of its optional tensors, in every form, and in programs.

Two cases of operators.py have all subsets of those of ``affine``.
"""

import pytest
import torch
from operators import affine, fade_, scaled
from torch._subclasses import FakeTensorMode
from torch.func import grad, vmap

ops = torch.ops.muladd_nb


def arguments(there, *shape, dtype=torch.float32):
    torch.manual_seed(0)
    weight, x, bias = (torch.randn(*shape, dtype=torch.float64).to(dtype) for _ in range(3))
    n = torch.randint(-3, 4, shape, dtype=torch.int32)
    return [weight if "w" in there else None, x, bias if "b" in there else None, 0.5, n if "n" in there else None]


def of_tensors(function, args):
    return [function(x) if torch.is_tensor(x) else x for x in args]


SUBSETS = ["", "w", "b", "n", "wb", "wn", "bn", "wbn"]
every = pytest.mark.parametrize("there", SUBSETS)
both = pytest.mark.parametrize("function", [ops.affine, affine], ids=["operator", "function"])


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
        assert torch.equal(function(w, x, n=n), scaled(w, x, n=n))
        assert torch.equal(function(weight=None, x=x, bias=b), scaled(None, x, b))
        assert torch.equal(function(None, x, out=torch.empty_like(x)), 2 * x)
        assert function(None, x.to("meta")).shape == x.shape
        assert torch.equal(vmap(function, (None, 0))(None, x), 2 * x)
        assert torch.equal(grad(lambda x, f=function: f(None, x).sum())(x), torch.full_like(x, 2))
        compiled = torch.compile(lambda x, b, f=function: -f(None, x.abs(), b), fullgraph=True)
        assert torch.equal(compiled(x, None), -2 * x.abs())
        assert torch.equal(compiled(x, b), -scaled(None, x.abs(), b))


@pytest.mark.parametrize(("function", "dtype", "dynamic"), [
    (ops.affine, torch.float32, False),
    (affine, torch.float64, True),
])  # fmt: skip
def test_programs(function, dtype, dynamic):
    """One program with all subsets compiles faster than a program for each."""

    class Module(torch.nn.Module):
        def forward(self, *calls):
            return [-function(weight, x.abs(), *others) for weight, x, *others in calls]

    args = [arguments(there, 5, 7, dtype=dtype) for there in SUBSETS]
    leaves = [of_tensors(lambda x: x.clone().requires_grad_(x.is_floating_point()), of_one) for of_one in args]
    compiled = torch.compile(Module(), fullgraph=True, dynamic=dynamic)
    results, expected = compiled(*leaves), Module()(*leaves)
    assert all(map(torch.equal, results, expected))
    wanted = [x for of_one in leaves for x in of_one if torch.is_tensor(x) and x.requires_grad]
    torch.testing.assert_close(*(torch.autograd.grad(sum(y.sum() for y in ys), wanted) for ys in (results, expected)))
    exported = torch.export.export(Module(), tuple(args)).run_decompositions()
    assert all(map(torch.equal, exported.module()(*args), expected))


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


def test_an_optional_tensor_of_an_update_may_be_left_out():
    x = torch.randn(3, 5, 7)
    fade_(y := x.clone())
    assert torch.equal(y, x * 0.5)
