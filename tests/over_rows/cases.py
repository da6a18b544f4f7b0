"""Operators over rows against torch, or against float64, in every mode and dtype."""

import itertools
import re
import subprocess
import sys
from contextlib import nullcontext

import pytest
import row_ops
import torch
import torch.distributed as dist
import torch.nn.functional as F
from conftest import CUDA
from torch._dynamo import compiled_autograd
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode

ops = torch.ops.row_ops
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}
LENGTHS = [0, 1, 7, 8, 9, 31, 32, 33, 100, 1024, 1025, 5000]
SCALE, EPS, POLY = 0.5, 1e-5, (0.3, 0.4, 0.5, 0.1)


def rms(x, w):
    return x * (x.square().mean(-1, True) + EPS).rsqrt() * w


def causal(x):
    later = torch.ones(x.shape[-2:], device=x.device).triu(1).bool()
    return (x * SCALE).masked_fill(later, -float("inf")).softmax(-1)


def entropy(x):
    y = x.softmax(-1)
    return y, torch.special.entr(y).sum(-1)


def poly(x):
    def normalised(y):
        return y * (y.square().mean(-1, True) + 1e-6).rsqrt()

    a, b, c, bias = POLY
    return a * normalised(x**3) + b * normalised(x**2) + c * normalised(x) + bias


def cross_entropy(x):
    label = torch.arange(x.shape[:-1].numel(), device=x.device).reshape(x.shape[:-1]) % x.shape[-1]
    label[..., 0] = -100
    return x, label


def variance(x, s):
    return (x - x.mean(-1, True)) * s[..., None], x.var(-1, correction=0) * s


def normal(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


# For each case: the operator, its reference, and the shapes of its tensors for a length of rows.
CASES = {
    "softmax": (ops.softmax, lambda x: x.softmax(-1), lambda n: [(4, 3, n)]),
    "softmax of dim 1": (lambda x: ops.softmax(x, 1), lambda x: x.softmax(1), lambda n: [(4, n, 3)]),
    "log_softmax": (lambda x: ops.log_softmax(x, 0), lambda x: x.log_softmax(0), lambda n: [(n, 5)]),
    "logsumexp": (ops.logsumexp, lambda x: x.logsumexp(-1), lambda n: [(4, n)]),
    "logsumexp kept": (
        lambda x: ops.logsumexp(x, -2, keepdim=True),
        lambda x: x.logsumexp(-2, True),
        lambda n: [(2, n, 3)],
    ),
    "rms_norm": (ops.rms_norm, rms, lambda n: [(4, 3, n), (n,)]),
    "rms_norm, a weight for each": (ops.rms_norm, rms, lambda n: [(4, 3, n), (3, n)]),
    "rms_norm of a shared row": (ops.rms_norm, rms, lambda n: [(n,), (4, 3, n)]),  # the row's gradient has two parts
    "rms_norm, one weight": (ops.rms_norm, rms, lambda n: [(4, 3, n), (4, 1, 1)]),
    "softmax and entropy": (ops.softmax_entropy, entropy, lambda n: [(5, n)]),
    "layer_norm": (ops.layer_norm, lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), lambda n: [(5, n), (n,), (n,)]),
    "rms_norm of two dimensions": (
        lambda x, w: ops.rms_norm_stats(x, x.shape[-2:], w, EPS)[0],
        lambda x, w: rms(x.flatten(-2), w.flatten(-2)).unflatten(-1, x.shape[-2:]),
        lambda n: [(5, 3, n), (3, n)],
    ),
    "layer_norm without bias": (
        lambda x, w: ops.layer_norm(x, w, None),
        lambda x, w: F.layer_norm(x, x.shape[-1:], w),
        lambda n: [(5, n), (n,)],
    ),
    "layer_norm without weight": (
        lambda x, b: ops.layer_norm(x, None, b),
        lambda x, b: F.layer_norm(x, x.shape[-1:]) + b,
        lambda n: [(5, n), (n,)],
    ),
    "l2_normalize": (ops.l2_normalize, lambda x: F.normalize(x, dim=-1), lambda n: [(5, n)]),
    "cross_entropy": (
        lambda x: ops.cross_entropy(*cross_entropy(x), -100, 0.1),
        lambda x: F.cross_entropy(*cross_entropy(x), label_smoothing=0.1, reduction="none"),
        lambda n: [(6, n)],
    ),
    "causal_softmax": (lambda x: ops.causal_softmax(x, SCALE), causal, lambda n: [(2, n, n)]),
    "poly_norm": (lambda x: ops.poly_norm(x, *POLY), poly, lambda n: [(5, n)]),
    "scaled_variance": (ops.scaled_variance, variance, lambda n: [(4, 3, n), (4, 3)]),
    "scaled_squares of dim 1": (
        lambda x, s: ops.scaled_squares(x, s, 1),
        lambda x, s: x.square().sum(1) * s,
        lambda n: [(4, n, 3), (4, 3)],
    ),
    "cosine_similarity": (
        ops.cosine_similarity,
        lambda x, y: (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1)).sqrt(),
        lambda n: [(4, n), (4, n)],
    ),
    "maximum": (lambda x: ops.max_with_place(x)[0], lambda x: x.amax(-1), lambda n: [(4, n)]),
}
EVERY = pytest.mark.parametrize("name", CASES)


def made(name, n, dtype=torch.float64):
    op, reference, shapes = CASES[name]
    return op, reference, [normal(*shape, dtype=dtype) for shape in shapes(n)]


def close(got, expected, tolerance=1e-9):
    got, expected = (x if isinstance(x, tuple) else (x,) for x in (got, expected))
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x.double(), y.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@EVERY
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_results(name, dtype):
    for n in LENGTHS:
        if n == 0 and name in ("maximum", "cross_entropy", "layer_norm without bias"):  # torch refuses some of these
            continue
        if name == "causal_softmax" and n > 100:
            continue
        op, reference, args = made(name, n, dtype)
        # The variance of one element is 0, so in 16 bits the result depends only on eps and rounding.
        close(op(*args), reference(*(x.double() for x in args)), TOLERANCE[dtype])


def with_gradients(op, args, device):
    """Compute the results of an operator and all gradients on a device, and return copies on the CPU."""
    args = [x.to(device).requires_grad_() for x in args]
    results = op(*args)
    results = results if isinstance(results, tuple) else (results,)
    grads = [normal(*y.shape, dtype=y.dtype).to(device) for y in results]
    return [x.detach().cpu() for x in (*results, *torch.autograd.grad(results, args, grads))]


@pytest.mark.skipif(not CUDA, reason="no GPU, or no kernels for one")
@EVERY
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_cuda_has_the_bits_of_the_cpu(name, dtype):
    for n in [*LENGTHS, 70_000]:  # such a row does not fit in shared memory
        if (n > 100 and name == "causal_softmax") or (n == 0 and name == "cross_entropy"):  # no place for a label
            continue
        op, _, args = made(name, n, dtype)
        for of_cpu, of_cuda in zip(*(with_gradients(op, args, of) for of in ("cpu", "cuda")), strict=True):
            torch.testing.assert_close(of_cuda, of_cpu, rtol=0, atol=0, equal_nan=True, msg=f"rows of {n}")


@EVERY
def test_strides_do_not_matter(name):
    op, _, args = made(name, 33)
    expected = op(*args)
    close(op(*(torch.empty(x.shape[::-1]).double().T.copy_(x) if x.dim() == 2 else x for x in args)), expected, 0)
    spread = [torch.zeros(*x.shape, 2, dtype=x.dtype)[..., 0].copy_(x) for x in args]
    close(op(*spread), expected, 0)


@EVERY
@pytest.mark.parametrize("n", [1, 9, 40])
def test_derivatives(name, n):
    op, reference, args = made(name, n)
    args = [x.requires_grad_() for x in args]
    results = [y if isinstance(y, tuple) else (y,) for y in (op(*args), reference(*args))]
    grads = [normal(*y.shape) for y in results[0]]
    first = [torch.autograd.grad(y, args, grads, create_graph=True) for y in results]
    close(*first)
    tangents = tuple(normal(*x.shape) + 1 for x in args)
    plain = tuple(x.detach() for x in args)
    close(*(torch.func.jvp(f, plain, tangents)[1] for f in (op, reference)))
    if name != "maximum":  # torch has no second derivative of amax
        second = []
        for gradients in first:  # the gradient of a bias is constant
            pairs = [(y, u) for y, u in zip(gradients, tangents, strict=True) if y.requires_grad]
            ys, us = zip(*pairs, strict=True)
            second.append(torch.autograd.grad(ys, args, us, materialize_grads=True))
        close(*second, 1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_only_the_gradient_that_is_asked_for(dtype):
    for place in (0, 1):
        x, w = normal(40, 300, dtype=dtype), normal(300, dtype=dtype)
        args = [x, w]
        args[place].requires_grad_()
        expected = [y.detach().double().requires_grad_() for y in args]
        ops.rms_norm(*args).sum().backward()
        rms(*expected).sum().backward()
        close(args[place].grad, expected[place].grad, 10 * TOLERANCE[dtype])
        assert args[1 - place].grad is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_a_float32_weight_beside_elements_of_16_bits(dtype, step):
    x, cotangent = normal(2, 40, 300, dtype=dtype)
    w = normal(300 * step, dtype=torch.float32)[::step]
    args, wide = ([y.detach().requires_grad_() for y in pair] for pair in ((x, w), (x.float(), w)))
    result, expected = ops.rms_norm(*args), ops.rms_norm(*wide)
    assert result.dtype == dtype
    close(result, expected.to(dtype), 0)
    gradients = torch.autograd.grad(result, args, cotangent, create_graph=True)
    of_wide = torch.autograd.grad(expected, wide, cotangent.float(), create_graph=True)
    assert [y.dtype for y in gradients] == [dtype, torch.float32]
    close(gradients, tuple(y.to(z.dtype) for y, z in zip(of_wide, gradients, strict=True)), 0)
    second = torch.autograd.grad(gradients[1].square().sum(), args)
    assert [y.dtype for y in second] == [dtype, torch.float32]

    compiled = torch.compile(ops.rms_norm, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, w), result)
    _, tangent = torch.func.jvp(lambda w: ops.rms_norm(x, w), (w,), (w,))
    assert torch.equal(tangent, result)  # it is linear in w
    assert torch.equal(torch.vmap(ops.rms_norm, (None, 0))(x, torch.stack([w, w])), torch.stack([result, result]))
    residual = normal(40, 300, dtype=torch.float32)
    total = x.float() + residual
    ops.fused_add_rms_norm(x, residual, w, EPS)
    assert torch.equal(residual, total)
    with pytest.raises(RuntimeError, match="rms_norm.out: x and out must have the same dtype"):
        ops.rms_norm(x, w, out=x.float())
    for device in ("cpu", "meta"):
        for first, other in ((torch.float32, dtype), (dtype, torch.float64)):
            bad = [y.detach().to(device, own) for y, own in ((x, first), (w, other))]
            with pytest.raises(RuntimeError, match="rms_norm: x and weight must have the same dtype"):
                ops.rms_norm(*bad)


@EVERY
def test_batches(name):
    op, reference, args = made(name, 9)
    stacked = [torch.stack([x, x + 1, 2 * x], 1) for x in args]
    close(torch.vmap(op, 1)(*stacked), torch.vmap(reference, 1)(*stacked))
    dims = (1, *[None] * (len(args) - 1))
    first = (stacked[0], *args[1:])

    def total(f):
        def of(*xs):
            results = f(*xs)
            return sum(y.square().sum() for y in (results if isinstance(results, tuple) else (results,)))

        return torch.vmap(torch.func.grad(of, tuple(range(len(args)))), dims)

    close(total(op)(*first), total(reference)(*first))


@EVERY
def test_rows_without_elements(name):
    if name in ("cross_entropy", "scaled_variance"):  # no place for a label; the variance is NaN
        return
    op, _, args = made(name, 0)
    args = [x.requires_grad_() for x in args]
    results = op(*args)
    sum(y.sum() for y in (results if isinstance(results, tuple) else (results,))).backward()
    for x in args:
        assert not x.grad.any()
    y = torch.zeros(0, 1).as_strided((4, 3, 0), (0, 0, 0))
    assert ops.softmax(y).shape == y.shape


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_a_second_derivative_by_one_of_two_tensors(dim):
    x, scale = normal(3, 3, 3).requires_grad_(), normal(3, 3)
    for first, second in ((x, scale), (scale, x)):
        first, second = first.detach().requires_grad_(), second.detach()
        found = []
        for f in (ops.scaled_squares, lambda x, scale, dim: x.square().sum(dim) * scale):
            y = f(first, second, dim) if first.dim() == 3 else f(second, first, dim)
            (gradient,) = torch.autograd.grad(y.sin().sum(), first, create_graph=True)
            found.append((gradient, *torch.autograd.grad(gradient.sin().sum(), first)))
        close(*found)


def test_only_out_has_a_batch():
    x, out = normal(3, 4), torch.zeros(3, 4, 2).double()
    torch.vmap(lambda y: ops.softmax_out(x, 0, y), -1, None)(out)
    close(out, x.softmax(0)[..., None].expand(out.shape))


def test_a_sample_of_a_batch_is_refused_as_outside_of_vmap():
    x, w = normal(3, 4), normal(1, 4)
    for dim in (1, -2):
        with pytest.raises(RuntimeError, match=f"softmax: dim must be from -1 to 0, got {dim}"):
            torch.vmap(lambda y, dim=dim: ops.softmax(y, dim))(x)
    with pytest.raises(RuntimeError, match=r"softmax: x must have a dimension to reduce, got shape \[\]"):
        torch.vmap(ops.softmax)(x[0])
    with pytest.raises(RuntimeError, match=r"x must end in normalized_shape, \[1, 4\], got shape \[4\]"):
        torch.vmap(lambda y: ops.layer_norm_stats(y, [1, 4], w, w, EPS))(x)


def test_masks():
    x, mask = normal(3, 4, 33), normal(4, 33) > 0
    mask[1] = True
    expected = (x * SCALE).masked_fill(mask, -float("inf")).softmax(-1).nan_to_num()
    close(ops.masked_softmax(x, mask, SCALE), expected)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_quantisation_has_a_scale_for_each_row(dtype):
    x = normal(6, 100, dtype=dtype)
    x[2] = 0
    quantised, scale = ops.int8_quant(x)
    assert quantised.dtype == torch.int8 and scale.dtype == torch.float32
    close(scale, x.double().abs().amax(-1) / 127, 1e-6)
    assert (quantised * scale[:, None] - x.double()).abs().le(scale[:, None] * 0.501).all()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_two_tensors_are_updated_in_place(dtype):
    x, residual, w = (
        normal(6, 100, dtype=dtype),
        normal(3, 2, 100, dtype=dtype).reshape(6, 100),
        normal(100, dtype=dtype),
    )
    total = x.double() + residual.double()
    ops.fused_add_rms_norm(x, residual, w, EPS)
    close(residual, total, TOLERANCE[dtype])
    close(x, rms(total, w.double()), TOLERANCE[dtype])


@pytest.mark.parametrize("n", LENGTHS)
def test_products_and_reductions_of_an_own_join(n):
    x = 1 + normal(3, n, dtype=torch.float32) / (n + 1)
    close(ops.prod(x), x.double().prod(-1), 1e-5)
    close(ops.inf_norm(x), x.abs().amax(-1) if n else torch.zeros(3), 0)


@pytest.mark.parametrize("zeros", range(4))
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacfwd, torch.func.hessian])
def test_the_derivatives_of_a_product_are_right_beside_zeros(transform, zeros):
    x = normal(7)
    x[[1, 4, 5][:zeros]] = 0
    close(transform(ops.prod)(x), transform(lambda x: x.prod(-1))(x), 1e-12)


@pytest.mark.parametrize("on", ["cpu", "meta"])
def test_shapes_are_named_as_they_were_passed(on):
    logits, label = torch.ones(3, 4, device=on), torch.ones(2, dtype=torch.int64, device=on)
    with pytest.raises(
        RuntimeError, match=r"logits and label must have shapes that broadcast, got \[3, 4\] and \[2\]$"
    ):
        ops.cross_entropy(logits, label)


class Writes(torch.nn.Module):
    def forward(self, x, out):
        ops.logsumexp_out(x, -1, True, out)
        return out * 2


def test_an_exported_write_becomes_the_functional_operator():
    x, out = normal(3, 4), normal(3, 1)
    program = torch.export.export(Writes(), (x, out)).run_decompositions()
    assert ops.logsumexp.default in [node.target for node in program.graph.nodes]
    close(program.module()(x, out), 2 * x.logsumexp(-1, True))


def test_flops_of_a_write_are_those_of_the_elements():
    import row_ops.flops

    x, out = normal(3, 4), normal(3)
    for call in (lambda: ops.logsumexp(x), lambda: ops.logsumexp(x, out=out), lambda: row_ops.logsumexp(x, out=out)):
        with FlopCounterMode(display=False) as counter:
            call()
        assert counter.get_total_flops() == 12


def test_out_may_be_the_input():
    x = normal(5, 40)
    expected = x.softmax(-1)
    ops.softmax_out(x, -1, x)
    close(x, expected)


def test_places():
    x = torch.tensor([[1.0, 3.0, 3.0], [float("nan"), 5.0, float("nan")]])
    for got, expected in zip(ops.max_with_place(x), x.max(-1), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    ops.max_with_place(ours)[0].sum().backward()
    theirs.amax(-1).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)


def test_a_class_that_is_masked():
    logits, label = torch.tensor([[0.5, -float("inf"), 1.0]]).expand(2, 3), torch.tensor([0, 1])
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    losses = ops.cross_entropy(ours, label), F.cross_entropy(theirs, label, reduction="none")
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss[0].backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("label", [-1, 4, -101])
def test_a_label_out_of_range_is_refused(label):
    sentence = f"a place that is read lies outside of its row, which has 4 elements, got {label}"
    with pytest.raises(RuntimeError, match=f"^cross_entropy: {sentence}"):
        ops.cross_entropy(torch.randn(3, 4), torch.tensor([0, label, 1]))


@pytest.mark.parametrize("label", [-1, 4, 1 << 40])
def test_a_label_out_of_range_is_refused_where_others_are_not_read(label):
    x = torch.randn(2, 4)
    with pytest.raises(RuntimeError, match=f"^picked: a place that is read lies outside of its row, .* got {label}"):
        ops.picked(x, torch.tensor([0, label]), 0)
    close(ops.picked(x, torch.tensor([7, 2]), 7), torch.stack([torch.tensor(0.0), x[1, 2]]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64])
def test_the_least_of_integers(dtype):
    limits = torch.iinfo(dtype)
    x = torch.tensor([[5, 7, limits.min], [limits.min, 5, 7], [limits.max] * 3], dtype=dtype)
    for got, expected in zip(ops.least(x), (x.amin(-1), x.argmin(-1)), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.skipif(not CUDA, reason="no GPU, or no kernels for one")
def test_a_label_out_of_range_stops_the_kernel_on_cuda():
    x, label = "torch.randn(3, 4, device='cuda')", "torch.tensor([0, 4, 1], device='cuda')"
    code = f"import torch, row_ops; row_ops.cross_entropy({x}, {label}).cpu()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert run.returncode != 0 and "device-side assert" in run.stderr, run.stderr


def test_refusals():
    with pytest.raises(RuntimeError, match=r"softmax: dim must be from -2 to 1, got 2"):
        ops.softmax(torch.randn(3, 4), 2)
    with pytest.raises(RuntimeError, match=r"softmax: dim must be from -2 to 1, got 2"):
        ops.softmax(torch.randn(3, 4, device="meta"), 2)
    with pytest.raises(RuntimeError, match=r"softmax: x must have a dimension to reduce, got shape \[\]"):
        ops.softmax(torch.randn(()))
    with pytest.raises(RuntimeError, match="softmax: an operator over rows has no tangent of a tangent"):
        torch.func.jvp(lambda x: torch.func.jvp(ops.softmax, (x,), (x,))[1], (torch.ones(2),), (torch.ones(2),))
    w = torch.ones(4, requires_grad=True)
    gradients = torch.autograd.grad(ops.layer_norm_stats(w, [4], w, w, EPS)[0].sum(), w, create_graph=True)
    with pytest.raises(RuntimeError, match="layer_norm_stats: .* its kernel would take 12 tensors and return 3"):
        gradients[0].sum().backward()


@pytest.mark.parametrize(("of_logits", "of_label"), [((5,), (2, 3)), ((1, 5), (2, 3)), ((5,), (1,)), ((3, 5), (2, 1))])
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_vmap_of_labels_that_have_more_dimensions_than_the_logits(of_logits, of_label, in_dims):
    logits = normal(*(2,) * (in_dims[0] == 0), *of_logits)
    label = torch.arange(100).reshape(-1, *(1,) * len(of_label)).expand(-1, *of_label)[2:4] % 5
    label = label if in_dims[1] == 0 else label[0]
    each = [(logits[i] if in_dims[0] == 0 else logits, label[i] if in_dims[1] == 0 else label) for i in range(2)]

    def loss(x, y):
        return ops.cross_entropy(x, y)

    gradient = torch.func.grad(lambda x, y: loss(x, y).square().sum())
    for f in (loss, gradient):
        expected = torch.stack([f(*args) for args in each])
        result = torch.vmap(f, in_dims=in_dims)(logits, label)
        assert result.shape == expected.shape
        close(result, expected)


def test_trailing_dimensions_are_those_that_are_given():
    x, w = normal(2, 3, 4), normal(3, 4)
    y, mean, factor = torch.native_layer_norm(x, [3, 4], w, w, EPS)
    for layout in (x, x.mT.contiguous().mT, x.transpose(0, 2).contiguous().transpose(0, 2)):
        results = ops.layer_norm_stats(layout, [3, 4], w, w, EPS)
        close(results, (y, mean.view(2), factor.view(2)))
        fake = ops.layer_norm_stats(layout.to("meta"), [3, 4], w.to("meta"), w.to("meta"), EPS)
        assert [(z.shape, z.stride()) for z in fake] == [(z.shape, z.stride()) for z in results]
    two, zero = torch.tensor(2.0).double(), torch.zeros(1, 1).double()  # broadcast to all elements
    close(ops.layer_norm_stats(x, [3, 4], two, zero, EPS)[0], 2 * F.layer_norm(x, [3, 4], eps=EPS))


@pytest.mark.parametrize("where", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("sizes", "of_weight", "sentence"),
    [
        ([4, 3], [3, 4], "x must end in normalized_shape, [4, 3], got shape [2, 3, 4]"),
        ([1, 2, 3, 4], [3, 4], "x must end in normalized_shape, [1, 2, 3, 4], got shape [2, 3, 4]"),
        ([3, 4], [4], "weight must end in normalized_shape, [3, 4], got shape [4]"),
        ([], [3, 4], "normalized_shape must have a size, got []"),
    ],
)
def test_tensors_without_the_trailing_dimensions_are_refused(sizes, of_weight, sentence, where):
    x, weight, bias = (torch.ones(shape, device=where) for shape in ([2, 3, 4], of_weight, [3, 4]))
    with pytest.raises(RuntimeError, match=f"^{re.escape(f'layer_norm_stats: {sentence}')}"):
        ops.layer_norm_stats(x, sizes, weight, bias, EPS)


def test_a_compiled_program_takes_rows_of_any_size():
    @torch.compile(backend="aot_eager", dynamic=True)
    def program(x, w):
        return ops.layer_norm_stats(x, x.shape[1:], w, w, EPS)

    for sizes in ([3, 4], [5, 6], [7, 8]):
        x, w = normal(2, *sizes).requires_grad_(), normal(*sizes).requires_grad_()
        with torch._dynamo.config.patch(error_on_recompile=True):
            results, expected = program(x, w), torch.native_layer_norm(x, sizes, w, w, EPS)
        close(results, (expected[0], *(y.view(2) for y in expected[1:])))
        close(*(torch.autograd.grad(y[0].sin().sum(), [x, w]) for y in (results, expected)))


def test_sizes_are_a_list():
    x, w = torch.ones(3, 4), torch.ones(4)
    for sizes in (torch.tensor([4]), 4, [4.0], None):
        sentence = f"layer_norm_stats: normalized_shape must be a list of ints, got {sizes}"
        with pytest.raises(TypeError, match=f"^{re.escape(sentence)}$"):
            row_ops.layer_norm_stats(x, sizes, w, w, EPS)
    assert row_ops.layer_norm_stats(x, (4,), w, w, EPS)[0].equal(row_ops.layer_norm_stats(x, [4], w, w, EPS)[0])
    with pytest.raises(TypeError, match="^layer_norm_stats: eps must be a real number, got a list$"):
        row_ops.layer_norm_stats(x, [4], w, w, [EPS])


def test_a_gradient_may_be_sparse():
    x, index = normal(5, 4).requires_grad_(), torch.tensor([1, 3, 3])
    gradients = [
        torch.autograd.grad(F.embedding(index, ops.softmax(x, -1), sparse=sparse).square().sum(), x)[0]
        for sparse in (False, True)
    ]
    close(*gradients)


def test_a_compiled_derivative_of_a_size_that_depends_on_data():
    def loss(x, w):
        y = x[x[:, 0] > 0]
        return ops.layer_norm_stats(y, [4], w, w, EPS)[0].sin().sum() + ops.rms_norm(y, w).sum()

    found = []
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for f in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
            args = normal(9, 4).requires_grad_(), normal(4).requires_grad_()
            f(*args).backward()
            found.append(tuple(x.grad for x in args))
    close(*found)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_rows_of_special_values(value):
    for x in (torch.full((2, 40), value), torch.tensor([[1.0, value, 2.0]])):
        x = x.requires_grad_()
        for got, expected in (ops.softmax(x), x.softmax(-1)), (ops.logsumexp(x), x.logsumexp(-1)):
            close(got, expected, 1e-6)
            gradients = [torch.autograd.grad(y, x, torch.ones_like(y))[0] for y in (got, expected)]
            if expected.isneginf().any():  # where torch has NaN
                gradients[1] = torch.zeros_like(x)
            close(*gradients, 1e-6)


def test_a_large_common_mean_is_no_loss():
    x = normal(2, 1000000, dtype=torch.float32) + 1000
    expected = x.double().var(-1, correction=0)
    error = (ops.scaled_variance(x, torch.ones(2))[1] - expected).abs()
    assert (error <= torch.finfo(torch.float32).eps * expected).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 7, 1000, 5000])
@pytest.mark.parametrize("value", [0.1, 1000.1, -7e20])
def test_the_mean_of_equal_elements_is_one_of_them(value, n, dtype):
    x = torch.full((2, n), value, dtype=dtype)
    assert not ops.layer_norm(x, None, None).any()


def test_the_mean_is_rounded_once():
    x = normal(40, 3000, dtype=torch.float32) + 1000
    x[:, 0] = 1e6
    mean = ops.layer_norm_stats(x, x.shape[-1:], *torch.ones(2, 3000), EPS)[1]
    expected = x.double().mean(-1)
    assert ((mean - expected).abs() <= 0.51 * torch.finfo(torch.float32).eps * expected).all()


@pytest.mark.parametrize(("shape", "columns"), [((1, 1 << 22), 1), ((1 << 20, 1), 1), ((1 << 19, 4), 4)])
def test_a_gradient_is_the_sum_of_many_equal_numbers(shape, columns):
    x, w = torch.full(shape, 0.1), torch.ones(columns, requires_grad=True)
    (grad,) = torch.autograd.grad(ops.weighted_sum(x, w).sum(), w)
    close(grad, torch.full((columns,), 0.1, dtype=torch.float64) * (x.numel() / columns), 2e-6)


def test_sums_over_rows_do_not_depend_on_what_the_caller_does_to_subnormals():
    x, scale = torch.full((64, 8), 1e-42), torch.ones(1, requires_grad=True)
    assert torch.set_flush_denormal(True)
    try:
        (grad,) = torch.autograd.grad(ops.scaled(scale, torch.ones(64, 8)), scale, x)
    finally:
        torch.set_flush_denormal(False)
    assert grad.view(torch.int32) == x.double().sum().float().view(torch.int32)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
@pytest.mark.parametrize("size", [1, 2])
def test_a_result_has_the_strides_of_its_fake_kernel(order, size):
    """The first tensor has one value for each row. Its shape may also be that of rows of one element."""
    x = torch.ones([[3, 4, size][d] for d in order]).permute(*map(order.index, range(3)))
    opcheck(ops.scaled.default, (torch.ones(3, 4), x), test_utils="test_faketensor")


@pytest.mark.parametrize("n", [5, 2**17 + 1])  # threads share long rows
def test_a_place_that_depends_on_elements(n):
    x, count = normal(3, n), torch.tensor([1, n, 3])
    mask = torch.arange(n) < count[:, None]
    assert torch.equal(ops.last_of(x, mask), x.gather(-1, count[:, None] - 1)[:, 0])
    mask[1] = False
    with pytest.raises(RuntimeError, match=f"^last_of: a place .* outside of its row, which has {n} elements, got -1"):
        ops.last_of(x, mask)


def test_derivatives_of_the_maximum_of_no_elements():
    x = normal(3, 0)
    assert not torch.func.jvp(lambda x: ops.max_with_place(x)[0].exp(), (x,), (x,))[1].any()


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_a_result_that_nobody_used_adds_nothing_even_if_its_derivative_is_infinite(backend):
    x, w = torch.tensor([[3.0, 3, 3], [1, 2, 3]], requires_grad=True), torch.ones(3)
    op = torch.compile(ops.layer_norm_stats, backend=backend) if backend else ops.layer_norm_stats
    # For the first row, the other two results divide by a deviation of 0.
    op(x, [3], w, w, 0.0)[1].sum().backward()
    close(x.grad, torch.full_like(x, 1 / 3), 1e-6)


def test_threads_change_no_bit():
    x, w = normal(501, 700, dtype=torch.float32).requires_grad_(), normal(700, dtype=torch.float32).requires_grad_()
    found = []
    for threads in (1, 4):
        torch.set_num_threads(threads)
        found.append(torch.autograd.grad(ops.rms_norm(x, w), (x, w), x.detach()))
    close(*found, 0)


def added(x, w):
    x, residual = x.clone(), x.clone()
    ops.fused_add_rms_norm(x, residual, w, EPS)
    return x, residual


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_share_a_long_row_and_change_no_bit(dtype):
    n = 2**18 + 3077  # more than kLongRow and kStep of cpu/rows.h, with an incomplete block
    x, w, other = (normal(*shape, dtype=dtype) for shape in ((8, n), (n,), (8, n)))
    with_derivatives = [
        ops.softmax,
        ops.softmax_entropy,
        lambda x: ops.softmax(x.t().contiguous(), 0),  # elements of a row are not adjacent
        lambda x: ops.layer_norm(x, w, w),
        lambda x: ops.cross_entropy(*cross_entropy(x), -100, 0.1),
        lambda x: ops.scaled_variance(x, x[:, 0]),
    ]

    def computed(rows):
        first = x[:rows]
        for f in with_derivatives:
            results, vjp = torch.func.vjp(f, first)
            grads = torch.func.jvp(f, (first,), (other[:rows],))[1]
            yield from (results, grads, vjp(grads))
        yield ops.int8_quant(first)
        yield ops.max_with_place(first)
        yield ops.relative_to(first, torch.tensor([5, 70000, n - 1] * 3)[:rows])
        yield added(first, w)

    def rows_of(results):  # in results of transposed rows, the rows are the last dimension
        each = results if isinstance(results, tuple) else (results,)
        return [(y.t() if len(y) == n else y)[:3] for y in each]

    alone = [*map(rows_of, computed(8))]  # each thread computes several rows
    for threads in (1, 4):
        torch.set_num_threads(threads)
        for got, expected in zip(map(rows_of, computed(3)), alone, strict=True):
            close(tuple(got), tuple(expected), 0)


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm", "cross_entropy", "scaled_variance"])
def test_compiled(name):
    op, _, args = made(name, 9)
    args = [x.requires_grad_() for x in args]

    def doubled(*xs):
        return op(*(x * 2 for x in xs))

    found = []
    for f in (torch.compile(doubled, backend="aot_eager", fullgraph=True), doubled):
        results = f(*args)
        results = results if isinstance(results, tuple) else (results,)
        found.append((*results, *torch.autograd.grad(results, args, [torch.ones_like(y) for y in results])))
    close(*found)


def test_compiled_autograd():
    gradients = []
    for context in nullcontext(), compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
        op, _, args = made("rms_norm", 9)
        args = [x.requires_grad_() for x in args]
        with context:
            op(*args).square().sum().backward()
        gradients.append(tuple(x.grad for x in args))
    close(*gradients)


class Model(torch.nn.Module):
    def forward(self, x, w, mask, label):
        quantised, scale = ops.int8_quant(ops.rms_norm(x, w))
        y = ops.masked_softmax(quantised * scale[:, None], mask, SCALE)
        return ops.cross_entropy(y, label), ops.logsumexp(x, keepdim=True)


def test_exported_and_packaged(tmp_path):
    args = normal(3, 40, dtype=torch.float32), normal(40, dtype=torch.float32), normal(3, 40) > 0, torch.arange(3)
    program = torch.export.export(Model(), args)
    expected = Model()(*args)
    close(program.module()(*args), expected, 0)
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    close(tuple(torch._inductor.aoti_load_package(package)(*args)), expected, 1e-6)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_updates_in_compiled_programs(backend):
    """A compiled program writes into views where eager mode does."""

    def function(x, residual, w):
        y = x * 2
        ops.fused_add_rms_norm(y, residual[0], w, EPS)
        return y + residual.sum()

    found = []
    for f in (function, torch.compile(function, backend=backend, fullgraph=True)):
        residual = normal(2, 6, 40)
        found.append((f(normal(6, 40), residual, normal(40)), residual))
    close(*found)


def test_a_row_is_never_sharded(tmp_path):
    torch.multiprocessing.spawn(on_each_of_two, (f"file://{tmp_path}/store",), nprocs=2)


def on_each_of_two(rank, store):
    """Compute with tensors that are sharded over two processes; this is one of them."""
    import row_ops.dtensor  # noqa: F401

    dist.init_process_group("gloo", store, rank=rank, world_size=2)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    x, w, label = normal(4, 9), normal(9), torch.arange(4)

    def placed(y, placement):
        return distribute_tensor(y.clone(), mesh, [placement])

    def same(y, expected):
        close(y.full_tensor(), expected)

    for dim, placement in ((1, Replicate()), (0, Shard(0))):
        given, weight = placed(x, Shard(dim)).requires_grad_(), placed(w, Replicate()).requires_grad_()
        y = ops.rms_norm(given, weight)
        assert y.placements == (placement,)
        assert ops.logsumexp(given).placements == (placement,)
        assert ops.softmax(given, 0).placements == ((Shard(1),) if dim else (Replicate(),))
        whole = placed(x, Replicate())
        assert {y.placements for y in ops.layer_norm_stats(given, [4, 9], whole, whole, EPS)} == {(Replicate(),)}
        leaf = given.detach().requires_grad_()  # the other two results are not used
        ops.layer_norm_stats(leaf, [4, 9], whole, whole, EPS)[0].sum().backward()
        unscaled = given.detach().requires_grad_()
        ops.layer_norm(unscaled, None, None).sum().backward()
        assert type(leaf.grad) is type(unscaled.grad) is type(given)
        assert ops.cross_entropy(given, placed(label, Shard(0))).placements in ((placement,), (Shard(0),))
        y.sum().backward()
        expected = x.clone().requires_grad_(), w.clone().requires_grad_()
        rms(*expected).sum().backward()
        same(given.grad, expected[0].grad)
        same(weight.grad, expected[1].grad)

    for keepdim in (False, True):  # DTensor caches how a call is sharded
        same(ops.logsumexp(placed(x, Shard(1)), 0, keepdim=keepdim), x.logsumexp(0, keepdim))

    for sizes in ([9], [4, 9]):
        ours, plain = (ops.layer_norm_stats(y, sizes, y, y, EPS) for y in (placed(x, Replicate()), x))
        for own, expected in zip(ours, plain, strict=True):
            same(own, expected)

    # Writes into a tensor keep its placement.
    for y, expected, write in (
        (x, x.softmax(-1), lambda out: ops.softmax(placed(x, Shard(1)), out=out)),
        (x[:, 0], x.logsumexp(-1), lambda out: ops.logsumexp(placed(x, Shard(1)), out=out)),
        (x, rms(x, w), lambda out: ops.rms_norm(placed(x, Replicate()), placed(w, Shard(0)), out=out)),
    ):
        out = placed(y, Shard(0))
        write(out)
        assert out.placements == (Shard(0),)
        same(out, expected)
        if y.dim() == 2:
            with pytest.raises(RuntimeError, match="out must be replicated, or sharded along a dim"):
                write(placed(y, Shard(1)))
    for placement in (Replicate(), Shard(0)):
        a, b = placed(x, placement), placed(x + 1, placement)
        ops.fused_add_rms_norm(a, b, placed(w, Shard(0)), EPS)
        same(a, rms(2 * x + 1, w))
        same(b, 2 * x + 1)
    a, b = placed(x, Shard(1)), placed(x, Shard(1))
    with pytest.raises(RuntimeError, match="input and residual must be replicated, or sharded along a dim"):
        ops.fused_add_rms_norm(a, b, placed(w, Replicate()), EPS)
    same(a, x)

    # row.index() counts from 0 in each shard.
    blocks = normal(2, 6, 6)
    for dim, placement in enumerate((Shard(0), Replicate(), Replicate())):
        given, leaf = placed(blocks, Shard(dim)).requires_grad_(), blocks.clone().requires_grad_()
        y, expected = ops.causal_softmax(given, SCALE), causal(leaf)
        assert y.placements == (placement,)
        same(y, expected)
        y.square().sum().backward()
        expected.square().sum().backward()
        same(given.grad, leaf.grad)
    with pytest.raises(RuntimeError, match=r"nor the last of the others, which row\.index\(\) counts"):
        ops.causal_softmax(placed(blocks, Replicate()), SCALE, out=placed(blocks, Shard(1)))
    dist.destroy_process_group()


def test_opcheck():
    x, w = normal(3, 4).requires_grad_(), normal(4).requires_grad_()
    for op, args in (
        (ops.softmax.default, (x, 0)),
        (ops.rms_norm.default, (x, w)),
        (ops.layer_norm.default, (x, w, None)),
        (ops.cross_entropy.default, (x, torch.tensor([0, 1, 2]))),
        (ops.int8_quant.default, (x.detach(),)),
        (ops.fused_add_rms_norm.default, (normal(3, 4), normal(4, 3).reshape(3, 4), w.detach(), EPS)),
    ):
        opcheck(op, args)


def test_autocast_computes_in_float32():
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.softmax(torch.randn(2, 3, dtype=torch.bfloat16)).dtype == torch.float32
