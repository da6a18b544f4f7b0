"""Tensor subclasses and special tensors are kept, handled, or refused with advice."""

import pytest
import torch
from calls import RETURNING, WRITES
from conftest import each
from torch.masked import MaskedTensor
from torch.testing._internal.two_tensor import TwoTensor

import muladd_nb

ops = torch.ops.muladd_nb


def jagged(device, *lengths, offsets=None):
    values = torch.randn(sum(lengths), 4, device=device)
    if offsets is None:
        offsets = torch.tensor([0, *lengths], device=device).cumsum(0)
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def pair(device, *lengths):
    a = jagged(device, *lengths)
    return a, jagged(device, *lengths, offsets=a.offsets())


# ---- Subclasses that PyTorch knows nothing about


@each(RETURNING)
def test_subclasses_are_kept(device, call):
    class Plain(torch.Tensor):
        pass

    x = torch.randn(3, device=device)
    assert type(call(x.as_subclass(Plain), x)) is Plain
    wrapped = call(TwoTensor(x, 2 * x), TwoTensor(x, x))
    assert type(wrapped) is TwoTensor
    assert torch.equal(wrapped.a, call(x, x))
    assert torch.equal(wrapped.b, call(2 * x, x))


@each(WRITES)
@pytest.mark.parametrize("source", ["plain", "itself"])
def test_a_write_into_a_wrapper_subclass_is_counted(device, call, source):
    out = TwoTensor(torch.randn(3, device=device), torch.randn(3, device=device)).requires_grad_() * 2
    loss = (out * out).sum()
    x = torch.randn(3, device=device) if source == "plain" else out.detach()
    of_b = x if source == "plain" else x.b
    expected = call.expected(of_b, of_b)
    with torch.no_grad():
        call(x, out=out)
    torch.testing.assert_close(out.b, expected)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@each(WRITES)
def test_a_write_from_a_wrapper_subclass_into_a_plain_tensor_is_counted(device, call):
    x = TwoTensor(torch.randn(3, device=device), torch.randn(3, device=device))
    out = torch.randn(3, device=device)
    version = out._version
    call(torch.randn(3, device=device), x, out=out)
    assert out._version == version + 1


# ---- Jagged nested tensors


@each(RETURNING)
def test_jagged_under_autocast(device, call):
    a, b = pair(device, 3, 1, 5)
    with torch.autocast(device, torch.bfloat16):
        result, expected = call(a, b), call(a.values(), b.values())
    assert result.dtype == torch.bfloat16
    assert torch.equal(result.values(), expected)


@each(RETURNING)
def test_jagged_gradients(device, call):
    leaves = [x.requires_grad_() for x in pair(device, 3, 1, 5)][: len(call.names)]
    gradients = (torch.autograd.grad(f(*leaves).sin().sum(), leaves) for f in (call, call.expected))
    torch.testing.assert_close(*([x.values() for x in of_one] for of_one in gradients))


@each(RETURNING)
def test_jagged_compiled(device, call):
    compiled = torch.compile(lambda a, b: call(a.sin(), b), fullgraph=True, backend="aot_eager")
    for lengths in ((3, 1, 5), (2, 2, 2)):
        a, b = (x.requires_grad_() for x in pair(device, *lengths))
        result = compiled(a, b)
        torch.testing.assert_close(result.values(), call.expected(a.sin(), b).values())
        (gradient,) = torch.autograd.grad(result.sum(), a)
        assert gradient.shape == a.shape


def with_lengths(device, offsets, lengths):
    values = torch.randn(12, 4, device=device)
    return torch.nested.nested_tensor_from_jagged(values, torch.tensor(offsets, device=device), lengths=lengths)


def check_compiled_with_lengths(device, call, backend):
    lengths = torch.tensor([2, 3], device=device)
    a = with_lengths(device, [0, 6, 12], lengths)
    b = torch.nested.nested_tensor_from_jagged(torch.randn_like(a.values()), a.offsets(), lengths=lengths)
    compiled = torch.compile(call, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(a, b).unbind(), call.expected(a, b).unbind())
    if device == "cpu" and len(call.names) > 1:  # on a GPU, the process could not go on after that
        x, y = call.names[:2]
        sentence = f"{x} and {y} must have the same offsets, and not only the same lengths"
        with pytest.raises(RuntimeError, match=sentence):
            compiled(a, with_lengths(device, [3, 8, 12], lengths))


@each(RETURNING)
def test_jagged_with_lengths_compiled(device, call):
    """The program compares the offsets at run time, because for the compiler two inputs have two offset tensors."""
    check_compiled_with_lengths(device, call, "aot_eager")


@pytest.mark.slow
def test_jagged_with_lengths_compiled_by_inductor():
    check_compiled_with_lengths("cpu", RETURNING[0], "inductor")


@each(WRITES)
def test_jagged_out(device, call):
    a, b = pair(device, 3, 1, 5)
    out = jagged(device, 3, 1, 5, offsets=a.offsets())
    version = out._version
    call(a, b, out=out)
    torch.testing.assert_close(out.values(), call.expected(a, b).values())
    assert out._version == version + 1


def test_jagged_views(device):
    a, b = pair(device, 3, 1, 5)
    transposed = ops.mymul(a.transpose(1, 2), b.transpose(1, 2))
    assert transposed.shape == a.transpose(1, 2).shape
    assert torch.equal(transposed.transpose(1, 2).values(), a.values() * b.values())
    lengths = torch.tensor([3, 2, 4], device=device)
    holes = torch.nested.narrow(
        torch.randn(3, 6, 4, device=device), 1, torch.zeros_like(lengths), lengths, torch.jagged
    )
    for ours, aten in zip(ops.mymul(holes, holes).unbind(), (holes * holes).unbind(), strict=True):
        assert torch.equal(ours, aten)


def test_jagged_of_different_shapes_are_refused(device):
    a, b = pair(device, 3, 1, 5)
    other, plain = jagged(device, 3, 1, 5), torch.randn(3, 5, 4, device=device)
    for b_is, got in (other, "j"), (plain, "5"):
        same = rf"mymuladd: a and b must have the same shape, got \[3, j\d+, 4\] and \[3, {got}"
        with pytest.raises(RuntimeError, match=same):
            ops.mymuladd(a, b_is, 0.5)
    with pytest.raises(RuntimeError, match=r"mymul: a and b must have the same shape, got \[3, 5, 4\] and \[3, j"):
        muladd_nb.mymul(plain, a)
    with pytest.raises(RuntimeError, match=r"mymuladd_out: a and out must have the same shape, got \[3, j"):
        muladd_nb.mymuladd(a, b, 0.5, out=other)
    with pytest.raises(RuntimeError, match="mymul: a and b must have the same dtype, got float32 and float64"):
        ops.mymul(a, b.double())
    lengths = torch.tensor([2, 3], device=device)
    x, y = (with_lengths(device, offsets, lengths) for offsets in ([0, 6, 12], [3, 8, 12]))
    with pytest.raises(RuntimeError, match="mymul: a and b must have the same offsets, and not only the same lengths"):
        ops.mymul(x, y)
    with pytest.raises(RuntimeError, match="mymul: b must be a dense tensor, got the layout torch.sparse_coo"):
        ops.mymul(a, plain.to_sparse())


# ---- Tensors whose elements are computed when they are read


@each(WRITES)
@pytest.mark.parametrize("same", [False, True])
def test_lazily_negated_out(device, call, same):
    a = torch.randn(3, device=device)
    out = torch.randn(3, dtype=torch.complex64, device=device).conj().imag
    b = out if same else torch.randn(3, device=device)
    expected, version = call.expected(a, b), out._version
    call(a, b, out=out)
    torch.testing.assert_close(out, expected)
    assert out._version == version + 1


# ---- Tensors that are refused

ONLY_ON_THE_CPU = ("mkldnn",)
REFUSED = {
    "sparse_coo": (lambda x: x.to_sparse(), r"must be a dense tensor, got the layout torch.sparse_coo; call to_dense"),
    "sparse_csr": (lambda x: x.to_sparse_csr(), "must be a dense tensor, got the layout torch.sparse_csr; call to_den"),
    "mkldnn": (lambda x: x.to_mkldnn(), "must be a dense tensor, got the layout torch._mkldnn; call to_dense"),
    "quantized": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        r"must not be quantized; call dequantize\(\) first",
    ),
    "strided nested": (
        lambda x: torch.nested.nested_tensor([x, x[:1]], layout=torch.strided),
        "must not be a nested tensor of the strided layout; make it with layout=torch.jagged",
    ),
    "masked": (lambda x: MaskedTensor(x, x > 0), r"must not be masked; call it on get_data\(\), and keep the mask"),
    "complex": (lambda x: x.to(torch.complex64), "must be float16, bfloat16, float32 or float64, got complex64"),
    "integer": (lambda x: x.to(torch.int32), "must be float16, bfloat16, float32 or float64, got int32"),
    "bool": (lambda x: x > 0, "must be float16, bfloat16, float32 or float64, got bool"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_refused(device, kind, autocast):
    make, complaint = REFUSED[kind]
    x = make(torch.randn(3, 3, device="cpu" if kind in ONLY_ON_THE_CPU else device))
    calls = [
        ("mymuladd", lambda: ops.mymuladd(x, x, 0.5)),
        ("mymul", lambda: muladd_nb.mymul(x, x)),
        ("mymuladd_out", lambda: muladd_nb.mymuladd(x, x, 0.5, out=x)),
    ]
    if kind in ("sparse_coo", "sparse_csr", "complex", "integer", "bool"):
        calls.append(("mymuladd", lambda: ops.mymuladd(x.to("meta"), x.to("meta"), 0.5)))
    with torch.autocast(device, torch.bfloat16, enabled=autocast):
        for name, call in calls:
            with pytest.raises(RuntimeError, match=f"^{name}: a {complaint}"):
                call()


@pytest.mark.parametrize("kind", ["sparse_coo", "sparse_csr", "mkldnn", "quantized", "strided nested", "masked"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_refused_argument_is_named(device, kind):
    make, complaint = REFUSED[kind]
    device = "cpu" if kind in ONLY_ON_THE_CPU else device
    dense = torch.randn(3, 3, device=device)
    x = make(dense.clone())
    with pytest.raises(RuntimeError, match=f"^mymuladd: b {complaint}"):
        muladd_nb.mymuladd(dense, x, 0.5)
    with pytest.raises(RuntimeError, match=f"^mymul.out: out {complaint}"):
        ops.mymul.out(dense, dense, out=x)
