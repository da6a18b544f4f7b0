"""torch.func and forward-mode AD, in any nesting, eager and compiled, against the same code in ATen."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

import muladd_nb

ops = torch.ops.muladd_nb


class Ours:
    """A vector function and two scalar ones, made of the operators."""

    @staticmethod
    def vector(a, b):
        return ops.mymul(ops.mymuladd(a, b, 0.5), a).cos()

    @staticmethod
    def scalar(a, b):
        return ops.mymuladd(a, b, 1.5).sin().sum()

    @staticmethod
    def public(a, b):
        return muladd_nb.mymul(muladd_nb.mymuladd(a, b, 0.5), b).sin()

    @staticmethod
    def three(a, b):
        return muladd_nb.mymuladd(a.sin(), b, ops.mymuladd.Tensor(a, b, a)).cos()


class Aten:
    """The same in ATen."""

    @staticmethod
    def vector(a, b):
        return ((a * b + 0.5) * a).cos()

    @staticmethod
    def scalar(a, b):
        return (a * b + 1.5).sin().sum()

    @staticmethod
    def public(a, b):
        return ((a * b + 0.5) * b).sin()

    @staticmethod
    def three(a, b):
        return (a.sin() * b + (a * b + a)).cos()


def with_dual_numbers(f):
    def tangent(a, b):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(a, torch.ones_like(a)), b)).tangent

    return tangent


def over_linearize(f):
    return lambda a, b: linearize(f, a, b)[1](b, a)


TRANSFORMS = {
    "grad": lambda m: grad(m.scalar),
    "grad_both": lambda m: grad(m.scalar, (0, 1)),
    "grad_and_value": lambda m: grad_and_value(m.scalar),
    "vjp": lambda m: lambda a, b: vjp(m.vector, a, b)[1](torch.ones_like(a)),
    "vjp_value": lambda m: lambda a, b: vjp(m.vector, a, b)[0],
    "jvp": lambda m: lambda a, b: jvp(m.vector, (a, b), (b, a)),
    "jvp_one": lambda m: lambda a, b: jvp(lambda a: m.vector(a, b), (a,), (b,)),
    "jacrev": lambda m: jacrev(m.vector, (0, 1)),
    "jacfwd": lambda m: jacfwd(m.vector, (0, 1)),
    "jacrev_public": lambda m: jacrev(m.public, (0, 1)),
    "jacfwd_public": lambda m: jacfwd(m.public, (0, 1)),
    "vjp_three": lambda m: lambda a, b: vjp(m.three, a, b)[1](torch.ones_like(a)),
    "jvp_three": lambda m: lambda a, b: jvp(m.three, (a, b), (b, a)),
    "three_over_three": lambda m: jacfwd(jacrev(jacfwd(m.three))),
    "hessian": lambda m: hessian(m.scalar, (0, 1)),
    "linearize": lambda m: over_linearize(m.vector),
    "forward_over_forward": lambda m: jacfwd(jacfwd(m.vector)),
    "forward_over_reverse": lambda m: jacfwd(jacrev(m.vector)),
    "reverse_over_forward": lambda m: jacrev(jacfwd(m.vector)),
    "reverse_over_reverse": lambda m: jacrev(jacrev(m.vector)),
    "three_deep": lambda m: jacrev(jacfwd(jacrev(m.vector))),
    "three_forward": lambda m: jacfwd(jacfwd(jacfwd(m.vector))),
    "jvp_of_grad": lambda m: lambda a, b: jvp(grad(m.scalar), (a, b), (b, a)),
    "grad_of_jvp": lambda m: grad(lambda a, b: jvp(m.vector, (a, b), (b, a))[1].sum()),
    "dual_numbers": lambda m: with_dual_numbers(m.vector),
    "dual_numbers_over_grad": lambda m: with_dual_numbers(grad(m.scalar)),
    "grad_over_detach": lambda m: grad(lambda a, b: m.scalar(a, b) + m.vector(a.detach(), b).sum()),
}
BATCHED = {
    "vmap_three": lambda m: vmap(m.three, (0, 1)),
    "vmap_of_jacrev_three": lambda m: vmap(jacrev(m.three)),
    "vmap": lambda m: vmap(m.vector),
    "vmap_of_grad": lambda m: vmap(grad(m.scalar)),
    "vmap_of_jvp": lambda m: vmap(lambda a, b: jvp(m.vector, (a, b), (b, a))),
    "vmap_of_jacfwd": lambda m: vmap(jacfwd(m.vector)),
    "vmap_of_hessian": lambda m: vmap(hessian(m.scalar)),
    "grad_of_vmap": lambda m: grad(lambda a, b: vmap(m.vector)(a, b).sum()),
    "jvp_of_vmap": lambda m: lambda a, b: jvp(vmap(m.vector), (a, b), (b, a)),
    "jacrev_of_vmap": lambda m: jacrev(vmap(m.vector)),
    "vmap_second_dim": lambda m: vmap(m.vector, (1, 1), out_dims=1),
    "vmap_mixed_dims": lambda m: vmap(m.vector, (0, 1)),
    "vmap_one_input": lambda m: lambda a, b: vmap(m.vector, (0, None))(a, b[0]),
    "vmap_other_input": lambda m: lambda a, b: vmap(m.vector, (None, 0))(a[0], b),
    "vmap_nested": lambda m: vmap(vmap(m.vector), (0, 0)),
    "vmap_nested_mixed": lambda m: lambda a, b: vmap(vmap(m.vector, (0, None)), (None, 0))(a, b),
    "vmap_chunked": lambda m: vmap(m.vector, chunk_size=2),
    "vmap_random": lambda m: vmap(lambda a, b: m.vector(a, b) + 0 * torch.rand_like(a), randomness="different"),
    "ensemble": lambda m: lambda a, b: vmap(grad(m.scalar), (None, 0), chunk_size=2)(a[0], b),
}


@pytest.fixture
def vectors(device):
    return [torch.randn(4, dtype=torch.float64, device=device) for _ in range(2)]


@pytest.fixture
def matrices(device):
    return [torch.randn(4, 4, dtype=torch.float64, device=device) for _ in range(2)]


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transform(vectors, transform):
    torch.testing.assert_close(transform(Ours)(*vectors), transform(Aten)(*vectors))


@pytest.mark.parametrize("transform", BATCHED.values(), ids=BATCHED)
@pytest.mark.filterwarnings("error:There is a performance drop")
def test_batched_transform(matrices, transform):
    torch.testing.assert_close(transform(Ours)(*matrices), transform(Aten)(*matrices))


def test_values_under_a_transform_are_bit_for_bit_those_outside(device, dtype):
    a, b = (torch.randn(4, 257, device=device).to(dtype) for _ in range(2))

    def f(a):
        return ops.mymuladd(a, b, 0.1)

    plain = f(a)
    assert torch.equal(vjp(f, a)[0], plain)
    assert torch.equal(jvp(f, (a,), (b,))[0], plain)
    assert torch.equal(vmap(lambda a, b: ops.mymuladd(a, b, 0.1))(a, b), plain)
    assert torch.equal(grad(lambda a: (f(a).sum(), f(a)), has_aux=True)(a)[1], plain)


def test_no_grad_inside_and_outside(vectors):
    a, b = vectors
    with torch.no_grad():
        torch.testing.assert_close(grad(Ours.scalar)(a, b), grad(Aten.scalar)(a, b))

    def stopped(a):
        with torch.no_grad():
            y = ops.mymuladd(a, b, 0.5)
        return (y * a).sum()

    torch.testing.assert_close(grad(stopped)(a), a * b + 0.5)


@pytest.mark.parametrize("transform", ["grad", "jvp"])
def test_writing_into_out_is_refused_where_a_derivative_would_be_lost(vectors, transform):
    def f(a, b):
        out = torch.zeros_like(a)
        ops.mymuladd_out(a, b, 0.5, out)
        return out.sum()

    run = {"grad": lambda: grad(f)(*vectors), "jvp": lambda: jvp(f, tuple(vectors), tuple(vectors))}
    with pytest.raises(RuntimeError, match=r"mymuladd_out: (gradients|tangents) do not pass through out"):
        run[transform]()


WRITES = {
    "myadd_out": (lambda a, b, out: ops.myadd_out(a, b, out), torch.add),
    "mymuladd_out": (lambda a, b, out: ops.mymuladd_out(a, b, 0.5, out), lambda a, b: ops.mymuladd(a, b, 0.5)),
    "mymuladd_out.tensor_c": (
        lambda a, b, out: ops.mymuladd_out.tensor_c(a, b, torch.tensor(0.5, dtype=torch.float64), out),
        lambda a, b: ops.mymuladd(a, b, 0.5),
    ),
    "mymuladd_out.Tensor": (
        lambda a, b, out: ops.mymuladd_out.Tensor(a, b, a, out),
        lambda a, b: ops.mymuladd.Tensor(a, b, a),
    ),
    "mymuladd.Tensor_out": (
        lambda a, b, out: ops.mymuladd.Tensor_out(a, b, a, out=out),
        lambda a, b: ops.mymuladd.Tensor(a, b, a),
    ),
    "mymuladd.out": (
        lambda a, b, out: ops.mymuladd.out(a, b, 0.5, out=out),
        lambda a, b: ops.mymuladd(a, b, 0.5),
    ),
    "mymul.out": (lambda a, b, out: ops.mymul.out(a, b, out=out), ops.mymul),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (1, 1, 1), (0, 1, 1), (None, 0, 0), (1, None, 0), (None, None, 1)])
def test_vmap_writes_into_out(device, name, in_dims):
    write, reference = WRITES[name]
    a, b = (torch.randn(*([5, 5] if dim is not None else [5]), device=device) for dim in in_dims[:2])
    out = torch.zeros(5, 5, device=device)
    pointer, version = out.data_ptr(), out._version

    def f(a, b, out):
        write(a, b, out)
        return out

    vmap(f, in_dims)(a, b, out)
    expected = (
        vmap(reference, in_dims[:2])(a, b) if any(d is not None for d in in_dims[:2]) else reference(a, b).expand(5, 5)
    )
    assert torch.equal(out.movedim(in_dims[2], 0), expected)
    assert out.data_ptr() == pointer
    assert out._version == version + 1


@pytest.mark.parametrize("name", WRITES)
def test_vmap_refuses_an_unbatched_out(device, name):
    write, _ = WRITES[name]
    a, out = torch.randn(3, 4, device=device), torch.zeros(4, device=device)

    def f(a):
        write(a, a, out)
        return a

    with pytest.raises(
        RuntimeError,
        match=f"^{name.removesuffix('.tensor_c').removesuffix('.Tensor')}: out must have a batch dimension under vmap",
    ):
        vmap(f)(a)
    assert not out.any()


# Dynamo itself refuses linearize and a vmapped hessian; Inductor's forward over forward crashes, of ATen
# code too, on torch 2.13.
COMPILED = {
    name: {**TRANSFORMS, **BATCHED}[name]
    for name in (
        "grad_both", "vjp", "jvp", "jacrev", "hessian", "reverse_over_forward", "dual_numbers",
        "vmap_of_grad", "vjp_three", "jvp_three", "vmap_three", "vmap_of_jvp", "grad_of_vmap", "vmap_one_input",
    )
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_transform(vectors, matrices, name):
    inputs = matrices if name in BATCHED else vectors
    expected = COMPILED[name](Aten)(*inputs)
    compiled = torch.compile(COMPILED[name](Ours), fullgraph=True, backend="aot_eager")
    try:
        result = compiled(*inputs)
    except torch._dynamo.exc.TorchDynamoException:  # Unsupported is not the only one
        # Is it this torch's dynamo that cannot, whatever the operator?
        with pytest.raises(torch._dynamo.exc.TorchDynamoException):
            torch.compile(COMPILED[name](Aten), fullgraph=True, backend="aot_eager")(*inputs)
        pytest.skip(f"dynamo of torch {torch.__version__} does not capture {name}")
    torch.testing.assert_close(result, expected)
