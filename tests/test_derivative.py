"""The part of the layer that adds derivatives, tested on its own operators and compared with ATen."""

import dataclasses
import doctest
import functools
import itertools
import random
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch.autograd import forward_ad, graph
from torch.func import grad, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from muladd_nb._layer import autocast, autograd, recording
from muladd_nb._layer import derivative as layer
from muladd_nb._layer.operator import Elementwise, Form
from muladd_nb._layer.partials import Derivative, Partial

library = torch.library.Library("derivative_test", "DEF")
counter = itertools.count()
ops = torch.ops.derivative_test


# The layer registers in the library of its package.
@contextmanager
def in_library():
    of_layer = [mock.patch.object(module, "implement", library.impl) for module in (layer, recording)]
    with of_layer[0], of_layer[1], mock.patch.object(autocast, "library", library):
        yield


def define(schema, kernel):
    library.define(schema)
    name = torch._C.parse_schema(schema).name
    library.impl(name, kernel, "CPU")
    library.impl(name, kernel, "CUDA")
    op = getattr(ops, name).default
    torch.library.register_fake(op.name(), kernel, lib=library)
    if "*" not in schema:  # register_vmap takes no keyword-only arguments

        def rule(info, in_dims, *args):
            args = [
                x if not isinstance(x, torch.Tensor)
                else x.expand(info.batch_size, *x.shape) if dim is None
                else x.movedim(dim, 0)
                for x, dim in zip(args, in_dims, strict=True)
            ]  # fmt: skip
            result = op(*args)
            return result, (0,) * len(result) if isinstance(result, tuple) else 0

        torch.library.register_vmap(op.name(), rule, lib=library)
    return op


def derived(schema, kernel, **functions):
    """Define an operator, and register its derivative by these functions."""
    op = define(schema, kernel)
    with in_library():
        layer.derivative(op, **functions)
    return op


def ranked(x):
    values, indices = x.sort(-1)
    return values * values, indices


# Each operator is written with those of ATen, and this function is also its kernel.
COMPUTATIONS = {
    "softplus(Tensor x, float beta, float threshold) -> Tensor": lambda x, beta, threshold: (
        torch.nn.functional.softplus(x, beta, threshold)
    ),
    "power(Tensor x, float exponent) -> Tensor": torch.pow,
    "muladd(Tensor a, Tensor b, Tensor c) -> Tensor": lambda a, b, c: a * b + c,
    "scaled(Tensor x, *, float scale=1.0, bool negate=False) -> Tensor": lambda x, *, scale=1.0, negate=False: (
        x * (-scale if negate else scale)
    ),
    "shifted(Tensor x, Tensor bits) -> Tensor": lambda x, bits: x * 2.0**bits,
    "exponential(Tensor x) -> Tensor": torch.exp,
    "weighted(Tensor x, Tensor? weight=None, int[] dims=[0]) -> Tensor": lambda x, weight=None, dims=(0,): (
        x.clone() if weight is None else x * weight
    ),
    "clipped(Tensor x, Tensor y, float limit) -> Tensor": lambda x, y, limit: x * y.sigmoid() / (1 + x.abs() / limit),
    "mixed(Tensor x, Tensor y) -> Tensor": lambda x, y: x.square() * y,
    "logsumexp(Tensor x) -> Tensor": lambda x: x.logsumexp(-1),
    "sorted(Tensor x) -> (Tensor values, Tensor indices)": lambda x: tuple(x.sort(-1)),
    "sincos(Tensor x) -> (Tensor, Tensor)": lambda x: (x.sin(), x.cos()),
    "gated(Tensor x, Tensor? gate=None, float beta=1.0) -> Tensor": lambda x, gate=None, beta=1.0: (
        x.clone() if gate is None else x * (beta * gate).sigmoid()
    ),
    "cubed(Tensor x, Tensor y) -> Tensor": lambda x, y: x * x * x * y,
    "ranked(Tensor x) -> (Tensor, Tensor)": ranked,
}


Aten = SimpleNamespace(**{schema.partition("(")[0]: function for schema, function in COMPUTATIONS.items()})
for _schema, _function in COMPUTATIONS.items():
    define(_schema, _function)


def form_of(op, **promises):
    """Return the form of an operator whose kernel is not made from a functor."""
    declaration = str(op._schema).removeprefix("derivative_test::").partition(" -> ")[0]
    return Form(declaration, "functional", op, (torch.float32, torch.float64), Elementwise(**promises))


def by_a_formula(op, formula, **promises):
    autograd.register(form_of(op, formula=formula, **promises))


def by_a_slope(op, slope, reads):
    """Register the derivative by the first argument: a slope, computed from arguments and the result in ``reads``."""
    others = (None,) * (len(op._schema.arguments) - 1)
    layer.derivative(
        op,
        save=lambda needs, inputs, results: tuple((*inputs, *results)[place] for place in reads),
        vjp=lambda needs, saved, grad: (grad * conj(slope(*saved)), *others),
        jvp=lambda saved, tangent, *_: tangent * slope(*saved),
    )


def conj(slope):
    return slope.conj() if isinstance(slope, torch.Tensor) else slope


def softmax(x, result):
    return (x - result[..., None]).exp()


with in_library():
    by_a_formula(ops.softplus.default, Aten.softplus)
    by_a_formula(ops.clipped.default, Aten.clipped)
    by_a_formula(ops.mixed.default, Aten.mixed)
    by_a_slope(ops.power.default, lambda x, exponent: exponent * x.pow(exponent - 1), [0, 1])
    by_a_slope(ops.scaled.default, lambda scale, negate: -scale if negate else scale, [1, 2])
    by_a_slope(ops.shifted.default, lambda x, bits: torch.ldexp(torch.ones_like(x), bits), [0, 1])
    by_a_slope(ops.exponential.default, lambda result: result, [-1])
    layer.derivative(
        ops.muladd.default,
        save=lambda needs, inputs, results: (inputs[1] if needs[0] else None, inputs[0] if needs[1] else None),
        vjp=lambda needs, saved, grad: (
            grad * saved[0] if needs[0] else None, grad * saved[1] if needs[1] else None, grad
        ),
        jvp=lambda saved, of_a, of_b, of_c: of_a * saved[0] + of_b * saved[1] + of_c,
        node="MyMulAdd",
    )  # fmt: skip
    layer.derivative(
        ops.weighted.default,
        save=lambda needs, inputs, results: inputs[:2],
        vjp=lambda needs, saved, grad: (
            grad if saved[1] is None else grad * saved[1].conj(), grad * saved[0].conj() if needs[1] else None, None
        ),
        jvp=lambda saved, of_x, of_weight, _: of_x if saved[1] is None else of_x * saved[1] + of_weight * saved[0],
    )  # fmt: skip
    layer.derivative(
        ops.logsumexp.default,
        save=lambda needs, inputs, results: (*inputs, *results),
        vjp=lambda needs, saved, grad: grad[..., None] * softmax(*saved),
        jvp=lambda saved, tangent: (tangent * softmax(*saved)).sum(-1),
    )
    layer.derivative(
        ops.sorted.default,
        save=lambda needs, inputs, results: results[1:],
        vjp=lambda needs, saved, grad, _: torch.zeros_like(grad).scatter(-1, saved[0], grad),
        jvp=lambda saved, tangent: (tangent.gather(-1, saved[0]), None),
    )
    layer.derivative(
        ops.sincos.default,
        save=lambda needs, inputs, results: inputs,
        vjp=lambda needs, saved, of_sin, of_cos: of_sin * saved[0].cos() - of_cos * saved[0].sin(),
        jvp=lambda saved, tangent: (tangent * saved[0].cos(), -tangent * saved[0].sin()),
    )
    layer.derivative(
        ops.gated.default, formula=lambda x, gate, beta: x if gate is None else x * (beta * gate).sigmoid()
    )
    # These gradients are detached, so the formula must give second derivatives. `cubed` has no jvp, `ranked` no vjp.
    layer.derivative(
        ops.cubed.default,
        save=lambda needs, inputs, results: inputs,
        vjp=lambda needs, saved, grad: (
            grad * (3 * saved[0].square() * saved[1]).conj().detach(), grad * saved[0].pow(3).conj().detach()
        ),
        formula=Aten.cubed,
    )  # fmt: skip
    layer.derivative(
        ops.ranked.default,
        save=lambda needs, inputs, results: (*inputs, results[1]),
        jvp=lambda saved, tangent: ((2 * saved[0] * tangent).gather(-1, saved[1]), None),
        formula=Aten.ranked,
    )


# Functions of two vectors, made of the operators. They return a vector of the same length.
CALLS = {
    "softplus": lambda m, x, y: m.softplus(x * y, 1.5, 20.0),
    "power": lambda m, x, y: m.power(x * y, 3.0),
    "muladd": lambda m, x, y: m.muladd(x, y, x * y),
    "muladd of one": lambda m, x, y: m.muladd(y, y, y) * x,
    "scaled": lambda m, x, y: m.scaled(x * y, scale=2.0, negate=True) + m.scaled(x) + m.scaled(y, negate=True),
    "shifted": lambda m, x, y: m.shifted(x * y, torch.tensor([1, 0, -2])),
    "exponential": lambda m, x, y: m.exponential(m.power(x, 2.0)) * y,
    "weighted": lambda m, x, y: m.weighted(m.weighted(x), m.weighted(y, x)),
    "clipped": lambda m, x, y: m.clipped(x * y, y, 1.5),
    "mixed": lambda m, x, y: m.mixed(x, m.mixed(y, x)),
    "logsumexp": lambda m, x, y: m.logsumexp(x * y) + y,
    "sorted": lambda m, x, y: m.sorted(x * y)[0],
    "sin": lambda m, x, y: m.sincos(x * y)[0],  # the cosine is not used
    "sincos": lambda m, x, y: torch.stack(m.sincos(x * y)).prod(0),
    "gated": lambda m, x, y: m.gated(m.gated(x), y, 2.0),
    "cubed": lambda m, x, y: m.cubed(x * y, y),
    "ranked": lambda m, x, y: m.ranked(x * y)[0],
}
# A saved tensor or an intermediate of a derivative can be differentiated only if the mode in which it was computed
# recorded it. So if modes change, results agree only for operators that compute derivatives as ATen does.
OTHERS = ["logsumexp", "softplus", "clipped", "mixed", "gated", "cubed", "ranked"]
NESTED = [call for name, call in CALLS.items() if name != "scaled"]  # it has no batching rule
ALIKE = [call for call in NESTED if call not in map(CALLS.get, OTHERS)]


# ---- Random nestings, with recording turned on and off anywhere


def dual(f, x):
    with forward_ad.dual_level():
        result = forward_ad.unpack_dual(f(forward_ad.make_dual(x, x.cos())))
    return result.primal if result.tangent is None else result.primal + result.tangent


TRANSFORMS = [
    lambda f, x: grad(lambda t: f(t).sum())(x),
    lambda f, x: vjp(f, x)[1](x.cos())[0],
    lambda f, x: torch.stack(jvp(f, (x,), (x.cos(),))).sum(0),
    lambda f, x: jacfwd(f)(x).sum(0),
    lambda f, x: jacrev(f)(x).sum(0),
    lambda f, x: vmap(f)(torch.stack([x, x.sin()])).sum(0),
    dual,
]
MODES = [
    torch.no_grad,
    torch.enable_grad,
    lambda: torch.set_grad_enabled(False),
    lambda: forward_ad._set_fwd_grad_enabled(False),
    lambda: forward_ad._set_fwd_grad_enabled(True),
    torch.inference_mode,
]


def nested(rng, leaves, modes, depth):
    """Return a function of the operators and a vector, made of random transforms, modes and operators."""
    first, second = rng.choice(leaves), rng.choice(leaves)
    if not depth:
        return lambda m, x: first(m, x, x.sin())
    inner, transform = nested(rng, leaves, modes, depth - 1), rng.choice(TRANSFORMS)
    outside, inside, around_inner, around_first = (
        rng.choice(modes) if rng.random() < 0.25 else nullcontext for _ in range(4)
    )

    def f(m, x):
        def body(t):
            with inside():
                with around_inner():
                    y = inner(m, t)
                with around_first():
                    z = first(m, t, x)
                return second(m, y.tanh(), t) + z * y.sin()

        with outside():
            return transform(body, x)

    return f


def outcome(f, m, x):
    try:
        result = f(m, x)
        (gradient,) = torch.autograd.grad(result.sum(), x, materialize_grads=True) if result.requires_grad else (0 * x,)
    except (RuntimeError, NotImplementedError) as error:
        return error
    return result.detach(), gradient, result.requires_grad


def disagreement(seed, ours, atens, leaves, modes):
    """Return the difference, None if there is none, or `...` if ATen refuses this nesting."""
    rng = random.Random(seed)
    f = nested(rng, leaves, modes, rng.randint(1, 4))
    x = torch.tensor([rng.uniform(-1, 1) for _ in range(3)], dtype=torch.float64, requires_grad=rng.random() < 0.5)
    expected = outcome(f, atens, x)
    if isinstance(expected, Exception):
        return ...
    got = outcome(f, ours, x)
    if isinstance(got, Exception):
        # Views that a batching rule makes in inference mode raise this error before anything is differentiated.
        return ... if "Cannot set version_counter for inference tensor" in str(got) else got
    if got[2] > expected[2]:  # ATen's may require a gradient that is zero everywhere
        return "requires_grad is True"
    try:
        torch.testing.assert_close(got[:2], expected[:2], rtol=1e-8, atol=1e-8)
    except AssertionError as error:
        return error
    return None


@pytest.mark.parametrize(("leaves", "modes"), [(ALIKE, MODES), (NESTED, [nullcontext])], ids=["modes", "none"])
def test_nested_at_random(leaves, modes):
    outcomes = {seed: disagreement(seed, ops, Aten, leaves, modes) for seed in range(100)}
    assert sum(result is ... for result in outcomes.values()) < 50
    assert not {seed: result for seed, result in outcomes.items() if result not in (None, ...)}


# ---- One derivative at a time

x3 = torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64)
y3 = torch.tensor([1.3, 0.5, -0.2], dtype=torch.float64)
call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def leaves(*tensors):
    return [x.detach().clone().requires_grad_() for x in tensors]


@call
def test_values_are_those_of_the_kernel(call):
    expected = call(Aten, x3, y3)
    assert torch.equal(call(ops, x3, y3), expected)
    assert torch.equal(call(ops, *leaves(x3, y3)), expected)
    assert torch.equal(jvp(lambda x: call(ops, x, y3), (x3,), (y3,))[0], expected)
    assert torch.equal(vjp(lambda x: call(ops, x, y3), x3)[0], expected)
    with torch.inference_mode():
        assert torch.equal(call(ops, x3, y3), expected)


@call
def test_gradcheck(call):
    batched = call is not CALLS["scaled"]  # it has no batching rule
    function, inputs = lambda x, y: call(ops, x, y), leaves(x3, y3)
    assert torch.autograd.gradcheck(
        function, inputs, check_forward_ad=True, check_batched_grad=batched, check_batched_forward_grad=batched
    )
    assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=True, check_batched_grad=batched)


@call
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(call, dynamic):
    def step(x, y):
        return torch.autograd.grad(compiled(x, y).sum(), (x, y))

    compiled = torch.compile(lambda x, y: call(ops, x, y).sin(), fullgraph=True, backend="aot_eager", dynamic=dynamic)
    gradients = step(*leaves(x3, y3))
    compiled = lambda x, y: call(Aten, x, y).sin()  # noqa: E731
    torch.testing.assert_close(gradients, step(*leaves(x3, y3)))


def test_compiled_by_inductor():
    compiled = torch.compile(lambda x, y: ops.muladd(x, y, x).sin(), fullgraph=True)
    for _ in range(2):
        x, y = leaves(x3, y3)
        ours = torch.autograd.grad(compiled(x, y).sum(), (x, y))
        torch.testing.assert_close(ours, torch.autograd.grad(Aten.muladd(x, y, x).sin().sum(), (x, y)))


COMPILED = {"grad": grad, "jacrev": jacrev, "jacfwd": jacfwd, "jvp": lambda f: lambda x: jvp(f, (x,), (x,))[1]}


@pytest.mark.parametrize(("name", "transform"), [  # each with one of the transforms, or with all
    pytest.param(name, transform, marks=[] if i == j else pytest.mark.slow)
    for i, name in enumerate(["power", "sin", "logsumexp", "clipped"])
    for j, transform in enumerate(COMPILED)
])  # fmt: skip
def test_compiled_transform(name, transform):
    transform = COMPILED[transform]

    def f(m):
        return transform(lambda x: CALLS[name](m, x, y3).sum())

    compiled = torch.compile(f(ops), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x3), f(Aten)(x3))


@call
def test_exported(call):
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return call(ops, x, y)

    program = torch.export.export(Model(), (x3, y3))
    torch.testing.assert_close(program.run_decompositions().module()(x3, y3), call(Aten, x3, y3))


@call
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_and_anomaly_mode(call, reentrant):
    def gradients(m):
        x, y = leaves(x3, y3)
        checkpoint(lambda x, y: call(m, x, y), x, y, use_reentrant=reentrant).sum().backward()
        return x.grad, y.grad

    with torch.autograd.set_detect_anomaly(True):
        torch.testing.assert_close(gradients(ops), gradients(Aten))


def test_a_complex_gradient_is_that_of_the_conjugate():
    z, w = (torch.randn(3, dtype=torch.complex128, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(ops.weighted, (z, w), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda z: ops.power(z, 2.0), (z,), check_forward_ad=True)
    assert torch.autograd.gradcheck(ops.cubed, (z, w), check_forward_ad=True)


# ---- What is saved


def saved_by(f, *args):
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        result = f(*args)
    return result, [x.data_ptr() for x in packed]


@pytest.mark.parametrize(
    ("needs", "kept"), [((1, 0, 0), [1]), ((0, 1, 0), [0]), ((0, 0, 1), []), ((1, 1, 1), [1, 0])], ids=str
)
def test_only_what_the_gradients_asked_for_read_is_saved(needs, kept):
    inputs = [torch.randn(3, requires_grad=bool(need)) for need in needs]
    _, saved = saved_by(ops.muladd, *inputs)
    assert saved == [inputs[i].data_ptr() for i in kept]


def test_a_result_that_is_read_is_saved():
    x = torch.randn(3, requires_grad=True)
    result, saved = saved_by(ops.exponential, x)
    assert saved == [result.data_ptr()]
    result = ops.exponential(x)
    result.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_names_of_nodes():
    x = torch.randn(3, requires_grad=True)
    assert ops.muladd(x, x, x).grad_fn.name() == "MyMulAddBackward"
    assert ops.power(x, 2.0).grad_fn.name() == "PowerBackward"


def test_the_tangent_of_a_derivative_that_is_a_constant():
    """The kernel of this derivative also takes the number `c`, which is not saved."""
    op = define("plus(Tensor x, float c) -> Tensor", lambda x, c: x + c)
    by_x = define("_plus_by_x(Tensor x, float c, Tensor grad) -> Tensor", lambda x, c, grad: grad.clone())
    form, of_x = form_of(op), dataclasses.replace(form_of(by_x), role=("x",), constant=1.0)
    with in_library():
        autograd.register(dataclasses.replace(form, family={(): form, ("x",): of_x}))
    x, t = torch.randn(2, 3).unbind()

    def tangent(x):
        return torch.func.jvp(lambda x: op(x, 0.5), (x,), (t * x,))[1]

    torch.testing.assert_close(tangent(x), t * x)
    torch.testing.assert_close(torch.func.jvp(tangent, (x,), (t,))[1], t * t)
    torch.testing.assert_close(torch.func.grad(lambda x: tangent(x).sum())(x), t)


# ---- Gradients of any kind


def test_sparse_gradients():
    weight = torch.randn(5, 3, requires_grad=True)
    index = torch.tensor([1, 3, 1])

    def gradient(m):
        table = m.muladd(weight, weight.detach(), weight) + 0 * m.weighted(weight)
        return torch.autograd.grad(torch.nn.functional.embedding(index, table, sparse=False).sum(), weight)[0]

    torch.testing.assert_close(gradient(ops), gradient(Aten))
    table = ops.weighted(weight, weight)
    (sparse,) = torch.autograd.grad(torch.nn.functional.embedding(index, table, sparse=True).sum(), weight)
    expected = torch.autograd.grad((weight * weight)[index].sum(), weight)[0]
    assert sparse.is_sparse
    torch.testing.assert_close(sparse.to_dense(), expected)


@pytest.mark.parametrize("place", range(3))
def test_a_sparse_gradient_of_a_tensor_that_was_broadcast(place):
    args = [torch.randn(1 if i == place else 4, 3) for i in range(3)]
    args[place].requires_grad_()
    by_us, by_aten = (
        torch.autograd.grad(f(*args), args[place], torch.eye(4, 3).to_sparse())[0]
        for f in (torch.ops.muladd_nb.mymuladd.Tensor, Aten.muladd)
    )
    torch.testing.assert_close(by_us.to_dense(), by_aten.to_dense())


def test_a_sparse_gradient_where_a_derivative_is_zero():
    """The second derivative of a * b + c with respect to a and b is 1, and can be differentiated."""
    a, grad = (torch.randn(5, 3, requires_grad=True) for _ in range(2))
    table = torch.ops.muladd_nb._mymuladd_second.Tensor(a, a.detach(), a.detach(), grad, 0, 1)
    total = torch.nn.functional.embedding(torch.tensor([1, 3, 1]), table, sparse=True).sum()
    by_a, by_grad = torch.autograd.grad(total, (a, grad), materialize_grads=True)
    assert not by_a.any()
    assert by_grad.is_sparse
    assert by_grad.to_dense().tolist() == [[0] * 3, [2] * 3, [0] * 3, [1] * 3, [0] * 3]


def test_an_undefined_gradient_stays_undefined():
    class Undefined(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return None

    x = torch.randn(3, requires_grad=True)
    assert torch.autograd.grad(Undefined.apply(ops.softplus(x, 1.0, 20.0)).sum(), x, allow_unused=True) == (None,)


def test_gradients_of_two_classes():
    (x,) = leaves(x3)
    (gradient,) = torch.autograd.grad(ops.sincos(x), x, [x3, TwoTensor(y3, 2 * y3)])
    for part, of_cos in zip((gradient.a, gradient.b), (y3, 2 * y3), strict=True):
        torch.testing.assert_close(part, x3 * x3.cos() - of_cos * x3.sin())


def test_a_tangent_of_a_scalar_on_another_device():
    with forward_ad.dual_level():
        scalar = forward_ad.make_dual(torch.tensor(2.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
        tangent = forward_ad.unpack_dual(ops.muladd(x3.to("meta"), scalar, y3.to("meta"))).tangent
    assert (tangent.shape, tangent.device.type) == (x3.shape, "meta")


def penalty(m, x):
    (gradient,) = torch.autograd.grad(m.gated(x, x, 2.0).sum(), x, create_graph=True)
    return gradient.square().sum()


def test_a_gradient_of_a_formula_under_hooks_for_saved_tensors():
    def gradients(m):
        (x,) = leaves(x3)
        with graph.save_on_cpu(), forward_ad.dual_level():
            on_cpu = torch.autograd.grad(penalty(m, x), x)
        return on_cpu, torch.autograd.grad(checkpoint(lambda x: penalty(m, x), x, use_reentrant=False), x)

    torch.testing.assert_close(gradients(ops), gradients(Aten))


def test_a_gradient_of_a_formula_is_compiled_by_compiled_autograd():
    def gradient(m):
        (x,) = leaves(x3)
        m.gated(x, y3, 2.0).sum().backward()
        return x.grad

    with compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
        ours = gradient(ops)
    torch.testing.assert_close(ours, gradient(Aten))


@pytest.mark.parametrize("name", ["cubed", "gated"])
def test_the_tangent_of_a_gradient_that_nothing_records(name):
    """The gradients that the vjp of `cubed` returns are detached."""

    def tangent(m):
        (x,) = leaves(x3)
        with forward_ad.dual_level():
            result = CALLS[name](m, forward_ad.make_dual(x, y3), y3)
            return forward_ad.unpack_dual(torch.autograd.grad(result.sum(), x)[0]).tangent

    torch.testing.assert_close(tangent(ops), tangent(Aten))


def test_a_tangent_that_jvp_passes_on_is_a_copy():
    with forward_ad.dual_level():
        x = forward_ad.make_dual(x3.clone(), y3.clone())
        ops.weighted(x).mul_(2)  # its jvp returns the tangent of x
        assert torch.equal(forward_ad.unpack_dual(x).tangent, y3)


def test_a_tangent_shares_no_memory_with_another():
    op = derived(
        "flat(Tensor x) -> (Tensor, Tensor)",
        lambda x: (x.reshape(-1).clone(), x.reshape(-1).clone()),
        save=lambda needs, inputs, results: (inputs[0].shape,),
        vjp=lambda needs, saved, *grads: sum(grads).view(saved[0]),
        jvp=lambda saved, tangent: (tangent.reshape(-1),) * 2,
    )

    def others(x):
        written, other = op(x)
        written.mul_(3)
        return other, x + 0

    x, tangent = x3.view(1, 3), y3.clone().view(1, 3)
    for run in (jvp, torch.compile(jvp, backend="aot_eager")):
        of_other, of_x = run(others, (x,), (tangent,))[1]
        assert torch.equal(of_other.flatten(), y3) and torch.equal(of_x.flatten(), y3)
    assert torch.equal(tangent.flatten(), y3)


def test_hooks_see_gradients_and_results_may_be_written_to():
    def gradients(m):
        weight, seen = torch.nn.Parameter(x3.clone()), []
        weight.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.clone()))
        result = m.power(m.weighted(weight, y3), 2.0)
        result.register_hook(lambda gradient: 2 * gradient)
        result.view(3, 1)[1:].mul_(3)
        result.sum().backward()
        return seen

    torch.testing.assert_close(gradients(ops), gradients(Aten))


# ---- What is refused


def test_a_tensor_that_the_formula_does_not_read_has_no_gradient():
    op = define("reads_one(Tensor x, Tensor y) -> Tensor", lambda x, y: x.clone())
    with in_library():
        by_a_formula(op, lambda x: x, instead="pass a number")
    sentence = "reads_one: y has no gradient, but requires one; detach y, or pass a number"
    with pytest.raises(RuntimeError, match=sentence):
        op(x3, y3.clone().requires_grad_())
    with pytest.raises(RuntimeError, match=sentence):
        grad(lambda y: op(x3, y).sum())(y3)
    for primals in ((y3,), (y3, x3)):
        with pytest.raises(RuntimeError, match=sentence):
            jvp(lambda y, x=x3: op(x, y), primals, primals)
    with torch.no_grad():
        assert torch.equal(op(x3, y3.clone().requires_grad_()), x3)
    assert torch.equal(vmap(op)(x3, y3), x3)


def nothing():
    pass


power = ops.power.default
REFUSED = {
    "unknown name": (power, lambda z: z, ValueError, "power: the formula reads z; there are"),
    "result": (power, lambda result: result, ValueError, "power: the formula reads result; there are"),
    "default": (power, lambda x, n=2: x, TypeError, "power: the formula must take plain parameters, got n=2"),
    "no function": (power, torch.pow, TypeError, "power: the formula must be a Python function, got <"),
    "packet": (ops.power, nothing, TypeError, "a derivative belongs to an overload"),
    "in place": (torch.ops.aten.mul_.Tensor, nothing, ValueError, "self is written to or returned"),
    "out": (torch.ops.aten.mul.out, nothing, ValueError, "out is written to or returned"),
    "view": (torch.ops.aten.view.default, nothing, ValueError, "self is written to or returned"),
    "tensor list": (torch.ops.aten.cat.default, nothing, ValueError, "tensors is a list of tensors"),
    "list result": (torch.ops.aten.unbind_copy.int, nothing, ValueError, "the results must be tensors, got"),
}


@pytest.mark.parametrize(("op", "formula", "error", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_when_registered(op, formula, error, sentence):
    with in_library(), pytest.raises(error, match=sentence):
        layer.derivative(op, formula=formula)


def test_a_backward_pass_in_inference_mode_is_that_outside():
    for leaf in NESTED:
        expected, got = [], []
        for module, gradients in (Aten, expected), (ops, got):
            x, y = (t.clone().requires_grad_() for t in (x3, y3))
            result = leaf(module, x, y)
            with torch.inference_mode():
                gradients += torch.autograd.grad(result, [x, y], torch.ones_like(result), materialize_grads=True)
        torch.testing.assert_close(got, expected)


def test_a_formula_has_no_derivative_on_jagged_tensors():
    x = torch.nested.nested_tensor_from_jagged(torch.ones(5, 2), torch.tensor([0, 2, 5])).requires_grad_()

    def of_values(cls, op, types, args, kwargs=None):
        return torch.nested.nested_tensor_from_jagged(op(*(y._values for y in args)), args[0].offsets())

    torch.library.register_torch_dispatch("derivative_test::mixed", type(x), of_values, lib=library)
    result = ops.mixed(x, x.detach())
    with pytest.raises(RuntimeError, match="mixed: on jagged nested tensors the formula has no derivative; call"):
        torch.autograd.grad(result.values().sum(), x)


def test_functions_without_those_that_they_need_are_refused():
    """A formula can replace vjp, jvp or both. It cannot replace save, which vjp and jvp need."""
    vjp, jvp = (lambda needs, saved, *grads: grads), (lambda saved, *tangents: tangents)
    sentence = "gated: a derivative needs save, vjp and jvp, or a formula, which"
    for given in (
        {},
        {"vjp": vjp, "jvp": jvp},
        {"save": vjp, "jvp": jvp},
        {"save": vjp, "vjp": vjp},
        {"formula": Aten.cubed, "vjp": vjp},
        {"formula": Aten.cubed, "jvp": jvp},
    ):
        with in_library(), pytest.raises(TypeError, match=sentence):
            layer.derivative(ops.gated.default, **given)


def test_a_backward_pass_that_is_not_differentiated_calls_vjp():
    """The formula, which takes longer, is not called."""
    called = []

    def vjp(needs, saved, grad):
        called.append("vjp")
        return grad

    def formula(x):
        called.append("formula")
        return x.clone()

    given = {"save": lambda needs, inputs, results: (), "vjp": vjp, "formula": formula}
    op = derived("counted(Tensor x) -> Tensor", torch.clone, **given)
    (x,) = leaves(x3)
    op(x).sum().backward()
    assert called == ["vjp"]
    torch.autograd.grad(op(x).sum(), x, create_graph=True)
    assert called == ["vjp", "formula"]


SLOPES = {  # of x ** 3
    "vjp": lambda x: vjp(lambda x: x * x * x, x)[1](torch.ones_like(x))[0],
    "grad": lambda x: grad(lambda x: (x * x * x).sum())(x),
    "jvp": lambda x: jvp(lambda x: x * x * x, (x,), (torch.ones_like(x),))[1],
    "vmap": lambda x: vmap(lambda x: 3 * x * x)(x),
}


@pytest.mark.parametrize("name", SLOPES)
def test_torch_func_in_the_functions_of_an_author(name):
    """It works in reverse mode. In forward mode an error refuses it, unless there is a formula."""
    slope, save = SLOPES[name], lambda needs, inputs, results: inputs
    plain = {
        "vjp": lambda needs, saved, grad: grad * 3 * saved[0].square(),
        "jvp": lambda saved, t: t * 3 * saved[0].square(),
    }
    in_vjp = {"vjp": lambda needs, saved, grad: grad * slope(*saved)}
    in_jvp = {"jvp": lambda saved, tangent: tangent * slope(*saved)}

    def made(**functions):
        schema = f"by_torch_func_{next(counter)}(Tensor x) -> Tensor"
        return derived(schema, lambda x: x * x * x, save=save, **functions)

    def second(op, x):
        return torch.autograd.grad(torch.autograd.grad(op(x).sum(), x, create_graph=True)[0].sum(), x)[0]

    of_vjp, of_jvp = made(**plain | in_vjp), made(**plain | in_jvp)
    for op in (of_vjp, of_jvp):
        torch.testing.assert_close(grad(lambda x, op=op: op(x).sum())(x3), 3 * x3.square())
        torch.testing.assert_close(second(op, *leaves(x3)), 6 * x3)
    for op, function in ((of_vjp, "vjp"), (of_jvp, "jvp")):
        for call in (lambda x, op=op: jvp(op, (x,), (x,)), lambda x, op=op: jacfwd(op)(x)):
            with pytest.raises(
                RuntimeError, match=f": in forward mode, {function} must not call torch.func, which torch"
            ):
                call(x3)
    by_formula = made(**in_vjp, formula=lambda x: x * x * x)
    torch.testing.assert_close(jvp(by_formula, (x3,), (x3,))[1], 3 * x3**3)
    torch.testing.assert_close(second(by_formula, *leaves(x3)), 6 * x3)


def test_functions_of_other_parameters_are_refused():
    functions = {
        "save": lambda needs, inputs, results: inputs,
        "vjp": lambda needs, saved, of_sin, of_cos: of_sin,
        "jvp": lambda saved, tangent: (tangent, tangent),
    }
    for what, wrong in (
        ("save", lambda inputs: inputs),
        ("vjp", lambda needs, saved, grad: grad),
        ("vjp", torch.mul),  # it has no signature
        ("jvp", lambda saved: saved),
    ):
        with in_library(), pytest.raises(TypeError, match=f"sincos: {what} must be a function that takes"):
            layer.derivative(ops.sincos.default, **{**functions, what: wrong})


# For each mistake: a save, a vjp, and the error.
CHECKED = {
    "missing": (lambda x: (), lambda grad: (grad, None), "y has no gradient, but req"),
    "too few": (lambda x: (), lambda grad: grad, "vjp must return 2 gradients, got 1"),
    "made": (lambda x: (x + 1,), lambda grad: grad, "save must return inputs"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("saved", "gradients", "sentence"), CHECKED.values(), ids=CHECKED)
def test_what_the_functions_return_is_checked(saved, gradients, sentence, dtype):
    op = derived(
        f"checked_{next(counter)}(Tensor x, Tensor y) -> Tensor",
        torch.add,
        save=lambda needs, inputs, results: saved(inputs[0]),
        vjp=lambda needs, saved, grad: gradients(grad),
        jvp=lambda saved, of_x, of_y: of_x + of_y,
    )
    x, y = leaves(x3.to(dtype), y3.to(dtype))
    with pytest.raises(RuntimeError, match=sentence):
        op(x, y).backward(torch.ones_like(x))


def test_the_example():
    op = define("row_example(Tensor x) -> Tensor", Aten.logsumexp)
    known = {"torch": torch, "op": op, "derivative": layer.derivative}
    (test,) = doctest.DocTestFinder(recurse=False).find(layer.derivative, globs=known)
    with in_library():
        assert doctest.DocTestRunner().run(test).failed == 0


# ---- What is refused, in both modes


derived(
    "refused(Tensor x, Tensor y) -> Tensor",
    torch.mul,
    save=lambda needs, inputs, results: inputs,
    vjp=lambda needs, saved, grad: (grad * saved[1], None),
    jvp=lambda saved, tangent, _: tangent * saved[1],
)
derived(
    "bag(Tensor x, Tensor weight, str mode) -> Tensor",
    lambda x, w, mode: x * w if mode == "sum" else x + 0,
    save=lambda needs, inputs, results: inputs,
    vjp=lambda needs, saved, grad: (
        (grad * saved[1], grad * saved[0], None) if saved[2] == "sum" else (grad, None, None)
    ),
    jvp=lambda saved, of_x, of_weight, _: of_x * saved[1] + of_weight * saved[0] if saved[2] == "sum" else of_x.clone(),
)
rounds = define("rounds(Tensor x) -> Tensor", torch.round)
counts = define("counts(Tensor x) -> (Tensor, Tensor)", lambda x: ((x > 0).sum(-1), x.argmax(-1)))
with in_library():
    layer.none(rounds)
    layer.none(counts)

MODES_OF_X = {
    "backward": lambda f, x: f(x.clone().requires_grad_()).sum().backward(),
    "grad": lambda f, x: grad(lambda x: f(x).sum())(x),
    "jvp": lambda f, x: jvp(f, (x,), (x,)),
    "dual": lambda f, x: dual(f, x),
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "vmap of jvp": lambda f, x: vmap(lambda x: jvp(f, (x,), (x,)))(torch.stack([x, x])),
    "jvp of grad": lambda f, x: jvp(grad(lambda x: f(x).sum()), (x,), (x,)),
    "compiled": lambda f, x: torch.compile(f, backend="aot_eager")(x.clone().requires_grad_()).sum().backward(),
}
any_mode = pytest.mark.parametrize("mode", MODES_OF_X.values(), ids=MODES_OF_X)


@any_mode
def test_an_argument_that_has_no_gradient_is_refused(mode):
    with pytest.raises(Exception, match="refused: y has no gradient, but requires one; detach y"):
        mode(lambda y: ops.refused(x3, y), x3)
    mode(lambda x: ops.refused(x, y3), x3)  # the other one has


@any_mode
def test_an_argument_that_has_a_gradient_in_one_mode_is_refused_in_another(mode):
    mode(lambda weight: ops.bag(x3, weight, "sum"), y3)
    with pytest.raises(Exception, match="bag: weight has no gradient, but requires one; detach weight"):
        mode(lambda weight: ops.bag(x3, weight, "mean"), y3)


@any_mode
def test_an_operator_without_a_derivative_is_refused(mode):
    sentence = "rounds: the operator has no derivative, but x (requires grad; .*no_grad|has a tangent)"
    with pytest.raises(Exception, match=sentence):
        mode(ops.rounds, x3)


def test_a_result_without_a_derivative_is_a_constant():
    def kernel(x):
        scale = x.abs().amax(-1)
        return x / scale[:, None], scale

    op = derived(
        "scaled_by_constant(Tensor x) -> (Tensor, Tensor)",
        kernel,
        save=lambda needs, inputs, results: (results[1],),
        vjp=lambda needs, saved, grad, _: grad / saved[0][:, None],
        jvp=lambda saved, tangent: (tangent / saved[0][:, None], None),
        constants=[1],
    )
    x = torch.tensor([[1.0, -4.0]], requires_grad=True)
    scaled, scale = op(x)
    assert scaled.requires_grad and not scale.requires_grad
    assert torch.equal(*torch.autograd.grad((scaled * scale[:, None]).sum(), x), torch.ones(1, 2))
    _, (tangent, of_scale) = jvp(op, (x.detach(),), (torch.ones(1, 2),))
    assert torch.equal(tangent, torch.full((1, 2), 0.25)) and torch.equal(of_scale, torch.zeros(1))
    assert torch.equal(grad(lambda x: op(x)[1].sum())(x.detach()), torch.zeros(1, 2))


def test_an_entry_of_the_table_without_a_derivative():
    op = define("rounds_by_row(Tensor x) -> Tensor", torch.round)
    form = Form("rounds_by_row(Tensor x)", "functional", op, (torch.float64,), Elementwise(differentiable=False))
    with in_library():
        autograd.register(form)
    assert not op(x3).requires_grad
    for mode in (MODES_OF_X["backward"], MODES_OF_X["jvp"]):
        with pytest.raises(RuntimeError, match="rounds_by_row: the operator has no derivative, but x "):
            mode(op, x3)


def test_without_a_derivative_nothing_requires_grad():
    x = x3.clone().requires_grad_()
    assert not ops.rounds(x.detach()).requires_grad
    with torch.no_grad():
        assert torch.equal(ops.rounds(x), x3.round())
    assert not any(y.requires_grad for y in ops.counts(x))  # integers
    assert torch.equal(jvp(lambda x: ops.counts(x)[1].double() * x.sum(), (x3,), (x3,))[1], x3.argmax() * x3.sum())


WRONG = {
    "shape": (lambda x: x.unsqueeze(-1), r"shape \[3\] .* got one of shape \[3, 1\] and dtype torch.float64"),
    "sum": (lambda x: x.sum(), r"shape \[3\] .* got one of shape \[\] and dtype torch.float64"),
    "narrower dtype": (lambda x: x.float(), "dtype torch.float64, got one of shape .* and dtype torch.float32"),
    "bool": (lambda x: x > 0, "dtype torch.float64, got one of shape .* and dtype torch.bool"),
    "none": (lambda x: None, "got a NoneType"),
    "list": (lambda x: [x], "got a list"),
}
# For each function of an author: what its error message says, and the modes that call it.
GIVEN = {
    "formula": ("the result of the formula", [mode for mode in MODES_OF_X if mode != "jacfwd"]),
    "vjp": ("the gradient of x that vjp returns", ["backward", "grad", "compiled"]),
    "jvp": ("the tangent that jvp returns", ["jvp", "dual", "vmap of jvp"]),
}


@pytest.mark.parametrize(
    ("given", "name"),
    [pair for pair in itertools.product(GIVEN, WRONG) if pair != ("vjp", "none")],  # None is a gradient of zeros
)
def test_what_does_not_fit_is_refused(given, name):
    function, got = WRONG[name]
    op = define(f"{given}_{name.replace(' ', '_')}(Tensor x) -> Tensor", torch.sin)
    functions = {
        "save": lambda needs, inputs, results: inputs,
        "vjp": lambda needs, saved, grad: function(*saved) if given == "vjp" else grad * saved[0].cos(),
        "jvp": lambda saved, tangent: function(*saved) if given == "jvp" else tangent * saved[0].cos(),
    }
    with in_library():
        by_a_formula(op, function) if given == "formula" else layer.derivative(op, **functions)
    what, modes = GIVEN[given]
    for mode in modes:
        says = f"{op.overloadpacket.__name__}: {what} must be .*{got}"
        with pytest.raises(Exception, match=f"{says}; it is made in .*test_derivative.py, line [0-9]+"):
            MODES_OF_X[mode](op, x3)


def test_a_gradient_of_an_object_that_is_called_is_checked():
    vjp = functools.partial(lambda fill, needs, saved, grad: grad.new_full((1,), fill), 1.0)
    given = {"save": lambda needs, inputs, results: (), "vjp": vjp, "jvp": lambda saved, tangent: tangent}
    op = derived("of_partial(Tensor x) -> Tensor", torch.sin, **given)
    with pytest.raises(RuntimeError, match="of_partial: the gradient of x that vjp returns must be a tensor"):
        op(x3.clone().requires_grad_()).sum().backward()


aten = torch.ops.aten
NO_NODES = [
    (aten.maximum.default, {"a": [], "b": []}, r"for the gradient of a aten saves \['b', 'a'\], and .* reads \[\]"),
    (aten.mul.Tensor, {"a": ["b"], "b": ["b"]}, r"aten saves \['a'\], and .* reads \['b'\]"),
    (aten.hypot.default, {"a": ["a"], "b": ["b"]}, "another tensor"),
    (torch.mul, {"a": ["b"], "b": ["a"]}, "aten must be an overload of ATen.* got <built-in method mul"),
    (aten.add.Tensor, {"a": [], "b": []}, r"that takes \['a', 'b'\] and returns a new tensor.* got aten.add.Tensor"),
    (aten.mul_.Tensor, {"a": ["b"], "b": ["a"]}, "aten must be an overload .* got aten.mul_.Tensor"),
    (aten.exp.default, {"a": ["a"], "b": []}, "aten must be an overload .* got aten.exp.default"),
    (aten.multiply.Tensor, {"a": ["b"], "b": ["a"]}, "with a node of its own; aten.multiply.Tensor calls other"),
    (aten.eq.Tensor, {"a": [], "b": []}, r"must have a derivative by \['a', 'b'\], but aten.eq.Tensor has none"),
    (aten.mm.default, {"a": ["b"], "b": ["a"]}, "take tensors of any shape; aten.mm.default raises: self must be"),
]


@pytest.mark.parametrize(("node", "reads", "says"), NO_NODES)
def test_a_node_of_aten_that_is_none_of_this_derivative_is_refused(node, reads, says):
    op = define(f"unlike_{next(counter)}(Tensor a, Tensor b) -> Tensor", torch.mul)
    with pytest.raises(ValueError, match=f"^unlike_[0-9]+: .*{says}"):
        Derivative(form_of(op, aten=node), {x: Partial(read, torch.mul) for x, read in reads.items()})


# ---- A derivative in an autocast region that the operator was not called in


derived(
    "cube(Tensor x) -> Tensor",
    lambda x: x * x * x,
    save=lambda needs, inputs, results: inputs,
    vjp=lambda needs, saved, grad: 3 * grad * ops.cube(saved[0].pow(2 / 3)),
    jvp=lambda saved, tangent: 3 * tangent * ops.cube(saved[0].pow(2 / 3)),
)
torch.library.register_autocast("derivative_test::cube", "cpu", torch.bfloat16, lib=library)
formed = define("formed(Tensor x) -> Tensor", lambda x: x * x * x)
with in_library():
    by_a_formula(formed, lambda x: (x[:, None] @ x[None]).diagonal() * x)
torch.library.register_autocast("derivative_test::formed", "cpu", torch.bfloat16, lib=library)


def test_a_derivative_by_a_formula_is_computed_in_the_dtype_of_the_operator():
    """Only the first derivative does: ATen computes the others of a matrix product, in the dtype of the region."""
    derivatives_are_computed_in_the_dtype_of(ops.formed, None, 1)


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_derivative_is_computed_in_the_dtype_of_the_operator(backend, times):
    """The same holds if ``vjp`` calls the operator itself, and for the second derivative."""
    derivatives_are_computed_in_the_dtype_of(ops.cube, backend, times)


def derivatives_are_computed_in_the_dtype_of(cube, backend, times):
    x = torch.tensor([1.001, 2.002], requires_grad=True)
    gradients = []
    for region in (nullcontext(), torch.autocast("cpu")):
        f = cube if backend is None else torch.compile(cube, backend=backend)
        y = f(x)
        with region:
            for _ in range(times if backend in (None, "eager") else 1):  # compiled programs have no second derivative
                (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        gradients.append(y)
    assert torch.equal(*gradients)
    with forward_ad.dual_level(), torch.autocast("cpu"):
        tangent = forward_ad.unpack_dual(cube(forward_ad.make_dual(x.detach().double(), x.detach().double()))).tangent
    torch.testing.assert_close(tangent, 3 * x.detach().double() ** 3)
