"""An operator broadcasts its tensors, as ATen's do, unless its entry says otherwise; for example mymuladd.Tensor."""

import itertools

import pytest
import torch
from conftest import message
from modes import DispatchMode
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, vjp, vmap
from torch.testing._internal.two_tensor import TwoTensor

import muladd_nb

ops = torch.ops.muladd_nb

SHAPES = [
    ((5, 3), (3,), (5, 1)),
    ((3,), (5, 3), (1,)),
    ((5, 1), (1, 3), ()),
    ((2, 1, 4), (3, 1), (1, 1, 4)),
    ((0, 3), (3,), (1, 1)),
    ((1, 1), (1,), ()),
    ((), (7,), (7,)),
]
shapes = pytest.mark.parametrize("shapes", SHAPES, ids=str)


def tensors(shapes, device="cpu", dtype=torch.float64):
    return [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]


def reference(a, b, c):
    return torch.addcmul(c, a, b)


@shapes
def test_the_bits_are_those_of_expanded_tensors(device, dtype, shapes):
    args = tensors(shapes, device, dtype)
    whole = [x.contiguous() for x in torch.broadcast_tensors(*args)]
    expected = ops.mymuladd.Tensor(*whole)
    out = torch.full_like(expected, torch.nan)
    assert muladd_nb.mymuladd(*args, out=out) is out
    for result in (ops.mymuladd.Tensor(*args), muladd_nb.mymuladd(*args), out):
        assert torch.equal(result, expected)


def test_the_strides_are_those_of_the_first_tensor_of_the_shape(device):
    row, column, whole = tensors([(3,), (5, 1), (5, 3)], device)
    turned = whole.t().contiguous().t()
    for args, strides in (
        ((whole, row, column), (3, 1)),
        ((row, turned, column), (1, 5)),
        ((turned, whole, row), (1, 5)),
        ((row, column, column.t()[:, :1]), (3, 1)),  # no tensor has the shape
        ((column, turned[:, ::2], column), (1, 5)),  # the same order, without gaps
    ):
        real = ops.mymuladd.Tensor(*args)
        with FakeTensorMode() as mode:
            fake = ops.mymuladd.Tensor(*map(mode.from_tensor, args))
        like = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") for x in args]
        meta = ops.mymuladd.Tensor(*like)
        assert real.stride() == fake.stride() == meta.stride() == strides


def test_what_does_not_broadcast_is_refused_by_one_sentence(device):
    a, row, column, tall = tensors([(5, 3), (3,), (5, 1), (10, 1)], device)
    sentences = {
        (a, row[:2], column): "a, b and c must have shapes that broadcast, got [5, 3], [2] and [5, 1]",
        (a, row, tall): "a, b and c must have shapes that broadcast, got [5, 3], [3] and [10, 1]",
        (a, row.float(), column): "a and b must have the same dtype, got float64 and float32; nothing is promoted, "
        "use b.to(a.dtype)",
        (a, row, column.float()): "a and c must have the same dtype, got float64 and float32; nothing is promoted, "
        "use c.to(a.dtype)",
    }
    for args, sentence in sentences.items():
        for function in (ops.mymuladd.Tensor, muladd_nb.mymuladd):
            assert message(function, *args) == f"mymuladd: {sentence}"
            with FakeTensorMode() as mode:
                assert message(function, *map(mode.from_tensor, args)) == f"mymuladd: {sentence}"
        assert message(ops.mymuladd_out.Tensor, *args, a) == f"mymuladd_out: {sentence}"
    must = "mymuladd_out: out must have the shape that the tensors are broadcast to, [5, 3], got [3]"
    assert message(ops.mymuladd_out.Tensor, row, row, column, row) == must
    meta = [x.to("meta") for x in (row, row, column, row)]
    assert message(ops.mymuladd_out.Tensor, *meta) == must


def test_out_may_be_what_is_not_broadcast(device):
    a, row, column = tensors([(5, 3), (3,), (5, 1)], device)
    expected = ops.mymuladd.Tensor(a, row, column)
    out = a.clone()
    assert torch.equal(muladd_nb.mymuladd(out, row, column, out=out), expected)
    overlap = "mymuladd_out: out must be b itself or share no memory with it, got a partial overlap"
    assert message(muladd_nb.mymuladd, a, a[1], column, out=a) == overlap


@shapes
def test_derivatives_in_every_mode(device, shapes):
    args = tensors(shapes, device)
    leaves = [x.clone().requires_grad_() for x in args]
    if args[0].numel():
        assert torch.autograd.gradcheck(
            muladd_nb.mymuladd, leaves, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
        )
        assert torch.autograd.gradgradcheck(muladd_nb.mymuladd, leaves)
    for transform, which in itertools.product((jacrev, jacfwd), [(0,), (1,), (2,), (0, 1, 2)]):
        torch.testing.assert_close(*(transform(f, which)(*args) for f in (muladd_nb.mymuladd, reference)))
    ours, aten = (
        hessian(lambda *x, f=f: f(*x).sin().sum(), (0, 1, 2))(*args) for f in (ops.mymuladd.Tensor, reference)
    )
    torch.testing.assert_close(ours, aten)


def names_of(mode):
    """Return the names of our operators, and of sums, among those that a mode has seen."""
    return [op.name() for op in mode.seen if op.name().startswith(("muladd_nb::", "aten::sum"))]


@pytest.mark.parametrize("shapes", [((5, 3), (5, 3), (5, 3)), *SHAPES], ids=str)
def test_in_forward_mode_value_and_tangent_come_of_one_kernel(device, shapes):
    args, tangents = tensors(shapes, device), tensors(shapes, device)
    for with_tangent in itertools.product((False, True), repeat=3):
        if not any(with_tangent):
            continue
        with forward_ad.dual_level():
            pairs = zip(args, tangents, with_tangent, strict=True)
            duals = [forward_ad.make_dual(x, t) if has else x for x, t, has in pairs]
            with DispatchMode() as called:
                made = ops.mymuladd.Tensor(*duals)
            ours, right = (forward_ad.unpack_dual(y) for y in (made, reference(*duals)))
        assert names_of(called) == ["muladd_nb::_mymuladd_jvp.Tensor"]
        assert torch.equal(ours.primal, ops.mymuladd.Tensor(*args))
        torch.testing.assert_close(ours.tangent, right.tangent)


def test_in_forward_mode_a_mistake_is_told_in_the_words_of_the_operator(device):
    a, b = tensors([(3, 4), (2, 4)], device)
    shapes = r"^mymuladd: a, b and c must have shapes that broadcast, got \[3, 4\], \[2, 4\] and \[3, 4\]$"
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match=shapes):
        ops.mymuladd.Tensor(forward_ad.make_dual(a, a), b, a)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="^mymuladd: b must be a tensor, got None$"):
        ops.mymuladd.Tensor(forward_ad.make_dual(a, a), None, a)


def test_in_forward_mode_what_that_kernel_cannot_is_computed_by_each_tensor(device):
    """The cases are 16-bit dtypes, calls that reverse mode records too, and tangents of a subclass."""
    a, b, c, t = tensors([(5, 3)] * 4, device)
    leaf, leaf_tangent = a.clone().requires_grad_(), t.clone().requires_grad_()
    for x, tangent in (a.half(), t.half()), (leaf, t), (a, leaf_tangent), (a, TwoTensor(t, t)):
        other, third = b.to(x.dtype), c.to(x.dtype)
        with forward_ad.dual_level(), DispatchMode() as called:
            made = forward_ad.unpack_dual(ops.mymuladd.Tensor(forward_ad.make_dual(x, tangent), other, third)).tangent
        assert not any("jvp" in name for name in names_of(called))
        assert type(made) is type(tangent) and made.requires_grad == (x.requires_grad or tangent.requires_grad)
        whole, expected = (y.a if isinstance(y, TwoTensor) else y for y in (made, tangent * other))
        torch.testing.assert_close(whole, expected)


def test_where_torch_func_records_value_and_tangent_only_what_a_derivative_reads_is_saved(device):
    a, b, c, t = tensors([(5, 3)] * 4, device)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x.data_ptr()) or x, lambda x: x):
        made = torch.func.jvp(ops.mymuladd.Tensor, (a.requires_grad_(), b, c), (t, t, t + 1))
    assert {*packed} == {x.data_ptr() for x in (b, t)}  # the value's node reads b, and the tangent's reads t
    c.zero_()
    value, tangent = (torch.autograd.grad(x.sum(), a, retain_graph=True)[0] for x in made)
    torch.testing.assert_close((value, tangent), (b, t))


def test_where_tangents_alone_are_a_batch_the_value_is_none(device):
    a, b, c = tensors([(5, 3)] * 3, device)

    def value(t):
        return torch.func.jvp(lambda a: ops.mymuladd.Tensor(a, b, c), (a,), (t,))[0]

    # out_dims=None requires a value without a batch dimension.
    assert torch.equal(vmap(value, out_dims=None)(torch.stack([a, b])), ops.mymuladd.Tensor(a, b, c))


def test_inference_mode_has_no_tangents_under_a_transform(device):
    (a,) = tensors([(5, 3)], device)

    def of_no_tangent(a):
        with torch.inference_mode():
            return ops.mymuladd.Tensor(a, a, a)  # here unpack_dual(a) would fail

    assert not jacfwd(of_no_tangent)(a).any()


SUMMED = [
    ((700, 90), (90,), (90,)),  # along the first dimension
    ((90, 1), (90, 700), (90, 700)),  # along the last dimension
    ((3, 40, 500), (40, 1), ()),  # along the first and the last, and along all
    ((3, 1, 600), (3, 40, 600), (40, 600)),  # in the middle
    ((40, 600), (600, 40), (600,)),  # across the order of memory
    ((90_001,), (), (1,)),
    ((65_536, 4), (4,), (4,)),  # many rows
    ((0, 7), (7,), ()),
]


@pytest.mark.parametrize("shapes", SUMMED, ids=str)
def test_what_was_broadcast_is_summed_in_the_pass_of_the_gradients(shapes, dtype):
    """On the CPU, the bits are the same for any number of threads, and the sums are as accurate as the dtype."""
    args = [x.abs().requires_grad_() for x in tensors(shapes, dtype=dtype)]
    if shapes[1] == (600, 40):
        args[1] = args[1].detach().t().requires_grad_()
    result = ops.mymuladd.Tensor(*args)
    grad = torch.rand_like(result)
    threads = torch.get_num_threads()
    gradients = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        with DispatchMode() as called:
            gradients.append(torch.autograd.grad(ops.mymuladd.Tensor(*args), args, grad))
        assert names_of(called) == ["muladd_nb::mymuladd.Tensor", "muladd_nb::_mymuladd_gradients.Tensor"]
        gradients.append(torch.autograd.grad(ops.mymuladd.Tensor(*args), args, grad))  # not observed
    torch.set_num_threads(threads)
    wide = [x.detach().double().requires_grad_() for x in args]
    expected = torch.autograd.grad(reference(*wide), wide, grad.double())
    for x, y, *others in zip(args, expected, *gradients, strict=True):
        for ours in others:
            assert ours.shape == x.shape
            assert torch.equal(ours, others[0])
        torch.testing.assert_close(others[0], y.to(dtype), rtol=max(1e-12, 2 * torch.finfo(dtype).eps), atol=0)


@pytest.mark.parametrize("shapes", [((513, 513), (1, 513), (513, 1)), *SUMMED[:4], SUMMED[6]], ids=str)
def test_a_sum_has_the_same_bits_whichever_tensors_require_grad(shapes):
    args, grad = tensors(shapes, dtype=torch.float32), torch.rand(torch.broadcast_shapes(*shapes))

    def gradients(needs):
        given = [x.clone().requires_grad_(need) for x, need in zip(args, needs, strict=True)]
        wanted = [x for x in given if x.requires_grad]
        return torch.autograd.grad(ops.mymuladd.Tensor(*given), wanted, grad)

    of_all = gradients([True, True, True])
    for needs in itertools.product([True, False], repeat=3):
        if needs[0] or needs[1]:  # the gradient of c alone is summed by torch
            assert all(map(torch.equal, gradients(needs), itertools.compress(of_all, needs))), needs


def loss(f):
    return lambda *args: f(*args).sin().mean()


def recorded(f, *args):
    leaves = [x.detach().requires_grad_() for x in args]
    return torch.autograd.grad(loss(f)(*leaves), leaves, create_graph=True)


IN_EVERY_MODE = {
    "create_graph": recorded,
    "grad": lambda f, *args: grad(loss(f), (0, 1, 2))(*args),
    "vjp": lambda f, *args: vjp(f, *args)[1](args[0].cos()),
    "jacrev": lambda f, *args: jacrev(loss(f), (0, 1, 2))(*args),
    "vmap of grad": lambda f, *args: vmap(grad(loss(f), (0, 1, 2)), (0, None, None))(*args),
    "grad of vmap": lambda f, *args: grad(loss(lambda *x: vmap(f, (0, None, None))(*x)), (0, 1, 2))(*args),
}


@pytest.mark.parametrize("mode", IN_EVERY_MODE)
def test_what_was_broadcast_is_summed_in_that_pass_in_every_mode(mode):
    args = tensors([(4, 300, 90), (90,), (300, 1)], dtype=torch.float32)
    with DispatchMode() as called:
        ours = IN_EVERY_MODE[mode](ops.mymuladd.Tensor, *args)
    assert names_of(called) == ["muladd_nb::mymuladd.Tensor", "muladd_nb::_mymuladd_gradients.Tensor"]
    for x, y in zip(ours, IN_EVERY_MODE[mode](reference, *(x.double() for x in args)), strict=True):
        torch.testing.assert_close(x, y.float(), rtol=1e-5, atol=1e-7)


def test_only_what_is_read_is_saved():
    """The gradient of a in a * b + c reads b, and that of c nothing, even if gradients are summed in one pass."""
    needs = [(True, False, False), (False, True, False), (False, False, True), (True, True, True)]
    for need, read in zip(needs, ([1], [0], [], [0, 1]), strict=True):
        args = [x.requires_grad_(each) for x, each in zip(tensors([(300, 300), (300,), ()]), need, strict=True)]
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, saved=saved: saved.append(x) or x, lambda x: x):
            result = ops.mymuladd.Tensor(*args)
        assert type(result.grad_fn).__name__ == "MyMulAddBackward"
        assert [x.data_ptr() for x in saved] == [args[place].data_ptr() for place in read]
        gradients = torch.autograd.grad(result.sum(), [x for x in args if x.requires_grad], create_graph=True)
        assert [x.shape for x in gradients] == [x.shape for x in args if x.requires_grad]


@pytest.mark.parametrize("dims", [*itertools.product((0, 1, None), (0, 1, None), (0, None))][:-1], ids=str)
def test_vmap_aligns_what_a_function_sees(device, dims):
    # A function sees [4, 3], [3] and a number; a batch of 2 is put where dims says.
    seen = [x.expand(2, *x.shape).clone() for x in tensors([(4, 3), (3,), ()], device)]
    args = [x[0] if dim is None else x.movedim(0, dim) for x, dim in zip(seen, dims, strict=True)]
    for wrap in (lambda f: f, lambda f: lambda *x: torch.func.grad(lambda *y: f(*y).sin().sum(), (0, 1, 2))(*x)):
        torch.testing.assert_close(*(vmap(wrap(f), dims)(*args) for f in (ops.mymuladd.Tensor, reference)))
    out = torch.zeros(2, 4, 3, device=device, dtype=torch.float64)
    vmap(lambda *x: muladd_nb.mymuladd(*x[:3], out=x[3]), (*dims, 0))(*args, out)
    torch.testing.assert_close(out, vmap(reference, dims)(*args))


def program(x, weight, bias):
    return muladd_nb.mymuladd(x.abs(), weight, bias).neg()


@pytest.mark.parametrize("dynamic", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_compiled(device, dynamic):
    """Inductor fuses it with its neighbours, and the results have the bits of the kernel. Sizes stay dynamic."""
    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, dynamic=dynamic)
    for rows in (5, 4):
        args = [x.requires_grad_() for x in tensors([(rows, 3), (3,), (rows, 1)], device)]
        again = [x.detach().clone().requires_grad_() for x in args]
        with torch._dynamo.config.patch(error_on_recompile=dynamic):
            result, expected = compiled(*args), program(*again)
        assert torch.equal(result, expected)
        torch.testing.assert_close(*map(torch.autograd.grad, (result.sum(), expected.sum()), (args, again)))


def test_opcheck(device):
    for args in (tensors(shapes, device) for shapes in SHAPES[:3]):
        torch.library.opcheck(ops.mymuladd.Tensor, [x.requires_grad_() for x in args])


def test_jagged_tensors_with_a_weight_for_each_column(device):
    values = torch.randn(9, 4, device=device, dtype=torch.float64)
    x = torch.nested.nested_tensor_from_jagged(values.requires_grad_(), torch.tensor([0, 3, 4, 9], device=device))
    weight, bias = (y.requires_grad_() for y in tensors([(4,), (1,)], device))
    result = muladd_nb.mymuladd(x, weight, bias)
    assert result.shape == x.shape
    assert torch.equal(result.values(), muladd_nb.mymuladd(values, weight, bias))
    result.values().sin().sum().backward()
    for y in (values, weight, bias):
        ours, y.grad = y.grad, None
        reference(values, weight, bias).sin().sum().backward(inputs=[y])
        torch.testing.assert_close(ours, y.grad)
    sentence = "mymuladd: b must have at most 1 dimensions, as a has after its ragged one, got 2; expand it"
    assert message(muladd_nb.mymuladd, x, weight.expand(1, 4), bias) == sentence
