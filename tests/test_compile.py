"""torch.compile and export: one graph, no break, forward and backward, and writes in place."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import muladd_nb

ops = torch.ops.muladd_nb


def test_forward_and_backward(device, dtype):
    def f(a, b):
        return muladd_nb.mymuladd(a.sin(), b, 0.5).cos().sum()

    a, b = (torch.randn(5, 7, device=device).to(dtype).requires_grad_() for _ in range(2))
    compiled = torch.compile(f, fullgraph=True)
    torch.testing.assert_close(
        torch.autograd.grad(compiled(a, b), (a, b)), torch.autograd.grad(f(a, b), (a, b)), rtol=2e-2, atol=2e-2
    )


def test_dynamic_shapes_compile_once(device):
    counter = CompileCounter()
    compiled = torch.compile(lambda a, b: ops.mymuladd(a, b, 0.5) + 1, backend=counter, fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        a, b = torch.randn(n, 4, device=device), torch.randn(n, 4, device=device)
        assert torch.equal(compiled(a, b), ops.mymuladd(a, b, 0.5) + 1)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda a, b, out: ops.myadd_out(a, b, out),
        lambda a, b, out: ops.mymuladd_out(a, b, 0.5, out),
        lambda a, b, out: muladd_nb.mymuladd(a, b, 0.5, out=out),
        lambda a, b, out: muladd_nb.mymul(a, b, out=out),
    ],
    ids=["myadd_out", "mymuladd_out", "public_mymuladd", "public_mymul"],
)
def test_mutating_operators(device, write):
    def f(a, b, out):
        write(a, b, out)
        return out + 1

    a, b, out, compiled_out = (torch.randn(5, 7, device=device) for _ in range(4))
    expected = f(a, b, out)
    assert torch.equal(torch.compile(f, fullgraph=True)(a, b, compiled_out), expected)
    assert torch.equal(compiled_out, out)


def test_strides_survive_compilation(device):
    a = torch.randn(3, 4, device=device).t()
    b = torch.randn(4, 3, device=device)
    result = torch.compile(lambda a, b: ops.mymuladd(a, b, 0.5), fullgraph=True)(a, b)
    assert result.stride() == torch.empty_like(a).stride()


@pytest.mark.parametrize("strict", [False, True])
def test_export(device, strict):
    class Model(torch.nn.Module):
        def forward(self, a, b):
            return muladd_nb.mymuladd(a, b, 0.5)

    a, b = torch.randn(4, 3, device=device), torch.randn(4, 3, device=device)
    n = torch.export.Dim("n", min=2)
    program = torch.export.export(Model(), (a, b), dynamic_shapes=({0: n}, {0: n}), strict=strict)
    assert [node.target for node in program.graph.nodes if node.op == "call_function"] == [ops.mymuladd.default]
    x = torch.randn(9, 3, device=device)
    assert torch.equal(program.module()(x, x), ops.mymuladd(x, x, 0.5))


def test_sizes_that_depend_on_data(device):
    def f(x):
        chosen = x[x > 0]
        out = torch.empty_like(chosen)
        ops.mymuladd_out(chosen, chosen, 1.0, out)
        return out + ops.mymul(chosen, chosen)

    x = torch.randn(20, device=device)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(torch.compile(f, fullgraph=True)(x), f(x))
