"""torch.func and forward-mode AD, in any nesting, eager and compiled, compared with ATen."""

import contextlib

import pytest
import torch
import writers
from calls import FUNCTIONS, RETURNING, WRITING
from conftest import each
from modes import DispatchMode
from torch.autograd import forward_ad
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

ops = torch.ops.muladd_nb


class Composed:
    """A vector function and a scalar function, made of nested operators or of their formulas."""

    def __init__(self, functions):
        self.functions = functions

    def vector(self, a, b):
        for function in self.functions:
            a = function(a.sin(), b)
        return a

    def scalar(self, a, b):
        return self.vector(a, b).sin().sum()


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
    "hessian": lambda m: hessian(m.scalar, (0, 1)),
    "linearize": lambda m: over_linearize(m.vector),
    "forward_over_forward": lambda m: jacfwd(jacfwd(m.vector)),
    "forward_over_reverse": lambda m: jacfwd(jacrev(m.vector)),
    "reverse_over_forward": lambda m: jacrev(jacfwd(m.vector)),
    "reverse_over_reverse": lambda m: jacrev(jacrev(m.vector)),
    "three_deep": lambda m: jacrev(jacfwd(jacrev(m.vector))),
    "three_forward": lambda m: jacfwd(jacfwd(jacfwd(m.vector))),
    "four_deep": lambda m: jacfwd(jacfwd(jacfwd(grad(m.scalar)))),
    "jvp_of_grad": lambda m: lambda a, b: jvp(grad(m.scalar), (a, b), (b, a)),
    "grad_of_jvp": lambda m: grad(lambda a, b: jvp(m.vector, (a, b), (b, a))[1].sum()),
    "dual_numbers": lambda m: with_dual_numbers(m.vector),
    "dual_numbers_over_grad": lambda m: with_dual_numbers(grad(m.scalar)),
    "grad_over_detach": lambda m: grad(lambda a, b: m.scalar(a, b) + m.vector(a.detach(), b).sum()),
}
BATCHED = {
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


def both(transform, calls):
    return transform(Composed(calls)), transform(Composed([call.expected for call in calls]))


def check(transform, inputs):
    for row in FUNCTIONS:  # all forms and the public function of each operator
        ours, aten = both(transform, [call for call in RETURNING if call.form.declaration == row.form.declaration])
        torch.testing.assert_close(ours(*inputs), aten(*inputs), msg=lambda text, row=row: f"{row}: {text}")


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transform(vectors, transform):
    check(transform, vectors)


@pytest.mark.parametrize("transform", BATCHED.values(), ids=BATCHED)
@pytest.mark.filterwarnings("error:There is a performance drop")
def test_batched_transform(matrices, transform):
    check(transform, matrices)


def test_values_under_a_transform_are_bit_for_bit_those_outside(device, dtype):
    a, b = (torch.randn(4, 257, device=device).to(dtype) for _ in range(2))

    def f(a):
        return ops.mymuladd(a, b, 0.1)

    plain = f(a)
    assert torch.equal(vjp(f, a)[0], plain)
    assert torch.equal(jvp(f, (a,), (b,))[0], plain)
    assert torch.equal(vmap(lambda a, b: ops.mymuladd(a, b, 0.1))(a, b), plain)
    assert torch.equal(grad(lambda a: (f(a).sum(), f(a)), has_aux=True)(a)[1], plain)


@pytest.mark.parametrize("listener", [contextlib.nullcontext, DispatchMode])
def test_a_tensor_made_in_inference_mode_has_no_tangent(device, listener):
    with torch.inference_mode():
        made = torch.randn(3, device=device)
    a, tangent = torch.randn(2, 3, device=device)
    for call in RETURNING:
        for place in range(len(call.names)):
            results = []
            for f in (call, call.expected):

                def g(a, f=f, others=[made] * (len(call.names) - 1), place=place):
                    return f(*others[:place], a, *others[place:])

                with listener():
                    results.append(jvp(g, (a,), (tangent,)))
            torch.testing.assert_close(*results)


def test_no_grad_inside_and_outside(vectors):
    a, b = vectors
    with torch.no_grad():
        torch.testing.assert_close(grad(lambda a: ops.mymuladd(a, b, 0.5).sin().sum())(a), b * (a * b + 0.5).cos())

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


@each(WRITING)
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (1, 1, 1), (0, 1, 1), (None, 0, 0), (1, None, 0), (None, None, 1)])
def test_vmap_writes_into_out(device, call, in_dims):
    a, b = (torch.randn(*([5, 5] if dim is not None else [5]), device=device) for dim in in_dims[:2])
    out = torch.zeros(5, 5, device=device)
    pointer, version = out.data_ptr(), out._version

    def f(a, b, out):
        call(a, b, out=out)
        return out

    vmap(f, in_dims)(a, b, out)
    batched = any(dim is not None for dim in in_dims[:2])
    expected = vmap(call.result, in_dims[:2])(a, b) if batched else call.result(a, b).expand(5, 5)
    assert torch.equal(out.movedim(in_dims[2], 0), expected)
    assert out.data_ptr() == pointer
    assert out._version == version + 1


@each(WRITING)
def test_vmap_refuses_an_unbatched_out(device, call):
    a, out = torch.randn(3, 4, device=device), torch.zeros(4, device=device)

    def f(a):
        call(a, out=out)
        return a

    with pytest.raises(RuntimeError, match=f"^{call.form.name}: out must have a batch dimension under vmap"):
        vmap(f)(a)
    assert not out.any()


def test_a_number_that_vmap_batches_is_refused_by_name():
    x = torch.ones(4)
    with pytest.raises(RuntimeError, match="by must be the same for all samples of vmap, got one for each"):
        vmap(lambda by: writers.CALLS["public"]["ema_"](x.clone(), x, by))(torch.rand(3))


# Dynamo itself refuses linearize and a vmapped hessian. On torch 2.13 Inductor crashes in forward over forward, also
# with ATen's operators.
COMPILED = {
    name: {**TRANSFORMS, **BATCHED}[name]
    for name in (
        "grad_both", "vjp", "jvp", "jacrev", "hessian", "reverse_over_forward", "dual_numbers",
        "vmap_of_grad", "vmap_of_jvp", "grad_of_vmap", "vmap_one_input",
    )
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_transform(vectors, matrices, name):
    """The function nests all operators in each other."""
    inputs = matrices if name in BATCHED else vectors
    ours, aten = both(COMPILED[name], FUNCTIONS)
    expected = aten(*inputs)
    try:
        result = torch.compile(ours, fullgraph=True, backend="aot_eager")(*inputs)
    except torch._dynamo.exc.TorchDynamoException:  # Dynamo has more errors than Unsupported
        # Dynamo must then refuse the same with ATen's operators.
        with pytest.raises(torch._dynamo.exc.TorchDynamoException):
            torch.compile(aten, fullgraph=True, backend="aot_eager")(*inputs)
        pytest.skip(f"dynamo of torch {torch.__version__} does not capture {name}")
    torch.testing.assert_close(result, expected)
