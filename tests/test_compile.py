"""torch.compile: one graph, no break, forward and backward, few recompilations, and writes in place."""

import dataclasses
import math
import re
import sys
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from calls import MOST, WRITES
from conftest import DTYPES, fuses, run
from forked import python
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code
from torch.nn.attention.flex_attention import flex_attention

import muladd_nb
from muladd_nb._layer import Elementwise, autocast, autograd, functional, lowering, recording
from muladd_nb._layer.operator import Form
from muladd_nb._layer.public import _Caller
from muladd_nb._operators import FORMS

ops = torch.ops.muladd_nb


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


def test_the_first_call_of_a_public_function_may_be_a_compiled_one():
    """Before Python 3.12 Dynamo cannot trace the first read of a ``cached_property``."""
    form = next(form for form in FORMS if form.name == "mymul" and form.kind == "functional")
    caller = _Caller("mymul", [dataclasses.replace(form)], is_one_of_several=False)
    a = torch.randn(3)
    assert torch.equal(torch.compile(lambda a: caller([a, a], None), fullgraph=True, backend="eager")(a), a * a)


@pytest.mark.parametrize(("f", "expected"), [
    (lambda a: muladd_nb.mymuladd(a, a, 0.5), ops.mymuladd.default),
    (lambda a: muladd_nb.mymuladd(c=-1, b=a, a=a), ops.mymuladd.default),
    (lambda a: muladd_nb.mymuladd(a, a, c=a, out=None), ops.mymuladd.Tensor),
    (lambda a: muladd_nb.mymul(a, a), ops.mymul.default),
], ids=["numbers", "keywords", "tensors", "mymul"])  # fmt: skip
def test_a_compiled_public_function_is_the_operator_by_position_and_few_guards(f, expected):
    """Each guard adds some 10 ns to each call. Without ``while_compiling`` there would be 105 guards.

    torch passes the arguments of the call on to a checkpoint's policy(ctx, op, *args, **kwargs).
    """
    calls, guards = [], []

    def backend(graph, inputs):
        calls.extend((x.target, x.kwargs) for x in graph.graph.nodes if x.op == "call_function")
        return graph

    def keep_all(entries):
        guards.extend(entries)
        return [True] * len(entries)

    a = torch.randn(3)
    compiled = torch.compile(f, fullgraph=True, backend=backend, options={"guard_filter_fn": keep_all})
    assert torch.equal(compiled(a), f(a))
    assert calls == [(expected, {})]
    assert len(guards) < 65


def test_the_programs_of_other_public_functions_do_not_count():
    """torch limits the number of compiled programs for each code object."""
    a = torch.randn(3)
    with torch._dynamo.config.patch(recompile_limit=1):
        assert torch.equal(torch.compile(muladd_nb.mymul, fullgraph=True, backend="eager")(a, a), a * a)
        assert torch.compile(muladd_nb.mymuladd, fullgraph=True, backend="eager")(a, a, 0.5).shape == a.shape


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 2**1023, True, np.float32(0.1)])
def test_a_compiled_public_function_takes_the_numbers_that_eager_takes(number):
    a = torch.randn(3)
    f = lambda a: muladd_nb.mymuladd(a, a, number)  # noqa: E731
    assert torch.equal(torch.compile(f, fullgraph=True, backend="eager")(a).nan_to_num(0.5), f(a).nan_to_num(0.5))


def test_dynamic_shapes_compile_once(device):
    counter = CompileCounter()
    compiled = torch.compile(lambda a, b: ops.mymuladd(a, b, 0.5) + 1, backend=counter, fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        a, b = torch.randn(n, 4, device=device), torch.randn(n, 4, device=device)
        assert torch.equal(compiled(a, b), ops.mymuladd(a, b, 0.5) + 1)
    assert counter.frame_count == 1


def test_out_variants_write_and_return_what_they_are_given(device):
    """With ``torch.Tag.out`` torch loses writes into the result (docs/ship/kernels.md)."""

    def f(a, memory, out):
        ops.mymuladd.out(a, a, 0.5, out=memory[:5]).add_(1)
        result = ops.mymul.out(a, a, out=out)
        out.mul_(2)
        return result

    a, memory = torch.randn(5, device=device), torch.zeros(24, device=device)
    expected = f(a, memory[6:], out := torch.zeros(5, device=device))
    for compiled in (
        torch.compile(f, fullgraph=True),
        torch.func.functionalize(f),
        torch.export.export(Module(f), (a, memory[6:], out)).run_decompositions().module(),
    ):
        written, returned = torch.zeros(24, device=device), torch.zeros(5, device=device)
        result = compiled(a, written[6:], returned)
        assert all(map(torch.equal, (result, written, returned), (expected, memory, out)))

    def below(a, out):  # below autocast to another dtype, and autograd
        return ops.mymul.out(a, a, out=out)

    with torch.autocast(device, torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = torch.compile(below, fullgraph=True, backend="aot_eager")(a.requires_grad_(), torch.zeros_like(a))
    assert torch.equal(result, a * a)
    assert not result.requires_grad


def test_the_generated_code_writes_in_place(device):
    writes = [call for call in WRITES if call.form.kind == "writing" and not call.form.tensor_numbers]
    tensors = [torch.randn(5, 7, device=device) for _ in range(MOST + len(writes))]

    def write_all(*tensors):
        for call, out in zip(writes, tensors[MOST:], strict=True):
            call(*tensors[:MOST], out=out)

    _, (code,) = run_and_get_code(torch.compile(write_all, fullgraph=True), *tensors)
    # The operator gets the program's arguments themselves: there is no buffer between, and no copy back.
    lines = [line for line in code.splitlines() if "torch.ops.muladd_nb." in line]
    given = [set(re.findall(r"arg\d+_1", line)) for line in lines]
    assert list(map(len, given)) == [len(call.names) + 1 for call in writes]
    assert len(set.union(*given)) == len(tensors)
    assert "empty_strided" not in code.split("def call")[1]
    assert "copy" not in code.split("def call")[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("out", [False, True])
def test_values_of_c_cost_one_recompilation(device, backend, out):
    memory = torch.empty(5, device=device) if out else None

    def f(a, b, c):
        return muladd_nb.mymuladd(a, b, c, out=memory)

    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(f, backend=counter, fullgraph=True)
    a, b = torch.randn(5, device=device), torch.randn(5, device=device)
    b[0] = torch.copysign(torch.zeros(()), -a[0])  # the product is -0.0, whose sign only a c of -0.0 keeps
    for c in (0.1, 0.2, 1e300, -3.0, 0.0, -0.0, 1.0, 1e-45):
        result, expected = compiled(a, b, c).clone(), f(a, b, c)
        assert torch.equal(result.view(torch.int32), expected.view(torch.int32))
    assert counter.frame_count <= 2


CHANGING = {
    "of a known sign": lambda a, c: muladd_nb.mymuladd(a, a, c) if c > 0 else a,
    "computed": lambda a, c: muladd_nb.mymuladd(a, a, c * c + 1),
    "a size": lambda a, c: muladd_nb.mymuladd(a, a, a.shape[0]),
}


@pytest.mark.parametrize("f", CHANGING.values(), ids=CHANGING)
def test_a_c_that_changes_in_any_way_costs_one_recompilation(device, f):
    counter = CompileCounter()
    compiled = torch.compile(f, backend=counter, fullgraph=True)
    for n in (3, 4, 5, 6):
        a = torch.randn(n, device=device)
        assert torch.equal(compiled(a, n + 0.5), f(a, n + 0.5))
    assert counter.frame_count <= 2


@pytest.mark.parametrize("number", [np.float64, np.float32, np.int64])
def test_c_may_be_a_number_of_numpy(device, number):
    counter = CompileCounter()
    compiled = torch.compile(muladd_nb.mymuladd, backend=counter, fullgraph=True)
    a, out = torch.randn(3, device=device), torch.empty(3, device=device)
    for c in (number(2.5), number(3.5), number(4.5)):
        expected = muladd_nb.mymuladd(a, a, float(c))
        assert torch.equal(compiled(a, a, c), expected)
        assert torch.equal(compiled(a, a, c, out=out), expected)
    assert counter.frame_count <= 4  # with out and without


def test_a_c_that_depends_on_data(device):
    def f(a, x):
        c = x.item()
        torch._check(c > 0)
        return muladd_nb.mymuladd(a, a, c)

    a, x = torch.randn(3, device=device), torch.tensor(2.5, device=device)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert torch.equal(torch.compile(f, fullgraph=True, backend="aot_eager")(a, x), f(a, x))


def test_a_compiled_c_that_changes_has_derivatives_and_batches(device):
    def loss(a, b, c):
        return muladd_nb.mymuladd(a, b, c).sin().sum()

    a, b = (torch.randn(4, 3, device=device, requires_grad=True) for _ in range(2))
    compiled = torch.compile(loss, fullgraph=True)
    batched = torch.compile(torch.vmap(muladd_nb.mymuladd, (0, None, None)), fullgraph=True, backend="aot_eager")
    for c in (0.1, 0.2, 0.3):
        torch.testing.assert_close(
            torch.autograd.grad(compiled(a, b, c), (a, b)), torch.autograd.grad(loss(a, b, c), (a, b))
        )
        with torch.no_grad():
            assert torch.equal(batched(a, b[0], c), torch.vmap(muladd_nb.mymuladd, (0, None, None))(a, b[0], c))


def every_form(a, b, c, number, row, out, other):
    a = a * 1.7
    ops.mymuladd_out(a, b, number, out)
    ops.myadd_out(out, b, other)
    results = [
        ops.mymuladd(a, b, 0.1),
        ops.mymuladd(a, b, float("inf")),
        ops.mymuladd.Tensor(a, b, c),
        ops.mymul(a, b),
        ops.mymuladd(a.t(), b.t(), 0.5),
        muladd_nb.mymuladd(a, b, number),
        muladd_nb.mymuladd(a, b, row.expand_as(a)),
        ops.mymul(ops.mymuladd(b, b, 0.5), a),
    ]
    return [-x for x in (*results, other)]


@pytest.mark.parametrize(("dtypes", "dynamic"), [  # two dtypes in one program: faster
    pytest.param(DTYPES[:2], False, id="16 bits"),
    pytest.param(DTYPES[:2], True, id="16 bits, dynamic", marks=pytest.mark.slow),
    pytest.param(DTYPES[2:], False, id="more"),
    pytest.param(DTYPES[2:], True, id="more, dynamic"),
])  # fmt: skip
def test_inductor_fuses_every_form_with_the_bits_of_the_kernel(device, dtypes, dynamic):
    def arguments(rows, dtype):
        a, b, c, out, other = (torch.randn(rows, 7, device=device).to(dtype) for _ in range(5))
        return a, b, c, 0.1 * rows, torch.randn(7, device=device).to(dtype), out, other

    def function(first, second):
        return every_form(*first) + every_form(*second)

    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    for rows in (5, 40) if dynamic else (40,):
        given = [arguments(rows, dtype) for dtype in dtypes]
        again = [[x.clone() if isinstance(x, torch.Tensor) else x for x in of_one] for of_one in given]
        results, codes = run_and_get_code(compiled, *given)
        expected = function(*again)
        written, again = ([x for of_one in of_all for x in of_one[-2:]] for of_all in (given, again))
        assert all(map(torch.equal, [*written, *results], [*again, *expected]))
        assert [x.stride() for x in results] == [x.stride() for x in expected]
        assert ("torch.ops.muladd_nb." not in "".join(codes)) == fuses(device, *dtypes)


def test_inductor_fuses_derivatives(device):
    """Results have the kernels' bits. In 16-bit dtypes Inductor by itself would round only stored values."""

    def loss(a, b, c):
        return -muladd_nb.mymul(-muladd_nb.mymuladd(-a, -b, c), -b)

    def gradients(function, *args):
        results = [function(*args[:3]), function(*args[3:])]
        return torch.autograd.grad(results, args, [torch.ones_like(x) for x in results])

    tensors = [
        torch.randn(40, 7, device=device).to(dtype).requires_grad_()
        for dtype in (torch.float32, torch.bfloat16)
        for _ in range(3)
    ]
    actual, codes = run_and_get_code(gradients, torch.compile(loss, fullgraph=True), *tensors)
    for x, y in zip(actual, gradients(loss, *tensors), strict=True):
        if x.dtype == torch.float32:
            assert torch.equal(x, y)
        else:
            torch.testing.assert_close(x, y, rtol=2**-6, atol=2**-5)
    assert len(codes) == 4  # forward and backward of each dtype
    assert ("torch.ops.muladd_nb." not in "".join(codes)) == fuses(device, torch.float32, torch.bfloat16)


def test_a_fused_scalar_has_the_bits_of_the_kernel_but_for_the_zero_of_its_negative(device):
    """GCC compiles the negative of std::fma to an instruction with the other zero (docs/composability.md)."""

    def f(a):
        y = ops.mymuladd(-a, a, 1.0)
        return y.abs(), y, -y, -ops.mymuladd(-a, a, 0.01), torch.copysign(a, ops.mymuladd(-a, a, -0.0))

    for a in (torch.tensor(x, device=device) for x in (1.0, 0.0, 0.1)):
        assert all(map(torch.equal, torch.compile(f, fullgraph=True)(a), f(a)))  # 0.0 equals -0.0


NOT_FUSED = {
    "no neighbour, whose kernel is faster": (lambda a, b: ops.mymuladd(a.t(), b.t(), 0.5).t(), {}),
    "no neighbour, with out": (lambda a, b: ops.myadd_out(a[:5], b[:5], b[35:]), {}),
    "products and sums are contracted": (
        lambda a, b: ops.mymuladd(-a, b, 0.5),
        # Precompiling headers pays only if many programs use them; this test compiles one.
        {"cpp.enable_floating_point_contract_flag": "on", "cpp_cache_precompile_headers": False},
    ),
}


@pytest.mark.parametrize("why", NOT_FUSED)
def test_the_kernel_is_called_where_there_is(device, why):
    function, options = NOT_FUSED[why]
    a, b = torch.randn(40, 7, device=device), torch.randn(40, 7, device=device)
    given, again = (a, b), (a.clone(), b.clone())
    result, (code,) = run_and_get_code(torch.compile(function, fullgraph=True, options=options), *given)
    expected = function(*again)
    assert result is expected is None or torch.equal(result, expected)
    assert all(map(torch.equal, given, again))
    assert "torch.ops.muladd_nb." in code


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b: (a.int(), b.int()), "a must be float16, bfloat16, float32 or float64, got int32"),
        (lambda a, b: (a, b[0]), r"a and b must have the same shape, got \[5, 7\] and \[7\]"),
    ],
    ids=["dtype", "shape"],
)
def test_what_inductor_fuses_is_refused_as_the_operator_refuses_it(device, change, message):
    a, b = change(torch.randn(5, 7, device=device), torch.randn(5, 7, device=device))
    with pytest.raises(RuntimeError, match=f"mymuladd: {message}"):
        torch.compile(lambda a, b: -muladd_nb.mymuladd(a, b, 0.5), fullgraph=True)(a, b)


# ---- Operators that these tests define

library = torch.library.Library("compile_test", "DEF")


def defined(name, parameters, kernel, family=(), **promises):
    """Define a floating-point operator with a single form, and derivatives by the operators in ``family``."""
    library.define(f"{name}({parameters}) -> Tensor")
    library.impl(name, kernel, "CPU")
    op = getattr(torch.ops.compile_test, name).default

    def fake(x, *_):
        lowering.register_waiting()
        return torch.empty_like(x)

    torch.library.register_fake(op.name(), fake, lib=library)
    form = Form(f"{name}({parameters})", "functional", op, tuple(DTYPES), Elementwise(**promises), family=dict(family))
    form.family[()] = form
    with mock.patch.object(recording, "implement", library.impl), mock.patch.object(autocast, "library", library):
        autograd.register(form)
    lowering.register(form)
    return op


NUMBERS = {
    "left": (lambda ops, x: 1 / (1 + ops.abs(x)), lambda x: 1 / (1 + x.abs())),
    "right": (lambda ops, x: ops.maximum(x - 2, 0.1) * 0.1, lambda x: (x - 2).clamp_min(0.1) * 0.1),
    "of a comparison": (lambda ops, x: ops.where(x > 0.5, -x, 0.1), lambda x: torch.where(x > 0.5, -x, 0.1)),
    "of fma": (lambda ops, x: ops.fma(x, x, 1), lambda x: torch.addcmul(torch.ones_like(x), x, x)),
    "of bits": (lambda ops, x: 2**5 ^ ((x << 1) & 6 | 1), lambda x: 2**5 ^ ((x << 1) & 6 | 1)),
    "of constant": (lambda ops, x: ops.where(x > ops.constant(0.5, torch.float32), x, 3),
                    lambda x: torch.where(x > 0.5, x, 3)),
    "alone": (lambda ops, x: 0.1, lambda x: torch.full_like(x, 0.1)),
    "of numbers": (lambda ops, x: x * ops.sub(1, 0.9999999),
                   lambda x: x * (1 - torch.tensor(0.9999999, dtype=x.dtype))),
}  # fmt: skip


def test_numbers_of_python_are_constants_of_what_is_fused():
    called = {
        where: defined(f"numbers_{where.replace(' ', '_')}", "Tensor x", kernel, fused=fused)
        for where, (fused, kernel) in NUMBERS.items()
    }
    of_bits = called.pop("of bits")

    def function(x, y, bits):
        return [-op(z) for op in called.values() for z in (x, y)] + [-of_bits(bits)]

    x = 3 * torch.randn(40)
    given = x, x.double(), x.int()
    results, (code,) = run_and_get_code(torch.compile(function, fullgraph=True), *given)
    assert all(map(torch.equal, results, function(*given)))
    assert ("torch.ops.compile_test." not in code) == fuses("cpu")


CONDITIONS = {
    "if": ("Tensor x, bool flip", lambda ops, x, flip: -x if flip else x),
    "comparison": ("Tensor x, int k", lambda ops, x, k: x * 2 if k == 2 else x),
    "max": ("Tensor x, float limit", lambda ops, x, limit: max(x, limit)),
}


@pytest.mark.skipif(not fuses("cpu"), reason="nothing is fused on this processor")
@pytest.mark.parametrize(("parameters", "fused"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_condition_of_python_in_what_is_fused_is_an_error(parameters, fused):
    """An object is true in Python, so each of these would always take the same branch."""
    name = f"chooses_by_{parameters.split()[-1]}"
    op = defined(name, parameters, lambda x, _: x.clone(), fused=fused)
    with pytest.raises(Exception, match=rf"{name}: fused runs once .* write ops\.where\(condition, yes, no\)"):
        torch.compile(lambda x: -op(x, 0), fullgraph=True)(torch.randn(40))


def softclip(x, y, limit):
    return x * y / (1 + x.abs() / limit)


def test_inductor_compiles_the_formula_of_an_operator_whose_bits_may_differ():
    """The operator runs alone and with a neighbour, forward and backward. Other backends call it."""
    op = defined(
        "softclip",
        "Tensor x, Tensor y, float limit",
        lambda x, y, limit: softclip(x.double(), y.double(), limit).to(x.dtype),
        formula=softclip,
        fused="formula",
    )

    def gradients(function, *args):
        results = function(*args)
        return torch.autograd.grad(results, args, [torch.ones_like(x) for x in results])

    def of_each(f):
        def function(*tensors):
            pairs = list(zip(tensors[::2], tensors[1::2], strict=True))
            return [f(x, y, 1.5) for x, y in pairs] + [f(x.sin(), y, 1.5).cos() for x, y in pairs]

        return function

    dtypes = (torch.bfloat16, torch.float32)
    tensors = [torch.randn(40, 7).to(dtype).requires_grad_() for dtype in dtypes for _ in range(2)]
    actual, codes = run_and_get_code(gradients, torch.compile(of_each(op), fullgraph=True), *tensors)
    for f in (op, softclip):
        torch.testing.assert_close(actual, gradients(of_each(f), *tensors), rtol=2e-2, atol=2e-2)
    _, expected = run_and_get_code(gradients, torch.compile(of_each(softclip), fullgraph=True), *tensors)
    # The program has the loads, stores and operations of one that contains the formula, so it is as fast.
    of_both = [[sorted(re.sub(r"#.*|_fused\w*|(?<=tmp)\d+", "", code).splitlines()) for code in some]
               for some in (codes, expected)]  # fmt: skip
    # Before 2.13, torch may fuse the two dtypes in another order, so it writes into other buffers.
    assert of_both[0] == of_both[1] or torch.__version__ < "2.13"
    for ours, the_formulas in zip(codes, expected, strict=True):
        for word in ("loadu(", ".store(", "empty_strided_cpu("):
            assert ours.count(word) == the_formulas.count(word)
        assert ours.count("auto tmp") <= the_formulas.count("auto tmp")
    assert len(codes) == 2
    x, y = tensors[:2]
    assert torch.equal(torch.compile(op, backend="aot_eager")(x, y, 1.5), op(x, y, 1.5))


def test_a_derivative_is_that_of_the_formula_only_where_inductor_compiles_it():
    """Eager mode uses the kernels' derivative, which is twice as large here, so that the test can tell them apart."""
    by_x = defined("_tripled_by_x", "Tensor x, Tensor grad", lambda x, grad: 6 * grad)
    form = Form("_tripled_by_x(Tensor x, Tensor grad)", "functional", by_x, tuple(DTYPES), Elementwise(), role=("x",))
    op = defined("tripled", "Tensor x", lambda x: 3 * x, {("x",): form}, formula=lambda x: 3 * x, fused="formula")
    x = torch.ones(40, requires_grad=True)
    for backend, expected in ((None, 6.0), ("aot_eager", 6.0), ("inductor", 3.0)):
        f = torch.compile(op, fullgraph=True, backend=backend) if backend else op
        assert torch.equal(torch.autograd.grad(f(x).sum(), x)[0], torch.full_like(x, expected))
        of_tangents = torch.compile(lambda x: torch.func.jvp(op, (x,), (x,)), backend=backend or "eager")
        assert torch.equal(of_tangents(x.detach())[1], torch.full_like(x, expected))


def test_what_writes_is_a_formula_in_a_compiled_program_too():
    op = defined("clip", "Tensor x, Tensor y, float limit", softclip, formula=softclip, fused="formula")
    library.define("clip_out(Tensor x, Tensor y, float limit, Tensor(a!) out) -> ()")
    library.impl("clip_out", lambda *args: [args[-1].copy_(softclip(*args[:-1])), None][1], "CPU")
    writing = torch.ops.compile_test.clip_out.default
    torch.library.register_fake(writing.name(), lambda *_: lowering.register_waiting(), lib=library)
    promises = Elementwise(formula=softclip, fused="formula")
    form = Form("clip_out(Tensor x, Tensor y, float limit)", "writing", writing, tuple(DTYPES), promises, op)
    with mock.patch.object(functional, "implement", library.impl), mock.patch.object(functional, "library", library):
        functional.register(form)

    def f(x, y, out, memory):
        writing(x.sin(), y, 1.5, out)
        writing(x, y, 1.5, memory[3:43])
        return out + 1

    def arguments():
        return *torch.arange(120.0).reshape(3, 40).sin(), torch.zeros(50)[4:]

    actual, expected = arguments(), arguments()
    result, (code,) = run_and_get_code(torch.compile(f, fullgraph=True), *actual)
    torch.testing.assert_close((result, *actual), (f(*expected), *expected))
    assert "torch.ops.compile_test." not in code
    assert code.split("def call")[1].count("empty_strided") == 1  # the result


FIRST = """
import sys
sys.path.insert(0, {tests!r})
import torch
from test_compile import defined

op = defined("op", "Tensor x", lambda x: 2 * x, formula=lambda x: 3 * x, fused="formula")  # to tell them apart
compiled = torch.compile(lambda x: op(x), fullgraph=True)
assert "torch._inductor.lowering" not in sys.modules
torch.compiler.config.force_disable_caches = True
assert torch.equal(compiled(torch.ones(40)), torch.full((40,), 3.0))
"""


@pytest.mark.slow
def test_inductor_compiles_the_formula_in_the_first_program_of_a_process():
    """This process has not imported Inductor before."""
    code = FIRST.format(tests=str(Path(__file__).parent))
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


FORMULA = """
import os, sys
os.environ["TORCHINDUCTOR_CACHE_DIR"] = {folder!r}
sys.path.insert(0, {tests!r})
from pathlib import Path
import torch
from test_compile import defined, lowering

torch.compiler.config.cache_key_tag = ""
lowering.tag_caches(Path({package!r}), [], [])
op = defined("op", "Tensor x", lambda x: {factor} * x, formula=lambda x: {factor} * x, fused="formula")
x = torch.ones(40, requires_grad=True)
y = torch.compile(lambda x: op(x), fullgraph=True)(x)
assert torch.equal(y, torch.full((40,), {factor}))
assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((40,), {factor}))
"""


@pytest.mark.slow
def test_the_caches_of_compiled_programs_know_the_formula(tmp_path):
    for factor in (2.0, 3.0):
        (tmp_path / "_operators.py").write_text(f"formula=lambda x: {factor} * x")
        folders = {"folder": str(tmp_path / "cache"), "tests": str(Path(__file__).parent), "package": str(tmp_path)}
        assert python(FORMULA.format(**folders, factor=factor), tmp_path / "stderr") == (0, "")


def test_a_formula_that_is_not_there_cannot_be_compiled():
    with pytest.raises(ValueError, match='fused="formula" needs a formula, but there is none'):
        Elementwise(fused="formula")


CACHED = """
import os
os.environ["TORCHINDUCTOR_CACHE_DIR"] = {folder!r}
import torch, muladd_nb
from muladd_nb._layer import lowering
from torch._inductor.utils import run_and_get_code

if {before}:  # an older version lowered nothing
    lowering._waiting.clear()
    torch.compiler.config.cache_key_tag = ""
f = torch.compile(lambda a: -muladd_nb.mymuladd(-a, a, 0.1), fullgraph=True)
result, (code,) = run_and_get_code(f, torch.ones(40))
assert torch.equal(result, torch.full((40,), 0.9))
assert ("torch.ops.muladd_nb." in code) == {called}
"""


@pytest.mark.slow
def test_the_caches_of_compiled_programs_know_what_operators_are_lowered_to(tmp_path):
    for before, called in [(True, True), (False, not fuses("cpu"))]:
        code = CACHED.format(folder=str(tmp_path / "cache"), before=before, called=called)
        assert python(code, tmp_path / "stderr") == (0, "")


def test_the_tag_of_these_caches_is_that_of_all_that_a_program_is_made_of(tmp_path):
    """An edit of a functor counts, too, because compiled programs contain derivatives that are constants."""
    (tmp_path / "formulas").mkdir()

    def tag(row, formula="x", declared=2.0, schemas=()):
        (tmp_path / "_operators.py").write_text(row)
        (tmp_path / "formulas" / "one.py").write_text(formula)
        with torch.compiler.config.patch(cache_key_tag="the user's"):
            lowering.tag_caches(tmp_path, [{"constant": declared}], schemas)
            return torch.compiler.config.cache_key_tag

    tags = [tag("a"), tag("b"), tag("a", "2 * x"), tag("a", declared=3.0), tag("a", schemas=["f(Tensor x) -> ()"])]
    assert len({*tags}) == 5
    assert tag("a") == tags[0]
    assert tags[0].startswith("the user's ")


def test_the_tag_has_the_schema_of_an_operator_that_is_not_element_wise_too():
    found, expected = [], []
    for count in ("Tensor count", "Tensor(a!) count"):
        with torch.library._scoped_library("schema_test", "FRAGMENT") as scoped:
            scoped.define(f"tally(Tensor x, {count}) -> ()")
            scoped.impl("no_such_operator", lambda x: x, "CPU")
            found.append(lowering.private.schemas("schema_test"))
            expected.append([f"schema_test::tally(Tensor x, {count}) -> ()"])
    assert found == expected


def test_sizes_that_depend_on_data(device):
    def f(x):
        chosen = x[x > 0]
        out = torch.empty_like(chosen)
        ops.mymuladd_out(chosen, chosen, 1.0, out)
        return out + ops.mymul(chosen, chosen)

    x = torch.randn(20, device=device)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(torch.compile(f, fullgraph=True)(x), f(x))


@pytest.mark.parametrize(("backend", "dynamic"), [
    *(("aot_eager", dynamic) for dynamic in (None, True, False)),
    ("inductor", None),
    *(pytest.param("inductor", dynamic, marks=pytest.mark.slow) for dynamic in (True, False)),
])  # fmt: skip
def test_a_view_is_written_where_eager_writes_it_wherever_it_starts(device, backend, dynamic):
    def fixed(y, k, x):
        muladd_nb.mymul(x, x, out=y[2:8])

    def moving(y, k, x):
        muladd_nb.mymuladd(x, x, 0.0, out=y[k : k + 6])

    x = torch.ones(6, device=device)
    for f, view, start in ((fixed, lambda m, k: m[k : k + 12], 2), (moving, lambda m, k: m[2:], 2)):
        torch._dynamo.reset()
        compiled = torch.compile(f, fullgraph=True, backend=backend, dynamic=dynamic)
        for k in (0, 3, 5):
            memory = torch.zeros(24, device=device)
            compiled(view(memory, k), k, x)
            assert memory.nonzero().flatten().tolist() == list(range(start + k, start + k + 6))


def test_an_operator_without_the_layer_has_the_trap_of_torch():
    """docs/why/traps.md describes the fault. This test fails on a torch in which it is fixed."""

    @torch.library.custom_op("compile_test::double_", mutates_args={"x"})
    def double_(x: torch.Tensor) -> None:
        x.mul_(2)

    def memory_after():
        memory = torch.arange(24.0)
        torch.compile(lambda y: double_(y[:3]), fullgraph=True, backend="aot_eager")(memory[6:])
        return memory

    expected = torch.arange(24.0)
    expected[12:15] *= 2
    assert torch.equal(memory_after(), expected)
    torch._dynamo.reset()
    expected = torch.arange(24.0)
    expected[6:9] *= 2
    with torch._inductor.config.patch(enable_auto_functionalized_v2=False):
        assert torch.equal(memory_after(), expected)


@pytest.mark.parametrize("function", [ops.mymul, muladd_nb.mymul])
def test_nothing_of_the_package_is_compiled_where_a_program_is_compiled_in_part(device, function):
    """A compiled training step calls backward, which runs in eager mode. But Dynamo sees every frame."""

    def compiled_frames(function):
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        # Large enough for a node in Python to record the call.
        x, y = (torch.ones(2**20 + 1, device=device, requires_grad=True) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")
            torch.compile(lambda: function(x, y).sum().backward(), backend="eager")()
        return torch._dynamo.utils.counters["frames"]["total"]

    compiled_frames(function)  # torch 2.10 also compiles its own set-up at the first call of an operator
    assert compiled_frames(function) == compiled_frames(torch.mul)


def attention(score):
    inputs = [torch.randn(1, 1, 16, 16) for _ in range(3)]
    compiled = torch.compile(flex_attention)(*inputs, score_mod=lambda x, *_: score(x))
    scores = inputs[0] @ inputs[1].mT / 4
    return compiled, torch.softmax(score(scores), -1) @ inputs[2]


@pytest.mark.slow
def test_flex_attention_has_what_is_fused_in_its_loop_even_where_other_programs_call_the_kernel():
    half = defined("half", "Tensor x", lambda x: x / 2, formula=lambda x: x / 2, fused="formula")
    with torch._inductor.config.patch({"cpp.enable_floating_point_contract_flag": "fast"}):
        torch.testing.assert_close(*attention(lambda x: half(muladd_nb.mymuladd(x, x, 0.5))))


def test_flex_attention_says_that_it_cannot_call_a_kernel():
    called = defined("doubled", "Tensor x", lambda x: 2 * x)
    x = torch.rand(5, 4).t()
    assert torch.equal(torch.compile(lambda x: called(x) + 1)(x), 2 * x + 1)  # other programs can call it
    with pytest.raises(Exception, match='doubled: flex_attention .* cannot call a kernel: .* fused="formula"'):
        attention(called)
