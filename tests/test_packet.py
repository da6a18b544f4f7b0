"""A call of ``torch.ops.muladd_nb.op`` goes to the overload for the types of its arguments, and loses no gradient."""

import inspect
import re

import pytest
import torch
from modes import FunctionMode
from torch.func import grad, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from muladd_nb._layer import mutation
from muladd_nb._layer.kernel import Kernel

ops = torch.ops.muladd_nb
ONE_ELEMENT = {"no dimension": (), "one": (1,), "three": (1, 1, 1)}


@pytest.fixture(params=ONE_ELEMENT.values(), ids=ONE_ELEMENT)
def c(request):
    return torch.full(request.param, 0.5)


def call(c, **kwargs):
    a, b = torch.arange(3.0), torch.arange(3.0) + 1
    return ops.mymuladd(a, b, c, **kwargs)


def test_a_tensor_with_one_element_keeps_its_gradient(c):
    assert torch.equal(grad(lambda c: call(c).sum())(c), torch.full_like(c, 3.0))
    call(c.requires_grad_()).sum().backward()
    assert torch.equal(c.grad, torch.full_like(c, 3.0))


@pytest.mark.parametrize("by_name", [False, True])
def test_a_tensor_with_one_element_keeps_its_tangent(c, by_name):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(c, torch.full_like(c, 2.0))
        a = torch.ones(3)
        result = ops.mymuladd(a, b=a, c=dual) if by_name else ops.mymuladd(a, a, dual)
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(result).tangent, torch.full_like(result, 2.0))


def test_a_tensor_with_one_element_has_its_shape_and_its_batch(c):
    assert call(c).shape == (torch.ones(3) + c).shape
    assert torch.equal(vmap(call)(torch.stack([c, 2 * c])), torch.stack([call(c), call(2 * c)]))


def test_a_traced_tensor_is_not_a_constant(c):
    for traced in make_fx(call)(c), torch.jit.trace(call, c), torch.compile(call, backend="aot_eager", fullgraph=True):
        assert torch.equal(traced(3 * c), call(3 * c))


def test_a_write_by_a_tensor_that_requires_grad_is_no_write_by_a_number(c, monkeypatch):
    monkeypatch.setattr(mutation, "_warned", set())
    out = torch.empty((torch.ones(3) + c).shape)
    assert torch.equal(call(c, out=out), call(c))
    with pytest.warns(UserWarning, match=r"^mymuladd.Tensor_out: no gradient is recorded") as warned:
        call(c.requires_grad_(), out=out)
    assert {one.filename for one in warned} == {__file__}


def test_a_program_without_a_module_is_warned_of_a_lost_gradient(monkeypatch):
    monkeypatch.setattr(mutation, "_warned", set())
    program = torch.fx.symbolic_trace(lambda a, out: ops.mymul(a, a, out=out))
    with pytest.warns(UserWarning, match=r"^mymul.out: no gradient is recorded"):
        program(torch.ones(3, requires_grad=True), torch.empty(3))


def test_a_kernel_that_a_program_registers_is_called():
    library = torch.library.Library("muladd_nb", "IMPL")
    library.impl("mymuladd.out", lambda a, b, c, *, out: out.fill_(7.0), "CPU", allow_override=True)
    try:
        assert torch.equal(call(0.5, out=torch.empty(3)), torch.full((3,), 7.0))
    finally:
        library._destroy()
    assert torch.equal(call(0.5, out=torch.empty(3)), call(0.5))


def test_it_has_the_signature_of_any_packet():
    assert inspect.signature(ops.mymuladd) == inspect.signature(torch.ops.aten.mul)


def test_numbers_and_wrong_arguments_are_what_they_are_for_torch():
    assert torch.equal(call(2), call(2.0))
    assert torch.equal(call(c=2.0, out=torch.empty(3)), call(2.0))
    for given in [("x",), (), (1.0, 2.0)], {"d": 1.0}:
        with pytest.raises(RuntimeError, match=re.escape("muladd_nb::mymuladd() ")):
            ops.mymuladd(torch.ones(3), torch.ones(3), *given)


def test_a_function_mode_sees_the_call_as_it_is_written(c):
    class Mode(FunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func, len(args), [*(kwargs or ())]))
            return func(*args, **(kwargs or {}))

    a, seen = torch.ones(3), []
    with Mode():
        result = ops.mymuladd(a, a, c=c)
    assert seen[0] == (ops.mymuladd, 2, ["c"])
    assert torch.equal(result, ops.mymuladd(a, a, c))


def reduced(x, factors, *, op="sum", beside=()):
    return getattr(x, op)(-1) * factors[0]


def test_a_kernel_of_ones_own_has_lists_and_arguments_that_are_passed_by_name():
    with torch.library._scoped_library("muladd_nb", "FRAGMENT") as library:
        library.define('reduced(Tensor x, float[] factors, *, str op="sum", Tensor[] beside) -> Tensor')
        library.impl("reduced", reduced, "CPU")
        form = Kernel.of(ops.reduced.default, (torch.float32,))
        form.batched(lambda info, in_dims, *args: (form.call(*form.batch_first(info, in_dims, args)), 0))
        x, c = torch.arange(6.0).view(2, 3), torch.tensor(2.0)
        # torch's helper for batching rules has a parameter of this name.
        assert torch.equal(vmap(lambda x: ops.reduced(x, [2.0], op="mean", beside=[]))(x), x.mean(-1) * 2)
        has_none = "^reduced: factors has no gradient, but requires one; detach factors"
        with pytest.raises(RuntimeError, match=has_none):
            ops.reduced(x, [c.clone().requires_grad_()], beside=[])
        with pytest.raises(RuntimeError, match=has_none):
            jvp(lambda c: ops.reduced(x, factors=[c], beside=[]), (c,), (c,))
        assert torch.equal(ops.reduced(x, [c], beside=[]), x.sum(-1) * 2)
        form.check_beside("x", x, "beside", [x, x.double()], (torch.float32, torch.float64))
        with pytest.raises(RuntimeError, match=r"^reduced: beside\[1\] must be float32, got float64"):
            form.check_beside("x", x, "beside", [x, x.double()], (torch.float32,))
        jagged = torch.nested.nested_tensor([x[0], x[1, :1]], layout=torch.jagged)
        for y, argument in ((jagged, "x"), (x, r"beside\[0\]")):
            with pytest.raises(
                RuntimeError, match=rf"^reduced: .* takes no nested tensor; call it on {argument}\.values"
            ):
                ops.reduced(y, [2.0], beside=[jagged])
