"""Derivatives in reverse and forward mode, of any order; they save only the tensors that they need."""

import dataclasses
import itertools
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from calls import FUNCTIONS, RETURNING
from conftest import each
from torch.autograd import forward_ad

import muladd_nb
from muladd_nb._layer import Elementwise, autograd

ops = torch.ops.muladd_nb


def some(names):
    """Return all subsets of the names except the empty one, each as a tuple of bools."""
    return [needs for needs in itertools.product([True, False], repeat=len(names)) if any(needs)]


@each(RETURNING)
def test_gradcheck(device, call):
    inputs = [torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True) for _ in call.names]
    assert torch.autograd.gradcheck(
        call, inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(call, inputs, check_fwd_over_rev=True, check_batched_grad=True)
    first, *others = inputs
    transposed = [x.t().detach().clone().requires_grad_() for x in others]
    assert torch.autograd.gradcheck(lambda first, *others: call(first, *(x.t() for x in others)), (first, *transposed))


@each(RETURNING)
def test_gradients(device, dtype, call):
    for needs in some(call.names):
        inputs = [torch.randn(5, 7, device=device).to(dtype).requires_grad_(need) for need in needs]
        wanted = [x for x in inputs if x.requires_grad]
        grad = torch.randn(5, 7, device=device).to(dtype)
        ours, right = (torch.autograd.grad(f(*inputs), wanted, grad) for f in (call, call.expected))
        assert all(map(torch.equal, ours, right))


@each(RETURNING)
def test_nothing_is_recorded_without_need(device, call):
    a, b = torch.randn(3, device=device, requires_grad=True), torch.randn(3, device=device)
    assert call(b).grad_fn is None
    with torch.no_grad():
        assert not call(a, b).requires_grad
    with torch.inference_mode():
        assert call(a, b).is_inference()
        with torch.enable_grad():
            assert not call(a, b).requires_grad


@each(RETURNING)
def test_dual_numbers(device, dtype, call):
    for needs in some(call.names):
        inputs, tangents = ([torch.randn(3, 4, device=device).to(dtype) for _ in needs] for _ in range(2))
        with forward_ad.dual_level():
            given = [forward_ad.make_dual(x, t) if n else x for x, t, n in zip(inputs, tangents, needs, strict=True)]
            ours, right = (forward_ad.unpack_dual(f(*given)) for f in (call, call.expected))
        torch.testing.assert_close(ours.tangent, right.tangent)
        assert torch.equal(ours.primal, call(*inputs))


# ---- Like ATen's node: any inputs require grad, the backward pass runs twice, and inputs are written to in between


def outcome(function):
    """Return the result of a function, or the error of autograd that it raises."""
    try:
        return function()
    except RuntimeError as error:
        return str(error).partition("(")[0].partition(":")[0]


def same(ours, atens):
    if isinstance(ours, (str, bool)) or isinstance(atens, (str, bool)):
        return ours == atens
    return all(map(torch.equal, ours, atens))


def inputs_of(needs):
    """Return tensors that may be written to, and the leaves that need gradients."""
    leaves = [torch.linspace(0.5, 2 + place, 4).requires_grad_(need) for place, need in enumerate(needs)]
    return [leaf.clone() for leaf in leaves], [leaf for leaf in leaves if leaf.requires_grad]


def backward_passes(function, needs, written, when, hooks, create_graph):
    """Write before one of three backward passes, the last of which goes through gradients, and return all results."""
    x, wanted = inputs_of(needs)
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone) if hooks else nullcontext():
        y = function(*x)
    y.register_hook(lambda grad: seen.append(grad) or 2 * grad)

    def step(place, of):
        if place == when and written is not None:
            with torch.no_grad():
                x[written].mul_(3)
        return outcome(of)

    def of_gradients():
        return torch.autograd.grad(sum(map(torch.sum, first)), wanted, materialize_grads=True, allow_unused=True)

    weight = torch.linspace(1, 2, 4).requires_grad_(create_graph)
    first = step(0, lambda: torch.autograd.grad((y * weight).sum(), wanted, create_graph=create_graph))
    again = step(1, lambda: torch.autograd.grad((3 * y).sum(), wanted))
    if not create_graph or isinstance(first, str):
        return [first, again, seen]
    return [first, again, seen, *([step(2, of_gradients)] if any(g.requires_grad for g in first) else [])]


@each(FUNCTIONS)
def test_repeated_backward_passes_are_as_atens(call):
    for needs in some(call.names):
        places = [None, *range(len(needs))]
        for case in itertools.product(places, range(3), (False, True), (False, True)):
            ours, atens = (backward_passes(f, needs, *case) for f in (call, call.expected))
            assert len(ours) == len(atens), (needs, case)
            assert all(map(same, ours, atens)), (needs, case, ours, atens)


def tangents(function, needs, duals, is_recorded, transform, written):
    """Return whether value and tangent require grad, and the outcome of the tangent's backward pass after a write."""
    x, _ = inputs_of(needs)
    of_x = [torch.linspace(1, 3, 4).requires_grad_(is_recorded) for _ in needs]
    places = [place for place, is_dual in enumerate(duals) if is_dual]
    if transform:

        def of_duals(*primals):
            given = dict(zip(places, primals, strict=True))
            return function(*(given.get(place, y) for place, y in enumerate(x)))

        primals, given = (tuple(some[place] for place in places) for some in (x, of_x))
        value, tangent = torch.func.jvp(of_duals, primals, given)
    else:
        with forward_ad.dual_level():
            result = function(*(forward_ad.make_dual(*pair) if d else pair[0] for *pair, d in zip(x, of_x, duals)))
            value, tangent = forward_ad.unpack_dual(result)
    if written is not None:
        with torch.no_grad():
            x[written].mul_(3)
    return value.requires_grad, tangent.requires_grad, outcome(lambda: tangent.sum().backward() or True)


@pytest.mark.parametrize("transform", [False, True])
@pytest.mark.parametrize("operator", ["mymuladd", "mymul"])
def test_tangents_require_grad_and_are_saved_as_atens(operator, transform):
    ours = getattr(muladd_nb, operator)
    atens = {"mymul": torch.mul, "mymuladd": lambda a, b, c: torch.addcmul(c, a, b)}[operator]
    count = 3 if operator == "mymuladd" else 2
    for needs, duals in itertools.product([*itertools.product([False, True], repeat=count)], some(range(count))):
        for case in itertools.product((False, True), (transform,), (None, *range(count))):
            found = [tangents(f, needs, duals, *case) for f in (ours, atens)]
            assert found[0] == found[1], (needs, duals, case)


def test_a_tangent_that_there_is_not_stays_zero_beside_an_infinity():
    infinite = torch.full((3,), float("inf"), requires_grad=True)
    x, t = torch.ones(2, 3)
    _, tangent = torch.func.jvp(lambda x: muladd_nb.mymuladd(x, infinite, 0.5), (x,), (0 * t,))
    assert tangent.isnan().all()  # 0 * infinity
    _, tangent = torch.func.jvp(lambda b: muladd_nb.mymuladd(infinite, b, x), (x,), (t,))
    assert torch.equal(tangent, infinite)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_tangent_of_zero_has_a_derivative(shape):
    """A tangent of zero with strides of 0 looks like the zeros that stand for a missing tangent."""
    x, b, zero, one = (torch.tensor(x).expand(shape) for x in (3.0, 5.0, 0.0, 1.0))

    def tangent(t):
        return torch.func.jvp(lambda x: muladd_nb.mymul(x, b), (x,), (t,))[1]

    value, slope = torch.func.jvp(tangent, (zero,), (one,))
    assert torch.equal(value, zero)
    assert torch.equal(slope, b)


@each([call for call in RETURNING if not call.form.tensor_numbers])
def test_what_jvp_returns_inside_of_functionalize_may_be_written_to(call):
    """The same holds if factor and tangent come from outside of the transform."""
    outside = [torch.linspace(1, 2, 4).to(torch.bfloat16) for _ in range(3)]

    def f(function, write, x):
        def of_one(x):
            return function(x, *outside[: len(call.names) - 1])

        value, tangent = torch.func.jvp(of_one, (x,), (outside[0],))
        (value, tangent)[write].mul_(x)
        return value, tangent

    for write in (0, 1):
        ours, atens = (
            torch.func.functionalize(partial(f, function, write))(outside[1]) for function in (call, call.expected)
        )
        torch.testing.assert_close(ours, atens)


LAYOUTS = {
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(1, 3).contiguous().transpose(1, 3),
    "contiguous": lambda x: x,
}


def in_order(x):
    """Return the dimensions with more than one element, in their order in memory."""
    return sorted((d for d in range(x.dim()) if x.shape[d] > 1), key=lambda d: -x.stride(d))


@pytest.mark.parametrize("shapes", [((2, 3, 4, 5),) * 3, ((2, 3, 4, 5), (2, 3, 4, 1), (1, 3, 4, 5))], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_gradient_has_the_layout_of_its_tensor_where_that_is_not_read_or_broadcast(device, layout, shapes):
    """The same holds if the gradient of the result is expanded, as for a sum."""
    for needs in some(shapes):
        inputs = [
            layout(torch.rand(shape, device=device)).requires_grad_(need)
            for shape, need in zip(shapes, needs, strict=True)
        ]
        wanted = [x for x in inputs if x.requires_grad]
        for grad in (torch.ones((), device=device).expand(shapes[0]), torch.rand(shapes[0], device=device)):
            result = ops.mymuladd.Tensor(*inputs)
            for x, gradient in zip(wanted, torch.autograd.grad(result, wanted, grad), strict=True):
                hands_on = x is inputs[2] and gradient.shape == grad.shape  # c gets the result's gradient itself
                assert hands_on or in_order(gradient) == in_order(x), (needs, gradient.stride(), x.stride())


@each(FUNCTIONS)
def test_advice_about_a_tensor_without_a_gradient_names_what_the_entry_lacks(call, monkeypatch):
    rules = []
    monkeypatch.setattr(autograd.recording, "register", lambda op, rule, form: rules.append(rule))
    form = call.form
    for family in (form.family, {(): form}):
        autograd.register(dataclasses.replace(form, promises=Elementwise(), family=family))
    of_derivatives, of_none = (rule.instead for rule in rules)
    assert of_none.startswith("add `differentiable` to its entry in src/operators.h, or a formula to its entry in ")
    assert of_derivatives.startswith("add a formula to its entry in ")
