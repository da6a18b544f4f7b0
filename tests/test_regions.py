"""Parts of programs that are compiled differently: control flow, nested regions, and Inductor's C++ wrapper."""

import pytest
import torch
import writers
from torch._higher_order_ops.while_loop import while_loop

import muladd_nb
from muladd_nb._layer.kernel import Kernel
from muladd_nb._layer.public import public

region = torch.compiler.nested_compile_region(lambda x: muladd_nb.mymuladd(x, x, x))
REGIONS = {
    "cond": lambda x: torch.cond(
        x.sum() > 0, lambda x: muladd_nb.mymuladd(x, x, 0.5), lambda x: muladd_nb.mymul(x, x), (x,)
    ),
    "nested region": lambda x: region(x),
    "while": lambda x: while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, muladd_nb.mymuladd(x, x, 0.5)), (torch.tensor(0), x)
    )[1],
}


def plain(name, x):
    if name == "cond":
        return x * x + 0.5 if x.sum() > 0 else x * x
    if name == "while":
        for _ in range(3):
            x = x * x + 0.5
        return x
    return x * x + x


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_control_flow_and_nested_regions(name, backend):
    compiled = torch.compile(REGIONS[name], backend=backend, fullgraph=True)
    for sign in (1, -1):
        x = sign * torch.rand(4, requires_grad=name != "while" or torch.__version__ >= "2.13")
        y = compiled(x)
        torch.testing.assert_close(y, plain(name, x))
        if x.requires_grad:
            actual, expected = (torch.autograd.grad(z.sum(), x)[0] for z in (y, plain(name, x)))
            torch.testing.assert_close(actual, expected)


def test_a_default_is_a_constant_of_a_branch():
    """With dynamic=True a number that Python holds may change, and torch refuses such a number in a branch."""
    with torch.library._scoped_library("muladd_nb", "FRAGMENT") as library:
        library.define("shifted(Tensor x, float by=0.5, *, float more=1.5) -> Tensor")
        library.impl("shifted", lambda x, by=0.5, *, more=1.5: x + by + more, "CPU")
        form = Kernel.of(torch.ops.muladd_nb.shifted.default, (torch.float32,))
        form.fake(lambda x, by, more: x.new_empty(x.shape))

        @public([form])
        def shifted(x, by=0.5, *, more=1.5):
            """Return a sum."""

        by_name = (lambda x: shifted(x=x), lambda x: shifted(x, by=2), lambda x: shifted(x, more=2.0))
        for call in (shifted, lambda x: shifted(x, 1.0), *by_name):
            f = lambda x, call=call: torch.cond(x.sum() > 0, call, lambda x: -call(x), (x,))  # noqa: E731
            for x in (torch.ones(2), -torch.ones(2)):
                assert torch.equal(torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)(x), f(x))
        with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
            torch.compile(lambda x: shifted(x, 1.0, 2.0), backend="eager")(torch.ones(2))


ops = torch.ops.muladd_nb
OUT = {
    "public": lambda x, y: muladd_nb.mymuladd(x, y, 0.5, out=x),
    "myadd_out": lambda x, y: muladd_nb.myadd_out(x, y, x),
    "raw": lambda x, y: ops.mymuladd_out(x, y, 0.5, x),
    "mymul.out": lambda x, y: ops.mymul.out(x, y, out=x),
    "mymuladd.out": lambda x, y: ops.mymuladd.out(x, y, 0.5, out=x),
    "update": lambda x, y: writers.CALLS["raw"]["ema_"](x, y, 0.5),
    "kernel": lambda x, y: writers.CALLS["public"]["scale_"](x, y),
}


def written(write, x):
    z = x.clone()
    write(z[1:4], x[:3])
    return z


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_writes_in_control_flow_and_nested_regions(name, backend):
    in_region = torch.compiler.nested_compile_region(lambda x: written(OUT[name], x))

    def f(x):
        x = torch.cond(x.sum() > 0, lambda x: written(OUT[name], x), lambda x: -x, (x,))
        _, x = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, written(OUT[name], x)), (torch.tensor(0), x))
        return in_region(x) + in_region(x + 1)

    for dynamic in (False, True):
        x = torch.rand(5 + dynamic)
        torch.testing.assert_close(torch.compile(f, backend=backend, dynamic=dynamic, fullgraph=True)(x), f(x))


@pytest.mark.slow
def test_writes_in_programs_that_are_c_plus_plus_alone():
    def f(x):
        for i, write in enumerate(OUT.values()):
            write(x[i : i + 3], x[i + 4 : i + 7].sin())

    x = torch.rand(16)[1:]
    y = x.clone()
    with torch._inductor.config.patch(cpp_wrapper=True):
        torch.compile(f, fullgraph=True)(y)
    f(x)
    torch.testing.assert_close(y, x)


@pytest.mark.slow
def test_programs_that_are_c_plus_plus_alone():
    x = torch.rand(4, requires_grad=True)
    with torch._inductor.config.patch(cpp_wrapper=True):
        y = torch.compile(lambda x: muladd_nb.mymuladd(x, x, 0.5) + muladd_nb.mymul(x.sin(), x))(x)
        actual = torch.autograd.grad(y.sum(), x)[0]
    expected = x * x + 0.5 + x.sin() * x
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(actual, torch.autograd.grad(expected.sum(), x)[0])
