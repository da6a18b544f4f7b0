"""Programs that leave the process: torch.export, AOTInductor, ONNX, TorchScript and fx."""

import copy
import io
import math
import pickle

import pytest
import torch
from conftest import on_cuda
from torch.fx.experimental.proxy_tensor import make_fx

import muladd_nb

ops = torch.ops.muladd_nb


class Model(torch.nn.Module):
    def forward(self, a, b):
        product = muladd_nb.mymul(a.sin(), b)
        out = torch.empty_like(a)
        muladd_nb.mymuladd(product, b, 0.5, out=out)
        return ops.mymuladd(out, b, -1.0)


class Functional(torch.nn.Module):
    def forward(self, a, b):
        return ops.mymuladd(a, b, 0.1), muladd_nb.mymul(a, b)


class BySize(torch.nn.Module):
    def forward(self, a, b):
        return muladd_nb.mymuladd(a, b, a.shape[0])


def inputs(n, device, dtype=torch.float32):
    return tuple(torch.randn(n, 3, device=device).to(dtype) for _ in range(2))


def export(model, device, strict=False):
    n = torch.export.Dim("n", min=2)
    return torch.export.export(model, inputs(4, device), dynamic_shapes=({0: n}, {0: n}), strict=strict)


@pytest.fixture(params=["strict", "non_strict"])
def program(request, device):
    return export(Model(), device, strict=request.param == "strict")


def test_an_exported_program_holds_the_operators(program):
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert {ops.mymul.default, ops.mymuladd.default} <= set(targets)
    assert any(ops.mymuladd_out.default in (node.target, *node.args) for node in program.graph.nodes)


def test_an_exported_program_is_saved_and_loaded(program, device):
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    a, b = inputs(9, device)
    assert torch.equal(torch.export.load(buffer).module()(a, b), Model()(a, b))


def test_an_exported_program_is_decomposed_and_copied(program, device):
    a, b = inputs(9, device)
    assert torch.equal(program.run_decompositions().module()(a, b), Model()(a, b))
    assert torch.equal(copy.deepcopy(program).module()(a, b), Model()(a, b))


@pytest.mark.parametrize("strict", [False, True])
def test_c_may_be_a_dynamic_size(device, strict):
    program = export(BySize(), device, strict=strict)
    a, b = inputs(9, device)
    assert torch.equal(program.module()(a, b), BySize()(a, b))
    graph = make_fx(BySize(), tracing_mode="symbolic")(*inputs(4, device))
    assert torch.equal(graph(a, b), BySize()(a, b))


def test_what_the_contract_forbids_is_not_exported(device):
    a, b = torch.randn(4, 3, device=device), torch.randn(3, device=device)
    with pytest.raises(RuntimeError, match="mymuladd: a and b must have the same shape"):
        torch.export.export(Functional(), (a, b))


def test_aot_inductor(device, tmp_path):
    program = export(Model(), device)
    # Precompiling headers pays only if many programs use them; this test compiles one.
    options = {"aot_inductor.precompile_headers": False, "aot_inductor.compile_wrapper_opt_level": "O0"}
    package = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "model.pt2"), inductor_configs=options
    )
    model = torch._inductor.aoti_load_package(package)
    for n in (2, 9):
        a, b = inputs(n, device)
        torch.testing.assert_close(model(a, b), Model()(a, b))


class EachOperator(Functional):
    def forward(self, a, b):
        return *super().forward(a, b), muladd_nb.mymuladd(a, b, a.shape[0]), muladd_nb.mymuladd(a, b, a.neg())


@pytest.fixture
def table():
    """Return the translations of our operators to ONNX."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install '.[onnx]'")
    import muladd_nb.onnx

    return muladd_nb.onnx.translation_table


def run_onnx(program, a, b, folder):
    """Return the results of an ONNX program that ONNX Runtime computes."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[test]'")
    program.save(folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names = [argument.name for argument in session.get_inputs()]
    return map(torch.from_numpy, session.run(None, dict(zip(names, (a.numpy(), b.numpy()), strict=True))))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_onnx(dtype, table, tmp_path):
    model = EachOperator().eval()
    n = torch.export.Dim("n", min=2)
    program = torch.onnx.export(
        model, inputs(4, "cpu", dtype), dynamo=True, dynamic_shapes=({0: n}, {0: n}), custom_translation_table=table
    )
    a, b = inputs(900, "cpu", dtype)
    for result, expected in zip(run_onnx(program, a, b, tmp_path), model(a, b), strict=True):
        torch.testing.assert_close(result, expected)
        assert dtype != torch.float16 or torch.equal(result, expected)


def test_onnx_of_an_operator_by_its_formula(tmp_path):
    """An author exports an operator without a translation in this way."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install '.[onnx]'")
    a, b = inputs(4, "cpu", torch.float32)
    formulas = {ops.mymuladd.default: lambda a, b, c: a * b + c, ops.mymul.default: torch.mul}
    program = torch.export.export(Functional().eval(), (a, b)).run_decompositions(formulas)
    results = tuple(run_onnx(torch.onnx.export(program, dynamo=True), a, b, tmp_path))
    torch.testing.assert_close(results, Functional()(a, b))


@pytest.mark.slow
@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_aotinductor_takes_a_number_that_is_not_finite_where_the_operator_is_no_call(number):
    """torch 2.13 writes an infinite number of a call as a string, and cannot read it. A tensor avoids this."""

    class Fused(torch.nn.Module):
        def forward(self, x):
            return muladd_nb.mymuladd(x, x, torch.full_like(x, number)) + muladd_nb.mymuladd(x.sin(), x, 0.5).cos()

    class Called(torch.nn.Module):
        def forward(self, x):
            return muladd_nb.mymuladd(x, x, number)

    def compiled(model):
        package = torch._inductor.aoti_compile_and_package(torch.export.export(model, (torch.rand(4),)))
        return torch._inductor.aoti_load_package(package)(torch.rand(4))

    assert not compiled(Fused()).isfinite().any()
    if torch.__version__.startswith("2.13"):
        with pytest.raises(RuntimeError, match="type must be number, but is string"):
            compiled(Called())


def test_onnx_knows_bfloat16(table):
    program = torch.onnx.export(
        Functional().eval(), inputs(4, "cpu", torch.bfloat16), dynamo=True, custom_translation_table=table
    )
    operations = [node.op_type for node in program.model_proto.graph.node]
    assert operations.count("Cast") == 4  # two inputs to float32, two results back


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_script(device):
    @torch.jit.script
    def scripted(a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
        out = torch.empty_like(a)
        torch.ops.muladd_nb.myadd_out(a, b, out)
        return torch.ops.muladd_nb.mymuladd(torch.ops.muladd_nb.mymul(a, out), b, c)

    a, b = inputs(5, device)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    expected = ops.mymuladd(ops.mymul(a, a + b), b, 0.25)
    assert torch.equal(scripted(a, b, 0.25), expected)
    assert torch.equal(torch.jit.load(buffer)(a, b, 0.25), expected)


def test_symbolic_trace(device):
    class Raw(torch.nn.Module):
        def forward(self, a, b):
            return ops.mymuladd(a, ops.mymul(a, b), 0.5)

    graph = torch.fx.symbolic_trace(Raw())
    assert [node.target for node in graph.graph.nodes if node.op == "call_function"] == [ops.mymul, ops.mymuladd]
    a, b = inputs(5, device)
    assert torch.equal(graph(a, b), Raw()(a, b))
    assert torch.equal(pickle.loads(pickle.dumps(graph))(a, b), Raw()(a, b))
    written = torch.fx.symbolic_trace(lambda a, b, out: muladd_nb.mymuladd(a, b, 0.5, out=out))
    assert torch.equal(written(a, b, torch.empty_like(a)), ops.mymuladd(a, b, 0.5))


def test_symbolic_trace_leaves_open_whether_c_is_a_tensor(device):
    graph = torch.fx.symbolic_trace(lambda a, b, c: muladd_nb.mymuladd(a, b, c))
    written = torch.fx.symbolic_trace(lambda a, b, c, out: muladd_nb.mymuladd(a, b, c, out=out))
    a, b = inputs(5, device)
    for c in (0.5, torch.ones_like(a)):
        expected = muladd_nb.mymuladd(a, b, c)
        assert torch.equal(pickle.loads(pickle.dumps(graph))(a, b, c), expected)
        assert torch.equal(written(a, b, c, torch.empty_like(a)), expected)
    c = torch.ones_like(a, requires_grad=True)
    graph(a, b, c).sum().backward()
    assert torch.equal(c.grad, torch.ones_like(a))


@on_cuda()
def test_an_exported_program_moves_to_the_gpu():
    from torch.export.passes import move_to_device_pass

    program = move_to_device_pass(export(Model(), "cpu"), "cuda")
    a, b = inputs(9, "cuda")
    assert torch.equal(program.module()(a, b), Model()(a, b))
