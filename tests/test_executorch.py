"""ExecuTorch: an exported model returns the bits of eager mode, or raises a clear error."""

import doctest

import pytest
import torch
from exported import Both, forward, ops, pte, python, same_bits, with_executorch

import muladd_nb
import muladd_nb.executorch


@with_executorch
def test_the_bits_are_those_of_eager_at_every_dynamic_shape(dtype):
    rows = torch.export.Dim("rows", min=1, max=64)
    args = torch.randn(8, 5).to(dtype), torch.randn(8, 5).to(dtype)
    run = forward(pte(Both(), args, ({0: rows}, {0: rows})))
    for n in (8, 1, 64, 13):
        a, b = ((torch.randn(n, 5) * 10.0 ** torch.randint(-9, 5, (n, 5))).to(dtype) for _ in range(2))
        a[0, :3] = torch.tensor([0.0, -0.0, float("inf")])
        (result,) = run(a, b)
        assert same_bits(result, Both()(a, b))


@with_executorch
@pytest.mark.parametrize(
    "shape", [(), (0, 3), (1,), (7, 1, 5), (3, 2, 2, 2, 2, 3), (500, 301)], ids=lambda shape: "x".join(map(str, shape))
)
def test_every_shape(shape):
    a, b = torch.randn(shape), torch.randn(shape)
    (result,) = forward(pte(Both(), (a, b)))(a, b)
    assert result.shape == a.shape
    assert same_bits(result, Both()(a, b))


@with_executorch
def test_the_dim_orders_of_the_inputs_may_differ():
    a, b = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(2, 3, 4, 5)
    for x, y in ((a, b), (b, a), (a, a)):
        (result,) = forward(pte(Both(), (x, y)))(x, y)
        assert result.stride() == x.stride()
        assert same_bits(result, Both()(x, y))


@with_executorch
def test_c_may_be_a_tensor(dtype):
    class OfThree(torch.nn.Module):
        def forward(self, a, b, c):
            muladd_nb.mymuladd(a, b, c, out=c)
            return muladd_nb.mymuladd(a, b, c)

    args = [torch.randn(4, 3).to(dtype) for _ in range(3)]
    run = forward(pte(OfThree(), tuple(args)))
    assert same_bits(run(*args)[-1], OfThree()(*args))


@with_executorch
def test_tensors_are_broadcast(dtype):
    class Layer(torch.nn.Module):
        def forward(self, gamma, x, beta):
            return muladd_nb.mymuladd(gamma, x, beta)

    rows = torch.export.Dim("rows", min=2, max=64)
    args = [torch.randn(shape).to(dtype) for shape in ((3,), (4, 3), (4, 1))]
    run = forward(pte(Layer(), tuple(args), ({}, {0: rows}, {0: rows})))
    for n in (4, 64, 7):
        args = [args[0], torch.randn(n, 3).to(dtype), torch.randn(n, 1).to(dtype)]
        assert same_bits(run(*args)[0], Layer()(*args))


@with_executorch
def test_a_pass_may_write_a_number_as_an_int():
    from executorch.exir import to_edge

    args = torch.randn(5), torch.randn(5)
    edge = to_edge(torch.export.export(Both(), args))
    (node,) = (node for node in edge.exported_program().graph.nodes if "mymuladd" in str(node.target))
    node.args = (*node.args[:2], 2)
    run = forward(edge.to_executorch().buffer)
    a, b = args
    assert same_bits(run(a, b)[0], ops.mymul(ops.mymuladd(a, b, 2.0), b))


@with_executorch
def test_the_mutating_operators_become_functional_ones(dtype):
    class Sums(torch.nn.Module):
        def forward(self, a, b, total):
            muladd_nb.mymuladd(a, b, 0.1, out=b)
            out = torch.zeros_like(a)
            ops.myadd_out(out=out, b=total, a=b)
            return out * 2

    args = [torch.randn(4, 3).to(dtype) for _ in range(3)]
    run = forward(pte(Sums(), tuple(args)))
    assert same_bits(run(*args)[-1], Sums()(*args))


# ---- Errors at run time. ExecuTorch raises an error with a number, and logs the reason.


@with_executorch
def test_a_program_that_runs_before_the_kernels_are_loaded(tmp_path):
    (tmp_path / "both.pte").write_bytes(pte(Both(), (torch.ones(2), torch.ones(2))))
    code = """
import torch
from executorch.runtime import Runtime
program = Runtime.get().load_program("both.pte")
try:
    program.load_method("forward")
except RuntimeError as error:
    print(error)
import muladd_nb.executorch
muladd_nb.executorch.load()
muladd_nb.executorch.load()
print(program.load_method("forward").execute([torch.ones(2), torch.ones(2)]))
"""
    run = python(code, cwd=tmp_path)
    assert run.stdout.splitlines() == ["Failed to load method forward, error: 0x:14", "[tensor([1.1000, 1.1000])]"]
    assert "Missing operator: [0] muladd_nb::mymuladd.out" in run.stderr


@with_executorch
def test_wrong_arguments_are_refused_and_the_process_goes_on(capfd):
    n = torch.export.Dim("n", min=1, max=9)
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    run = forward(pte(Both(), (a, b), ({0: n}, {0: n})))
    for args, says in (
        ((a, torch.randn(5, 3)), "mymuladd.out: a and b must have the same shape, got [4, 3] and [5, 3]"),
        ((a.double(), b.double()), "Input 0 has unexpected scalar type: expected Float but was Double"),
        ((a, b.t().contiguous().t()), "Input 1 for method forward should be contiguous or channels-last"),
        ((a, b[:, 0].clone()), "Attempted to change the tensor rank which is immutable: old=2, new=1"),
        ((torch.randn(10, 3), torch.randn(10, 3)), "maximum capacity of 27 elements to 30 elements"),
        ((a,), "Invalid number of inputs provided. Expected 2, but got 1"),
    ):
        with pytest.raises(RuntimeError) as raised:
            run(*args)
        assert says in str(raised.value) + capfd.readouterr().err
    assert same_bits(run(a, b)[0], Both()(a, b))


# Each line has what a wrong implementation in Python returns, its argument, and the message of the kernel.
WRONG = [
    ("a + b", torch.ones(3, dtype=torch.int32), "a must be float16, bfloat16, float32 or float64, got int32"),
    ("a + b", torch.ones(3, dtype=torch.bool), "a must be float16, bfloat16, float32 or float64, got bool"),
    ("(a + b)[:2]", torch.ones(3), "a and out must have the same shape, got [3] and [2]"),
    ("(a + b).double()", torch.ones(3), "a and out must have the same dtype, got float32 and float64"),
]
# If Python registers the operators, without checks, a program with wrong arguments can be exported.
EXPORT_WRONG = f"""
import torch
from executorch.exir import to_edge
for name, arguments, function in (
    ("mymuladd", "(Tensor a, Tensor b, float c) -> Tensor", lambda a, b, c: eval(result)),
    ("mymuladd.out", "(Tensor a, Tensor b, float c, *, Tensor(a!) out) -> Tensor(a!)", lambda a, b, c, *, out: out),
):
    torch.library.define(f"muladd_nb::{{name}}", arguments)
    torch.library.impl(f"muladd_nb::{{name}}", "CompositeExplicitAutograd", function)
class Model(torch.nn.Module):
    def forward(self, a):
        return torch.ops.muladd_nb.mymuladd(a, a, 0.5)
for place, (result, dtype) in enumerate({[(result, str(a.dtype)) for result, a, _ in WRONG]}):
    program = torch.export.export(Model(), (torch.ones(3, dtype=eval(dtype)),))
    open(f"{{place}}.pte", "wb").write(to_edge(program).to_executorch().buffer)
"""


@with_executorch
def test_a_program_that_only_the_kernel_refuses(tmp_path, capfd):
    exported = python(EXPORT_WRONG, cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    for place, (_, a, says) in enumerate(WRONG):
        run = forward((tmp_path / f"{place}.pte").read_bytes())
        with pytest.raises(RuntimeError, match="failed with error 0x12"):
            run(a)
        assert f"mymuladd.out: {says}" in capfd.readouterr().err


@with_executorch
def test_an_instruction_set_that_cannot_be_is_no_abort():
    code = f"""
import torch, muladd_nb.executorch
from executorch.runtime import Runtime
muladd_nb.executorch.load()
program = Runtime.get().load_program({pte(Both(), (torch.ones(2), torch.ones(2)))!r})
try:
    program.load_method("forward").execute([torch.ones(2), torch.ones(2)])
except RuntimeError as error:
    print(error)
"""
    # We set the variable after the import, which would refuse it. The runtime's library reads it at its first call.
    run = python("import os, muladd_nb.executorch; os.environ['MULADD_NB_SIMD'] = 'sse9'" + code)
    assert run.stdout.strip() == "method->execute() failed with error 0x12"
    assert "MULADD_NB_SIMD must be one of" in run.stderr


@with_executorch
def test_docstrings():
    names = {"muladd_nb": muladd_nb, "torch": torch}
    result = doctest.testmod(muladd_nb.executorch, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
