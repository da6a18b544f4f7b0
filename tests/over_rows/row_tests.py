"""Operators over rows: lengths of rows, derivatives of long rows, error messages, and special operators.

A project of these operators also passes the tests of every project, test_operators.py, for the same cases.
"""

import itertools
import math
import re
import subprocess
import sys
from contextlib import nullcontext

import pytest
import row_ops
import torch
import torch.distributed as dist
import torch.nn.functional as F
from cases import as_tuple, is_float, is_tensor
from conftest import CUDA
from operators import causal_softmax, rms_norm
from test_operators import LAYOUTS, cotangents_of, gradients, with_layout
from torch._dynamo import compiled_autograd
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils.flop_counter import FlopCounterMode

ops = torch.ops.row_ops
EVERY_DTYPE = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
LENGTHS = [1, 7, 8, 9, 31, 32, 33, 100, 1024, 1025, 5000]
EPS = 1e-5


def normal(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def close(got, expected, tolerance=1e-9):
    for x, y in zip(as_tuple(got), as_tuple(expected), strict=True):
        torch.testing.assert_close(x.double(), y.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


# ---- Every operator


def test_rows_of_every_length(case, device):
    for dtype, n, choice in itertools.product(case.dtypes, LENGTHS, case.choices):
        for shape in ((4, n), (n, 4)):
            args = case.sample(dtype, device, shape, choice)
            result, expected = case.call(*args), case.expected(*args)
            what = f"the result of {list(shape)} and {dtype}"
            case.check(result, expected, what)
            doubles = [tuple(y for y in as_tuple(of) if y.dtype == torch.float64) for of in (result, expected)]
            case.close(*doubles, what, rtol=1e-11, atol=1e-11)


def test_strides_change_no_bit(case, device):
    for choice, layout in itertools.product(case.choices, LAYOUTS):
        args = with_layout(layout, case.sample(case.dtypes[-1], device, (4, 3, 33), choice))
        plain = [x.contiguous() if is_tensor(x) else x for x in args]
        case.close(case.call(*args), case.call(*plain), f"the result of a {layout} tensor", rtol=0, atol=0)


# Their gradients read the softmax that the call has returned, rounded.
RETURN_A_SOFTMAX = ("softmax", "softmax_entropy", "scaled_softmax", "tempered_softmax", "causal_softmax")


@pytest.mark.parametrize("n", [40, 255, 256, 287, 304, 2079])
def test_rows_of_bfloat16_are_those_of_float_rounded(case, device, n):
    if torch.bfloat16 not in case.dtypes:
        return
    for layout in LAYOUTS:
        args = with_layout(layout, case.sample(torch.bfloat16, device, (4, n)))
        wide = [x.float() if is_tensor(x) and x.dtype == torch.bfloat16 else x for x in args]
        found, cotangents = [], cotangents_of(case, args)
        for given in args, wide:
            of_all = gradients(case, case.call, given, case.present(args), cotangents)
            found.append((*as_tuple(case.call(*given)), *of_all.values()))
        result, expected = found[0], tuple(y.to(x.dtype) for x, y in zip(*found, strict=True))
        tolerance = 2**-6 if case.name in RETURN_A_SOFTMAX else 0
        case.close(result, expected, f"what a {layout} tensor of rows of {n} gives", rtol=tolerance, atol=tolerance)


READ_AN_ELEMENT = ("cross_entropy", "softmax_xentropy", "softmax_focal_loss", "last_of", "picked", "relative_to")


def test_rows_without_elements(case, device):
    args = case.sample(case.dtypes[-1], device, (4, 0))
    if case.name in READ_AN_ELEMENT:
        if device == "cpu":  # on CUDA, no later call of the process would work
            with pytest.raises(RuntimeError, match=f"{case.name}: .* which has 0 elements"):
                case.call(*args)
        return
    result = case.call(*args)
    try:
        expected = case.expected(*args)
    except (IndexError, RuntimeError):
        pytest.skip("PyTorch refuses them")
    case.check(result, expected, "the result of rows without elements")
    if names := case.present(args):
        cotangents = cotangents_of(case, args)
        both = [gradients(case, f, args, names, cotangents) for f in (case.call, case.reference)]
        case.check(*(tuple(of_one.values()) for of_one in both), "the gradients of rows without elements")


def test_rows_without_elements_may_have_strides_of_zero():
    x = torch.zeros(0, 1).as_strided((4, 3, 0), (0, 0, 0))
    assert ops.softmax(x).shape == x.shape


@pytest.mark.skipif(not CUDA, reason="no GPU, or no kernels for one")
def test_cuda_has_the_bits_of_the_cpu(case):
    for dtype, n in itertools.product(case.dtypes, [*LENGTHS, 70_000]):  # the last does not fit in shared memory
        args = case.sample(dtype, shape=(4, n))
        cotangents = cotangents_of(case, args)
        found = []
        for where in ("cpu", "cuda"):
            there = [x.to(where) if is_tensor(x) else x for x in args]
            given = [x.to(where) for x in cotangents]
            of_all = gradients(case, case.call, there, case.present(args), given)
            found.append([x.cpu() for x in (*as_tuple(case.call(*there)), *of_all.values())])
        case.close(tuple(found[1]), tuple(found[0]), f"what CUDA computes of rows of {n}", rtol=0, atol=0)


def of_tensors(case, args):
    """Return the operator and its reference as functions of the tensors that have a gradient, and these tensors."""
    places = [case.names.index(name) for name in case.present(args)]
    is_result = [is_float(y) for y in as_tuple(case.call(*args))]

    def of(function):
        def f(*xs):
            given = dict(zip(places, xs, strict=True))
            results = as_tuple(function(*(given.get(place, x) for place, x in enumerate(args))))
            return tuple(itertools.compress(results, is_result))

        return f

    return of(case.call), of(case.reference), tuple(args[place] for place in places)


@pytest.mark.parametrize("n", [1, 9, 40])
def test_derivatives_are_those_of_the_reference(case, device, n):
    for choice in case.choices:
        *functions, xs = of_tensors(case, case.sample(torch.float64, device, (4, n), choice))
        grads, tangents = [normal(*y.shape) for y in functions[0](*xs)], tuple(normal(*x.shape) + 1 for x in xs)
        of_jvp = [torch.func.jvp(f, xs, tangents)[1] for f in functions]
        case.close(*of_jvp, f"the tangent of rows of {n}", rtol=1e-9, atol=1e-9)
        leaves = [x.detach().requires_grad_() for x in xs]
        first = [torch.autograd.grad(f(*leaves), leaves, grads, create_graph=True) for f in functions]
        case.close(*first, f"the gradients of rows of {n}", rtol=1e-9, atol=1e-9)
        if case.orders == 1 or (case.name, n) == ("softmax_focal_loss", 1):  # the reference has NaN there
            continue
        products = [sum((y * u).sum() for y, u in zip(of_first, tangents, strict=True)) for of_first in first]
        second = [  # some gradients are constant
            torch.autograd.grad(y, leaves, materialize_grads=True) if y.requires_grad else tuple(0 * x for x in xs)
            for y in products
        ]
        case.close(*second, f"the second derivatives of rows of {n}", rtol=1e-8, atol=1e-8)


def test_gradients_in_a_batch(case, device):
    *functions, (x, *others) = of_tensors(case, case.sample(case.dtypes[-1], device, (4, 9)))
    tolerance = 1e-9 if x.dtype == torch.float64 else 1e-5

    def of_batch(f):
        gradient = torch.func.grad(lambda *xs: sum(y.square().sum() for y in f(*xs)), tuple(range(len(others) + 1)))
        return torch.vmap(gradient, (1, *[None] * len(others)))(torch.stack([x, x / 2, 2 * x], 1), *others)

    case.close(*map(of_batch, functions), "the gradients of a batch", rtol=tolerance, atol=tolerance)
    if case.orders == 1:
        return

    def of_batch_of_tangents(f):
        def squares(x):
            tangents = torch.vmap(lambda v: torch.func.jvp(lambda x: f(x, *others), (x,), (v,))[1])
            return sum(y.square().sum() for y in tangents(torch.stack([x, x.cos()])))

        return torch.func.grad(squares)(x)

    what = "the gradients of a batch of tangents"
    case.close(*map(of_batch_of_tangents, functions), what, rtol=tolerance, atol=tolerance)


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


@pytest.mark.parametrize("of_scale", [(3, 3), (3,), ()])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_a_second_derivative_by_one_of_two_tensors(dim, of_scale):
    x, scale = normal(3, 3, 3).requires_grad_(), normal(*of_scale)
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
        with pytest.raises(IndexError, match=f"softmax: dim must be from -1 to 0, got {dim}"):
            torch.vmap(lambda y, dim=dim: ops.softmax(y, dim))(x)
    with pytest.raises(RuntimeError, match=r"softmax: x must have a dimension to reduce, got shape \[\]"):
        torch.vmap(ops.softmax)(x[0])
    with pytest.raises(RuntimeError, match=r"x must end in normalized_shape, \[1, 4\], got shape \[4\]"):
        torch.vmap(lambda y: ops.layer_norm_stats(y, [1, 4], w, w, EPS))(x)


def test_a_row_of_zeros_is_quantised_with_a_scale_of_zero():
    quantised, scale = ops.int8_quant(torch.zeros(2, 100))
    assert not quantised.any() and not scale.any()


@pytest.mark.parametrize("n", LENGTHS)
def test_a_product_of_many_elements(n):
    x = 1 + normal(3, n, dtype=torch.float32) / (n + 1)  # so that it neither overflows nor vanishes
    close(ops.prod(x), x.double().prod(-1), 1e-5)


@pytest.mark.parametrize("zeros", range(4))
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacfwd, torch.func.hessian])
def test_the_derivatives_of_a_product_are_right_beside_zeros(transform, zeros):
    x = normal(7)
    x[[1, 4, 5][:zeros]] = 0
    close(transform(ops.prod)(x), transform(lambda x: x.prod(-1))(x), 1e-12)


@pytest.mark.parametrize("on", ["cpu", "meta"])
def test_shapes_are_named_as_they_were_passed(on):
    logits, label = torch.ones(3, 4, device=on), torch.ones(2, dtype=torch.int64, device=on)
    got = r"got \[3, 4\] and \[2\] \(one value for each row\)$"
    with pytest.raises(RuntimeError, match=f"logits and label must have shapes that broadcast, {got}"):
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


@pytest.mark.parametrize("label", [-1, 4, 1 << 40])
def test_a_label_out_of_range_is_refused_where_others_are_not_read(label):
    x = torch.randn(2, 4)
    sentence = f"picked: a place that is read lies outside of its row, which has 4 elements, got {label}"
    with pytest.raises(RuntimeError, match=f"^{sentence}"):
        ops.picked(x, torch.tensor([0, label]), 0)
    close(ops.picked(x, torch.tensor([7, 2]), 7), torch.stack([torch.tensor(0.0), x[1, 2]]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64])
def test_the_least_and_the_sum_of_integers(dtype):
    limits = torch.iinfo(dtype)
    x = torch.tensor([[5, 7, limits.min], [limits.min, 5, 7], [limits.max] * 3], dtype=dtype)
    for got, expected in zip(ops.least(x), (x.amin(-1), x.argmin(-1), x.sum(-1)), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.skipif(not CUDA, reason="no GPU, or no kernels for one")
def test_a_label_out_of_range_stops_the_kernel_on_cuda():
    x, label = "torch.randn(3, 4, device='cuda')", "torch.tensor([0, 4, 1], device='cuda')"
    code = f"import torch, row_ops; row_ops.cross_entropy({x}, {label}).cpu()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert run.returncode != 0 and "device-side assert" in run.stderr, run.stderr


def test_refusals():
    with pytest.raises(IndexError, match=r"softmax: dim must be from -2 to 1, got 2"):
        ops.softmax(torch.randn(3, 4), 2)
    with pytest.raises(IndexError, match=r"softmax: dim must be from -2 to 1, got 2"):
        ops.softmax(torch.randn(3, 4, device="meta"), 2)
    with pytest.raises(RuntimeError, match=r"softmax: x must have a dimension to reduce, got shape \[\]"):
        ops.softmax(torch.randn(()))
    with pytest.raises(RuntimeError, match="softmax: an operator over rows has no tangent of a tangent"):
        torch.func.jvp(lambda x: torch.func.jvp(ops.softmax, (x,), (x,))[1], (torch.ones(2),), (torch.ones(2),))
    w = torch.ones(4, requires_grad=True)
    gradients = torch.autograd.grad(ops.quaternion_dot(*[w] * 8), w, create_graph=True)
    with pytest.raises(RuntimeError, match="quaternion_dot: .* its kernel would take 18 tensors and return 8"):
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
    for sizes, got in ((torch.tensor([4]), "a tensor of shape [1]"), (4, "4"), ([4.0], "[4.0]"), (None, "None")):
        sentence = f"layer_norm_stats: normalized_shape must be a list of ints, got {got}"
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
    for x in (
        torch.full((2, 40), value),
        torch.tensor([[1.0, value, 200.0]]),  # exp(200) is no float
        torch.tensor([[1.0, value, -float("inf")]]),
    ):
        x = x.requires_grad_()
        cases = [(ops.softmax(x), x.softmax(-1)), (ops.logsumexp(x), x.logsumexp(-1))]
        if math.isnan(value):
            cases.append((ops.log_softmax(x), x.log_softmax(-1)))
        for got, expected in cases:
            close(got, expected, 1e-6)
            gradients = [torch.autograd.grad(y, x, torch.ones_like(y))[0] for y in (got, expected)]
            if expected.dim() == 1:  # where torch may have NaN
                gradients[1] = torch.where(x.isneginf(), 0, gradients[1])
            close(*gradients, 1e-6)


def test_one_of_several_results_has_the_gradient_nan_by_an_infinite_element():
    x = torch.tensor([[1.0, float("inf"), 0.0], [1, 2, 3]], requires_grad=True)
    for result in range(2):
        (gradient,) = torch.autograd.grad(ops.softmax_xentropy(x, torch.tensor([0, 0]), 0.0)[result].sum(), x)
        assert gradient.isnan().tolist() == [[False, True, False], [False] * 3]


@pytest.mark.parametrize("n", [3, 300, 2100])
def test_the_maximum_of_a_row_with_nan_is_nan(n):
    for place in 0, n // 2, n - 1:
        x = normal(2, n)
        x[0, place] = float("nan")
        for got, expected in zip(ops.max_with_place(x), x.max(-1), strict=True):
            close(got, expected, 0)


@pytest.mark.parametrize("mean", [1e3, 1e4, 1e5, 1e6])
@pytest.mark.parametrize("n", [1000, 1000000])
def test_a_large_common_mean_is_no_loss(n, mean):
    x = normal(2, n, dtype=torch.float32) + mean
    expected = x.double().var(-1, correction=0)
    assert ((ops.variance(x) - expected).abs() <= 0.55 * torch.finfo(torch.float32).eps * expected).all()


@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_more_than_63_dimensions_are_refused(where):
    x = torch.ones([1] * 60 + [2, 1, 3], device=where)
    assert ops.softmax(x).shape == x.shape
    with pytest.raises(RuntimeError, match="^softmax: x must have fewer than 64 dimensions, got 64$"):
        ops.softmax(x[None])


def test_the_nested_tensor_that_is_refused_is_named():
    x, nested = normal(5, 4), torch.nested.nested_tensor_from_jagged(torch.arange(5) % 4, torch.tensor([0, 2, 5]))
    with pytest.raises(RuntimeError, match=r"^cross_entropy: .* takes no nested tensor; call it on label\.values\(\)$"):
        ops.cross_entropy(x, nested)


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
    torch.library.opcheck(ops.scaled.default, (torch.ones(3, 4), x), test_utils="test_faketensor")


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
        lambda x: ops.cross_entropy(x, torch.arange(len(x)), 0, 0.1),
        lambda x: ops.scaled_variance(x, x[:, 0]),
        lambda x: ops.max_with_place(x)[0],  # its loop has two reductions
    ]

    def computed(rows):
        first = x[:rows]
        for f in with_derivatives:
            results, vjp = torch.func.vjp(f, first)
            grads = torch.func.jvp(f, (first,), (other[:rows],))[1]
            yield from (results, grads, vjp(grads))
        yield ops.int8_quant(first)
        yield ops.max_with_place(first)
        yield ops.rotate_half(first)
        yield ops.relative_to(first, torch.tensor([5, 70000, n - 1] * 3)[:rows])
        yield added(first, w)

    def rows_of(results):  # in results of transposed rows, the rows are the last dimension
        return [(y.t() if len(y) == n else y)[:3] for y in as_tuple(results)]

    alone = [*map(rows_of, computed(8))]  # each thread computes several rows
    for threads in (1, 4):
        torch.set_num_threads(threads)
        for got, expected in zip(map(rows_of, computed(3)), alone, strict=True):
            close(tuple(got), tuple(expected), 0)


def test_compiled_autograd():
    gradients = []
    for context in nullcontext(), compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
        args = normal(4, 3, 9).requires_grad_(), normal(9).requires_grad_()
        with context:
            ops.rms_norm(*args).square().sum().backward()
        gradients.append(tuple(x.grad for x in args))
    close(*gradients)


class Model(torch.nn.Module):
    def forward(self, x, w, mask, label):
        quantised, scale = ops.int8_quant(ops.rms_norm(x, w))
        y = ops.masked_softmax(quantised * scale[:, None], mask, 0.5)
        return ops.cross_entropy(y, label), ops.logsumexp(x, keepdim=True)


def test_exported_and_packaged(tmp_path):
    args = normal(3, 40, dtype=torch.float32), normal(40, dtype=torch.float32), normal(3, 40) > 0, torch.arange(3)
    program = torch.export.export(Model(), args)
    expected = Model()(*args)
    close(program.module()(*args), expected, 0)
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    close(tuple(torch._inductor.aoti_load_package(package)(*args)), expected, 1e-6)


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
        rms_norm(*expected, EPS).sum().backward()
        same(given.grad, expected[0].grad)
        same(weight.grad, expected[1].grad)

    for keepdim in (False, True):  # DTensor caches how a call is sharded
        same(ops.logsumexp(placed(x, Shard(1)), 0, keepdim=keepdim), x.logsumexp(0, keepdim))

    of_column = placed(w, Shard(0))  # it has only the dimension after the one that is reduced
    same(ops.scaled_squares(placed(x, Shard(1)), of_column, 0), x.square().sum(0) * w)

    # Compiled programs pass a number that changes as a tensor.
    eps = torch.tensor(EPS, dtype=torch.float64)
    same(torch.ops.row_ops.rms_norm.tensor_eps(placed(x, Shard(0)), placed(w, Shard(0)), eps), rms_norm(x, w, EPS))

    for sizes in ([9], [4, 9]):
        ours, plain = (ops.layer_norm_stats(y, sizes, y, y, EPS) for y in (placed(x, Replicate()), x))
        for own, expected in zip(ours, plain, strict=True):
            same(own, expected)

    # Writes into a tensor keep its placement.
    for y, expected, write in (
        (x, x.softmax(-1), lambda out: ops.softmax(placed(x, Shard(1)), out=out)),
        (x[:, 0], x.logsumexp(-1), lambda out: ops.logsumexp(placed(x, Shard(1)), out=out)),
        (x, rms_norm(x, w, EPS), lambda out: ops.rms_norm(placed(x, Replicate()), placed(w, Shard(0)), out=out)),
    ):
        out = placed(y, Shard(0))
        write(out)
        assert out.placements == (Shard(0),)
        same(out, expected)
        if y.dim() == 2:
            with pytest.raises(RuntimeError, match="out must be replicated, or sharded along a dim"):
                write(placed(y, Shard(1)))
    of_one = dist.device_mesh.DeviceMesh("cpu", [0])  # the other process calls the operator, too, and computes nothing
    there, out = (torch.distributed.tensor.ones(4, 9, device_mesh=of_one) for _ in range(2))
    assert ops.softmax(there, 1, out=out) is out
    for placement in (Replicate(), Shard(0)):
        a, b = placed(x, placement), placed(x + 1, placement)
        ops.fused_add_rms_norm(a, b, placed(w, Shard(0)), EPS)
        same(a, rms_norm(2 * x + 1, w, EPS))
        same(b, 2 * x + 1)
    for placements in ((Shard(1), Shard(1)), (Replicate(), Shard(0))):
        a, b = (placed(x, placement) for placement in placements)
        with pytest.raises(RuntimeError, match="input and residual must be replicated, or .* not reduced, all alike;"):
            ops.fused_add_rms_norm(a, b, placed(w, Replicate()), EPS)
        same(a, x)

    # row.index() counts from 0 in each shard.
    blocks = normal(2, 6, 6)
    for dim, placement in enumerate((Shard(0), Replicate(), Replicate())):
        given, leaf = placed(blocks, Shard(dim)).requires_grad_(), blocks.clone().requires_grad_()
        y, expected = ops.causal_softmax(given, 0.5), causal_softmax(leaf, 0.5)
        assert y.placements == (placement,)
        same(y, expected)
        y.square().sum().backward()
        expected.square().sum().backward()
        same(given.grad, leaf.grad)
    with pytest.raises(RuntimeError, match=r"nor the last of the others, which row\.index\(\) counts"):
        ops.causal_softmax(placed(blocks, Replicate()), 0.5, out=placed(blocks, Shard(1)))
    dist.destroy_process_group()


def test_autocast_computes_in_float32():
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.softmax(torch.randn(2, 3, dtype=torch.bfloat16)).dtype == torch.float32
