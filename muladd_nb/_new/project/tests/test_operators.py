"""What every operator promises, seen from the outside. What differs between them is in operators.py."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

from cases import each, tensors

LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "sliced": lambda x: torch.stack([x, x], -1)[..., 0],
    "expanded": lambda x: x[:1].expand_as(x),
}
layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def with_layout(layout, args):
    return [layout(x) if isinstance(x, Tensor) and x.dim() else x for x in args]


def without_data(args):
    def meta(x):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")

    return [meta(x) if isinstance(x, Tensor) else x for x in args]


@layout
def test_values(case, dtype, device, layout):
    for shape in case.shapes:
        args = with_layout(layout, case.sample(dtype, device, shape))
        assert_close(case.call(*args), case.expected(*args))


@layout
def test_the_fake_kernel_knows_the_result(case, dtype, device, layout):
    def metadata(x):
        # torch.empty_like itself does not give an empty tensor the same strides with data and without.
        return x.dtype, x.shape, x.stride() if x.numel() else None

    for shape in case.shapes:
        args = with_layout(layout, case.sample(dtype, device, shape))
        assert each(metadata, case.call(*args)) == each(metadata, case.call(*without_data(args)))


def test_out(case, device):
    """Its result is written to `out`, which may be an argument."""
    if not case.has_out:
        pytest.skip("it has no out")
    args = case.sample(case.dtypes[-1], device)
    x, expected = tensors(args)[0], case.call(*args)
    for out in (torch.empty_like(x), x):
        returned = case.function(*args, out=out)
        assert returned is (None if case.writes else out)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("data", [True, False])
def test_bad_arguments_are_named(case, device, data):
    """By the same sentence with data and without."""
    args = case.sample(case.dtypes[0], device)
    args = args if data else without_data(args)
    first, *others = [place for place, x in enumerate(args) if isinstance(x, Tensor)]
    names = case.names
    bad = [(first, args[first].to(torch.complex64), f"{names[first]} must be .*, got complex64")]
    for place in others:
        both, x = f"{names[first]} and {names[place]} must", args[place]
        bad += [
            (place, x.to(torch.complex64), f"{both} have the same dtype"),
            (place, torch.cat([x, x]), f"{both} have the same shape"),
            (place, torch.empty_like(x, device="meta" if data else "cpu"), f"{both} be on the same device"),
        ]
    for place, x, sentence in bad:
        with pytest.raises(RuntimeError, match=f"^{case.forms[0].name}: {sentence}"):
            case.call(*args[:place], x, *args[place + 1 :])


def test_registrations(case, device):
    """Schema, fake kernel, autograd registration and compilation agree with what the kernel does."""
    for op in case.ops:
        name, _, overload = op.name().partition("::")[2].partition(".")
        for requires_grad in {False, bool(case.differentiable)}:
            args = with_layout(LAYOUTS["transposed"], case.sample(case.dtypes[-1], device))
            for place, argument in enumerate(case.names):
                if argument in case.differentiable:
                    args[place].requires_grad_(requires_grad)
                elif overload and isinstance(args[place], float):
                    args[place] = torch.tensor(args[place], dtype=torch.float64)
            writes = [torch.empty_like(tensors(args)[0], requires_grad=False)] if name.endswith("_out") else []
            if not (writes and requires_grad):  # it warns
                torch.library.opcheck(op, (*args, *writes))


def with_derivative(case, device, batch=(), function=None):
    """Return the tensors that have a derivative, and the function of them."""
    args = case.sample(torch.float64, device, batch=())
    places = [case.names.index(name) for name in case.differentiable]
    x = [case.sample(torch.float64, device, batch=batch)[place] for place in places]

    def of_them(*x):
        for place, value in zip(places, x, strict=True):
            args[place] = value
        return (function or case.call)(*args)

    return x, of_them


def test_derivatives(case, device):
    x, f = with_derivative(case, device)
    x = [value.requires_grad_() for value in x]
    assert torch.autograd.gradcheck(f, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(f, x, check_fwd_over_rev=True)


def scalar(results):
    return sum(scalar(x) for x in results) if isinstance(results, tuple) else results.sum()


TRANSFORMS = {
    "vmap": lambda f, n: vmap(f),
    "grad": lambda f, n: grad(lambda *x: scalar(f(*x)), tuple(range(n))),
    "jvp": lambda f, n: lambda *x: jvp(f, x, tuple(value.cos() for value in x)),
    "jacrev": lambda f, n: jacrev(f, tuple(range(n))),
    "jacfwd": lambda f, n: jacfwd(f, tuple(range(n))),
}
NESTINGS = [nesting for depth in (1, 2, 3) for nesting in itertools.product(TRANSFORMS, repeat=depth)]


@pytest.mark.parametrize("nesting", NESTINGS, ids=" of ".join)
def test_derivatives_nest(case, device, nesting):
    results = []
    for function in (case.call, case.reference):
        torch.manual_seed(0)
        x, f = with_derivative(case, device, (2,) * nesting.count("vmap"), function)
        for transform in reversed(nesting):
            f = TRANSFORMS[transform](f, len(x))
        results.append(f(*x))
    assert_close(*results)


def test_vmap(case, dtype, device):
    """Over any dimension of any of the tensors."""
    args = case.sample(dtype, device)
    places = [place for place, x in enumerate(args) if isinstance(x, Tensor)]
    for batched in itertools.product([False, True], repeat=len(places)):
        if not any(batched) or (case.writes and not batched[0]):
            continue
        for dim in (0, -1):
            in_dims, stacked = [None] * len(args), list(args)
            for place, is_batched in zip(places, batched, strict=True):
                if is_batched:
                    in_dims[place] = dim
                    stacked[place] = torch.stack([args[place], args[place].flip(0)], dim)
            result = vmap(case.call, tuple(in_dims))(*stacked)
            for i in range(2):
                one = [x if d is None else x.select(d, i) for x, d in zip(stacked, in_dims, strict=True)]
                assert_close(each(lambda x, i=i: x[i], result), case.expected(*one))


def test_compiled(case, device):
    """In one graph, forward and backward."""
    args = case.sample(case.dtypes[-1], device)
    for place, name in enumerate(case.names):
        if name in case.differentiable:
            args[place].requires_grad_()
    compiled = torch.compile(case.call, fullgraph=True)
    result, expected = compiled(*args), case.call(*args)
    assert_close(result, expected)
    if case.differentiable:
        leaves = [x for x in tensors(args) if x.requires_grad]
        assert_close(*(torch.autograd.grad(scalar(y), leaves) for y in (result, expected)))


def numbers(args):
    return [place for place, x in enumerate(args) if isinstance(x, float)]


def test_numbers_change_without_compiling_again(case, device):
    if not case.has_out:
        pytest.skip("not element-wise: a number is a constant of the compiled program")
    args, compilations = case.sample(case.dtypes[0], device), 0

    def backend(graph, inputs):
        nonlocal compilations
        compilations += 1
        return graph.forward

    compiled = torch.compile(case.call, backend=backend, fullgraph=True)
    for factor in (1.0, 1.25, 1.5, 1.75):
        changed = [x * factor if place in numbers(args) else x for place, x in enumerate(args)]
        assert_close(compiled(*changed), case.call(*changed))
    assert compilations <= 2  # the second time the compiler knows that they change


def test_numbers_that_require_grad_are_refused(case, device):
    args = case.sample(case.dtypes[0], device)
    for place in numbers(args):
        learned = [torch.tensor(x, requires_grad=True) if place == i else x for i, x in enumerate(args)]
        with pytest.raises(RuntimeError, match=f"{case.names[place]} has no gradient"):
            case.call(*learned)


@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(case, device, target):
    """A region is no error, also where dtypes differ, and its result is right."""
    if torch.float32 not in case.dtypes:
        pytest.skip("not of floating-point dtypes")
    args = case.sample(torch.float32, device)
    mixed = [x.to(target) if isinstance(x, Tensor) and place == 0 else x for place, x in enumerate(args)]
    for these in (args, mixed):
        with torch.autocast(device, target):
            result = case.call(*these)
        expected = each(lambda x: x.float(), case.expected(*args))
        assert_close(each(lambda x: x.float(), result), expected, rtol=0.05, atol=0.05)
