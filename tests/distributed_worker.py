"""One process of test_distributed.py: runs every check, and writes the results.

A check is a function of a device mesh. It runs in all processes at once, and fails if it fails in any of them.
"""

import itertools
import json
import os
import sys
import traceback
from functools import partial

import pytest
import torch
import torch.distributed as dist
from calls import FUNCTIONS, RETURNING, WRITES
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map, register_sharding
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import muladd_nb
import muladd_nb.dtensor
from muladd_nb._layer import dtensor
from muladd_nb._layer.kernel import Kernel
from muladd_nb._layer.operator import Elementwise, Form

ops = torch.ops.muladd_nb
CHECKS = {}
PLACEMENTS = (Shard(0), Shard(1), Replicate(), Partial())
SHAPE = (5, 7)  # uneven on 2 and on 4 processes


def check(function):
    CHECKS[function.__name__] = function
    return function


def distribute(x, mesh, placements):
    """Return `x` as a DTensor. If it is partial, each process holds an equal share of the sum."""
    whole = [Replicate() if placement.is_partial() else placement for placement in placements]
    parts = 1
    for size, placement in zip(mesh.shape, placements, strict=True):
        parts *= size if placement.is_partial() else 1
    local = distribute_tensor(x / parts, mesh, whole).to_local()
    return DTensor.from_local(local, mesh, placements, shape=x.shape, stride=x.stride(), run_check=False)


def pairs(mesh):
    """Yield all 16 pairs of placements. On a mesh of two dimensions, b has its placements in the reverse order."""
    for pair in itertools.product(PLACEMENTS, repeat=2):
        yield ([pair[0]], [pair[1]]) if mesh.ndim == 1 else (list(pair), list(pair[::-1]))


def some(calls, mesh):
    """Return all calls on a mesh of one dimension. On two, where each takes long, return those with different rules."""
    return calls if mesh.ndim == 1 else FUNCTIONS if calls is RETURNING else calls[:1]


def sharded(mesh, shape=SHAPE):
    torch.manual_seed(1)
    whole = torch.randn(shape, device=mesh.device_type)
    return whole, distribute(whole, mesh, [Shard(0)] * mesh.ndim)


def expect_error(sentence, function, *args, **kwargs):
    with pytest.raises(RuntimeError) as error:
        function(*args, **kwargs)
    assert sentence in str(error.value)


@check
def placements_forward_and_backward(mesh):
    a, b, grad = (torch.randn(SHAPE, dtype=torch.float64, device=mesh.device_type) for _ in range(3))
    for call in some(RETURNING, mesh):
        leaves = [x.clone().requires_grad_() for x in (a, b)]
        expected = call.expected(*leaves)
        gradients = torch.autograd.grad(expected, leaves, grad, materialize_grads=True)
        for of_a, of_b in pairs(mesh):
            x, y = (distribute(v, mesh, p).requires_grad_() for v, p in ((a, of_a), (b, of_b)))
            result = call(x, y)
            if not call.form.promises.linear:
                assert not any(p.is_partial() for p in result.placements), (call, of_a, of_b, result.placements)
            torch.testing.assert_close(result.full_tensor(), expected)
            ours = torch.autograd.grad(
                result, (x, y), distribute(grad, mesh, [Replicate()] * mesh.ndim), materialize_grads=True
            )
            for gradient, right in zip(ours, gradients, strict=True):
                torch.testing.assert_close(gradient.full_tensor(), right)


@check
def a_product_may_stay_partial(mesh):
    a, b = (torch.randn(SHAPE, device=mesh.device_type) for _ in range(2))
    partial, replicate = [Partial()] * mesh.ndim, [Replicate()] * mesh.ndim
    result = ops.mymul(distribute(a, mesh, partial), distribute(b, mesh, replicate))
    assert all(p.is_partial() for p in result.placements)
    torch.testing.assert_close(result.full_tensor(), a * b)


@check
def a_partial_c_stays_partial_where_that_is_right(mesh):
    a, b, c = (torch.randn(SHAPE, device=mesh.device_type) for _ in range(3))
    partial, replicate = [Partial()] * mesh.ndim, [Replicate()] * mesh.ndim
    for of_a, of_c in itertools.product((partial, replicate), repeat=2):
        result = muladd_nb.mymuladd(
            distribute(a, mesh, of_a), distribute(b, mesh, replicate), distribute(c, mesh, of_c)
        )
        # If the product is not partial, each process would add its part of c to the whole product.
        assert any(p.is_partial() for p in result.placements) or not of_a is of_c is partial
        torch.testing.assert_close(result.full_tensor(), a * b + c)


@check
def without_an_optional_tensor_an_operator_may_not_be_linear(mesh):
    declaration, promises = "affine(Tensor x, Tensor? weight, Tensor? bias)", Elementwise(linear=({"weight", "bias"},))
    with torch.library._scoped_library("optional", "FRAGMENT") as library:
        library.define(f"{declaration} -> Tensor")
        op = torch.ops.optional.affine.default
        library.impl("affine", lambda x, weight, bias: x + bias, "CompositeExplicitAutograd")
        form = Form(declaration, "functional", op, (torch.float32,), promises)
        register_sharding(op)(partial(dtensor._shardings, form))
        x, bias = (torch.randn(SHAPE, device=mesh.device_type) for _ in range(2))
        whole, part = [Replicate()] * mesh.ndim, [Partial()] * mesh.ndim
        result = op(distribute(x, mesh, whole), None, distribute(bias, mesh, part))
        torch.testing.assert_close(result.full_tensor(), x + bias)


@check
def parameters_of_fsdp_and_tensor_parallelism_keep_their_placement(mesh):
    if mesh.ndim == 1:
        return
    model = nn.Sequential(nn.Linear(8, 8))
    parallelize_module(model, mesh["columns"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=mesh["rows"])
    weight = model[0].weight
    result = ops.mymul(weight, weight)
    assert result.placements == weight.placements
    torch.testing.assert_close(result.full_tensor(), weight.full_tensor() ** 2)


@check
def out_keeps_its_placement(mesh):
    a, b = (torch.randn(SHAPE, device=mesh.device_type) for _ in range(2))
    placements = [[p] * mesh.ndim for p in (Shard(0), Shard(1), Replicate())]
    if mesh.ndim == 2:
        placements += [[Shard(0), Replicate()], [Replicate(), Shard(1)], [Shard(0), Shard(1)]]
    for call in some(WRITES, mesh):
        for of_a, of_out in itertools.product(placements + [[Partial()] * mesh.ndim], placements):
            x, y = distribute(a, mesh, of_a), distribute(b, mesh, of_a)
            out = distribute(torch.zeros_like(a), mesh, of_out)
            pointer, version = out.to_local().data_ptr(), out._version
            call(x, y, out=out)
            assert list(out.placements) == of_out
            assert out.to_local().data_ptr() == pointer
            assert out._version == version + 1
            torch.testing.assert_close(out.full_tensor(), call.expected(a, b))


@check
def what_is_broadcast_is_placed_by_the_result(mesh):
    x, row, column = (torch.randn(shape, device=mesh.device_type) for shape in (SHAPE, (7,), (5, 1)))
    expected = torch.addcmul(column, x, row)
    replicate = [Replicate()] * mesh.ndim
    for of_x in ([Shard(0)] * mesh.ndim, [Shard(1)] * mesh.ndim, replicate):
        leaves = [distribute(x, mesh, of_x), distribute(row, mesh, replicate), distribute(column, mesh, replicate)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        result = muladd_nb.mymuladd(*leaves)
        assert list(result.placements) == of_x
        torch.testing.assert_close(result.full_tensor(), expected)
        result.sum().backward()
        for leaf, gradient in zip(leaves, (row.expand(SHAPE), x.sum(0), torch.full((5, 1), 7.0)), strict=True):
            torch.testing.assert_close(leaf.grad.full_tensor(), gradient.to(mesh.device_type))
        out = distribute(torch.zeros_like(x), mesh, of_x)
        sharded_row = distribute(row, mesh, [Shard(0)] * mesh.ndim)
        with torch.no_grad():
            muladd_nb.mymuladd(leaves[0], sharded_row, leaves[2], out=out)
        assert list(out.placements) == of_x
        torch.testing.assert_close(out.full_tensor(), expected)
        scalar = torch.tensor(0.5, device=mesh.device_type)  # a plain tensor, which torch's operators accept, too
        muladd_nb.mymuladd(out, sharded_row, scalar, out=out)
        torch.testing.assert_close(out.full_tensor(), expected * row + 0.5)


@check
def bad_arguments_are_refused(mesh):
    whole, x = sharded(mesh)
    _, narrow = sharded(mesh, (5, 6))
    out = distribute(torch.zeros_like(whole), mesh, [Partial()] * mesh.ndim)
    expect_error("need to convert all torch.Tensor to DTensor", ops.mymuladd, x, whole, 0.5)
    expect_error("mymuladd_out: a, b and out must all be DTensors, but b is", muladd_nb.mymuladd, x, whole, 0.5, out=x)
    expect_error("mymuladd_out: a, b and out must all be DTensors, but out is", ops.mymuladd_out, x, x, 0.5, whole)
    expect_error(
        "mymuladd_out: out must be sharded or replicated, got the placements (P", ops.mymuladd_out, x, x, 1, out
    )
    expect_error("mymuladd: a and b must have the same shape, got [5, 7] and [5, 6]", ops.mymuladd, x, narrow, 0.5)
    expect_error("mymul.out: a and b must have the same shape, got [5, 7] and [5, 6]", ops.mymul.out, x, narrow, out=x)
    expect_error("mymul: a and b must have the same dtype, got float32 and float64", muladd_nb.mymul, x, x.double())
    other = init_device_mesh(mesh.device_type, (dist.get_world_size(), 1))
    y = distribute(whole, other, [Shard(0), Replicate()])
    expect_error("myadd_out: a and out must be on the same mesh, got", ops.myadd_out, y, x, x)


def backend(mesh):
    """Return Inductor only for a mesh of two dimensions, which only the slow tests use."""
    return "aot_eager" if mesh.ndim == 1 else "inductor"


@check
def a_kernel_of_ones_own_is_not_computed_shard_by_shard(mesh):
    """The kernel may compute a sum over a sharded dimension. Only its author knows that."""
    with torch.library._scoped_library("kernels", "FRAGMENT") as library:
        library.define("whole(Tensor x) -> Tensor")
        op = torch.ops.kernels.whole.default
        library.impl("whole", lambda x: x.sum(-1), "CompositeExplicitAutograd")
        dtensor.register([Kernel(str(op._schema), "kernel", op, (), None)])
        expect_error("sharding strategy", op, distribute_tensor(torch.ones(4, 4), mesh, [Shard(1)] * mesh.ndim))


@check
def compiled(mesh):
    whole, x = sharded(mesh)
    y = distribute(whole, mesh, [Replicate()] * mesh.ndim)
    x.requires_grad_()

    def loss(x, y, c):
        return muladd_nb.mymuladd(x.sin(), y, c).cos().sum()

    step = torch.compile(loss, fullgraph=True, backend=backend(mesh))
    for c in (0.5, 0.6, 0.7):
        plain = whole.clone().requires_grad_()
        (expected,) = torch.autograd.grad((plain.sin() * whole + c).cos().sum(), plain)
        (result,) = torch.autograd.grad(step(x, y, c), x)
        torch.testing.assert_close(result.full_tensor(), expected)


@check
def compiled_write(mesh):
    whole, x = sharded(mesh)
    out = torch.zeros_like(x)

    def write(x, out):
        muladd_nb.mymuladd(x, x, 0.5, out=out)
        return out + 1

    result = torch.compile(write, fullgraph=True, backend=backend(mesh))(x, out)
    torch.testing.assert_close(out.full_tensor(), whole * whole + 0.5)
    torch.testing.assert_close(result.full_tensor(), whole * whole + 1.5)


@check
def local_map_runs_the_operator_on_shards(mesh):
    whole, x = sharded(mesh, (8, 3))
    shards = [Shard(0)] * mesh.ndim
    function = local_map(
        lambda a, b: ops.mymuladd(a, b, 0.5), out_placements=shards, in_placements=(shards, shards), device_mesh=mesh
    )
    assert torch.equal(function(x, x).full_tensor(), ops.mymuladd(whole, whole, 0.5))


class Modulated(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.gain, self.classes = nn.Linear(6, 10), nn.Linear(6, 10), nn.Linear(10, 3)
        self.scale = nn.Parameter(torch.randn(10))

    def forward(self, x):
        hidden = muladd_nb.mymuladd(self.features(x), self.gain(x), 1.0)
        return self.classes(hidden)


class Scaled(Modulated):
    """A model with one more parameter, which FSDP shards and gathers, and by which it multiplies."""

    def forward(self, x):
        hidden = muladd_nb.mymuladd(self.features(x), self.gain(x), 1.0)
        return self.classes(muladd_nb.mymul(hidden, self.scale.expand_as(hidden)))


def twins(model_class, device):
    """Return a model and its copy, and an input, the same in every process."""
    torch.manual_seed(2)
    model, copy = model_class().to(device), model_class().to(device)
    copy.load_state_dict(model.state_dict())
    return model, copy, torch.randn(8, 6, device=device)


def compare_gradients(model, reference, **tolerance):
    for (name, parameter), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        if expected.grad is not None:
            grad = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
            torch.testing.assert_close(grad, expected.grad, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


def compare(model, reference, x):
    torch.testing.assert_close(model(x), reference(x))
    for m in (model, reference):
        m(x).sin().sum().backward()
    compare_gradients(model, reference)


@check
def fsdp(mesh):
    if mesh.ndim == 2:
        return
    model, reference, x = twins(Scaled, mesh.device_type)
    fully_shard(model, mesh=mesh)
    compare(model, reference, x)


@check
def fsdp_with_bfloat16(mesh):
    if mesh.ndim == 2:
        return
    model, reference, x = twins(Scaled, mesh.device_type)
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    y = model(x)
    assert y.dtype == torch.bfloat16
    y.float().sin().sum().backward()
    reference(x).sin().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    compare_gradients(model, reference, rtol=0.1, atol=0.2)


@check
def tensor_parallel(mesh):
    model, reference, x = twins(Modulated, mesh.device_type)
    columns, rows = (mesh["rows"], mesh["columns"]) if mesh.ndim == 2 else (mesh, None)
    column = ColwiseParallel(use_local_output=False)
    plan = {"features": column, "gain": column, "classes": RowwiseParallel()}
    parallelize_module(model, columns, plan)
    if rows is not None:
        fully_shard(model, mesh=rows)
    compare(model, reference, x)


def main(device, **meet):
    dist.init_process_group("nccl" if device == "cuda" else "gloo", **meet)
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank())
    shape = (dist.get_world_size(),) if dist.get_world_size() < 4 else (2, 2)
    mesh = init_device_mesh(device, shape, mesh_dim_names=("rows", "columns")[: len(shape)])
    report = {}
    for name, function in CHECKS.items():
        torch.manual_seed(0)
        torch._dynamo.reset()
        try:
            function(mesh)
            failure = ""
        except Exception:
            failure = traceback.format_exc()
        failures = [""] * dist.get_world_size()
        dist.all_gather_object(failures, failure)
        report[name] = "\n".join(filter(None, failures))
    if dist.get_rank() == 0:
        print(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # why: docs/examples/distributed/README.md


if __name__ == "__main__":
    main(sys.argv[1])
