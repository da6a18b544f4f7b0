"""ATen's node records small calls: values, gradients, error messages, and the calls that it does not record."""

import itertools
import threading
import warnings
from contextlib import contextmanager
from functools import partial

import modes
import numpy as np
import pytest
import torch
from calls import RETURNING
from layouts import ALL, odd_stride
from torch._dynamo import compiled_autograd
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts, noop_context_fn

LARGEST_OF_ATEN = 2**20  # the number of elements of the largest call that ATen's node records


def node(result):
    return type(result.grad_fn).__name__


def leaves(count, device, dtype=torch.float32, shape=(5, 7)):
    return [torch.randn(shape, device=device).to(dtype).requires_grad_() for _ in range(count)]


# By name: the call, the node of a small call, our own node, and the number of tensors. The node of a small call is
# ATen's, or our own if there is no fast path.
CALLS = {
    str(call): (
        call,
        node(aten(*leaves(len(call.names), "cpu"))) if call.form.aten_node else f"{call.form.promises.node}Backward",
        f"{call.form.promises.node}Backward",
        len(call.names),
    )
    for call in RETURNING
    if (aten := call.form.promises.aten) and call.form.kind == "functional" and not call.form.tensor_numbers
}
every_call = pytest.mark.parametrize(("call", "aten", "own", "count"), CALLS.values(), ids=CALLS)


@every_call
def test_values_gradients_and_strides_are_those_of_a_call_that_aten_does_not_record(
    device, dtype, call, aten, own, count
):
    inputs = leaves(count, device, dtype)
    grad = torch.randn(5, 7, device=device).to(dtype)
    small = call(*inputs)
    with torch.profiler.profile():
        ordinary = call(*inputs)
    assert (node(small), node(ordinary)) == (aten, own)
    assert (small._version, small.stride(), small.dtype) == (0, ordinary.stride(), ordinary.dtype)
    assert torch.equal(small, call(*(x.detach() for x in inputs)))
    of_small, of_ordinary = (torch.autograd.grad(result, inputs, grad) for result in (small, ordinary))
    assert all(map(torch.equal, of_small, of_ordinary))


@every_call
@pytest.mark.parametrize("layout", [*ALL, odd_stride])
def test_every_layout_has_its_strides_and_values(device, call, aten, own, count, layout):
    inputs = [layout(torch.randn(4, 6, device=device)).detach().requires_grad_() for _ in range(count)]
    result, plain = call(*inputs), call(*(x.detach() for x in inputs))
    assert result.stride() == plain.stride()
    assert torch.equal(result, plain)


@every_call
def test_a_storage_that_was_shrunk_is_not_read(device, call, aten, own, count):
    for place in range(count):
        inputs = leaves(count, device, shape=(1 << 14,))
        inputs[place].untyped_storage().resize_(64)
        with pytest.raises(RuntimeError, match="must lie in its storage"):
            call(*inputs)


@every_call
def test_nothing_outlives_a_call(device, call, aten, own, count):
    inputs = leaves(count, device)
    result = call(*inputs)
    storages = [StorageWeakRef(x.untyped_storage()) for x in (*inputs, result)]
    del inputs, result
    assert all(storage.expired() for storage in storages)


class Subclass(torch.Tensor):
    pass


@contextmanager
def profiler_of_another_thread():
    running, done = threading.Event(), threading.Event()

    def run():
        with torch.profiler.profile():
            running.set()
            done.wait()

    thread = threading.Thread(target=run)
    thread.start()
    running.wait()
    yield
    done.set()
    thread.join()


# Contexts that decide which node a call gets.
OBSERVERS = modes.OBSERVERS | {
    "profiler of another thread": profiler_of_another_thread,
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
}
SEES_OPERATORS = {"dispatch mode", "flop counter", "profiler"}  # these must see our operator, not ATen's


def appearance(call, inputs):
    """Return the inputs of a node and its saved tensors as indices; of the latter also shape, strides and dtype."""
    place_of = {x.data_ptr(): place for place, x in enumerate(inputs)}
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        result = call(*inputs)
    edges = [None if edge is None else place_of[edge.variable.data_ptr()] for edge, _ in result.grad_fn.next_functions]
    return edges, [(place_of[x.data_ptr()], x.shape, x.stride(), x.dtype, x._version) for x in saved]


@every_call
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_every_node_looks_the_same(device, call, aten, own, count):
    """Tries each subset of inputs that require grad, with any observer and size."""
    for needs in itertools.product([False, True], repeat=count):
        if not any(needs):
            continue
        seen = []
        for size, observer in itertools.product([5, LARGEST_OF_ATEN, LARGEST_OF_ATEN + 1], OBSERVERS):
            inputs = [torch.zeros(size, dtype=torch.float64, device=device).requires_grad_(need) for need in needs]
            with OBSERVERS[observer]():
                edges, saved = appearance(call, inputs)
                recorded_by = node(call(*inputs))
            by_aten = size <= LARGEST_OF_ATEN and observer not in SEES_OPERATORS
            assert recorded_by == (aten if by_aten else own), (size, observer)
            seen.append((edges, [(place, *rest) for place, shape, *rest in saved if shape == (size,)]))
        assert all(one == seen[0] for one in seen)


@every_call
@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_checkpointing_pairs_what_two_nodes_save(device, call, aten, own, count, observer):
    """Checkpointing works if a mode or a profiler is active only in the forward pass, or only in its recomputation."""
    weights = [torch.full((3,), value, device=device, dtype=torch.float64) for value in (2.0, 3.0, 5.0)]

    def product(*x):
        return call(*(y * weight for y, weight in zip(x, weights, strict=False)))

    inputs = leaves(count, device, torch.float64, shape=(3,))
    expected = torch.autograd.grad(product(*inputs).sum(), inputs)
    selective = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mul.Tensor])
    for (of_forward, of_backward), contexts in itertools.product(
        [(observer, "none"), ("none", observer)], [noop_context_fn, selective]
    ):
        with OBSERVERS[of_forward]():
            result = checkpoint(product, *inputs, use_reentrant=False, context_fn=contexts)
        with OBSERVERS[of_backward]():
            assert all(map(torch.equal, torch.autograd.grad(result.sum(), inputs), expected))


@every_call
def test_a_subclass_is_recorded_by_our_node(device, call, aten, own, count):
    result = call(*(x.detach().as_subclass(Subclass).requires_grad_() for x in leaves(count, device)))
    assert type(result) is Subclass
    ((below, _),) = result.grad_fn.next_functions  # below the node that made a subclass
    assert type(below).__name__ == own


@every_call
def test_parameters_are_recorded_too(device, call, aten, own, count):
    parameters = [torch.nn.Parameter(x.detach()) for x in leaves(count, device)]
    result = call(*parameters)
    assert node(result) == aten
    assert type(result) is torch.Tensor


@every_call
def test_anomaly_mode_names_the_call(device, call, aten, own, count):
    inputs = leaves(count, device)
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = call(*inputs)
        with pytest.raises(RuntimeError, match=f"'{aten}' returned nan"):
            result.backward(torch.full_like(result, np.nan))


@every_call
def test_what_is_refused_is_refused_in_the_same_words(device, call, aten, own, count):
    x = torch.randn(4, device=device)
    others = [
        torch.randn(2, device=device),
        torch.randn(3, 1, 5, device=device),
        torch.randn(0, device=device),
        torch.randn(4, device=device, dtype=torch.float64),
        torch.randn(4, device="meta"),
        torch.ones(4, dtype=torch.int32, device=device),
        torch.randn(4, device=device).to_sparse(),
    ]
    for other in others:
        arguments = [x, other, x][:count]
        said = []
        for requires_grad in (False, True):
            with pytest.raises(RuntimeError) as error:
                call(arguments[0].detach().requires_grad_(requires_grad), *arguments[1:])
            said.append(str(error.value).splitlines()[0])
        assert said[0] == said[1]


@every_call
def test_a_lazily_negated_input(device, call, aten, own, count):
    first, *others = leaves(count, device, shape=(1,))
    negated = torch.randn(1, dtype=torch.complex64, device=device).conj().imag
    assert negated.is_neg() and negated.is_contiguous()
    expected = call(first.detach(), negated.resolve_neg(), *(x.detach() for x in others[1:]))
    assert torch.equal(call(first, negated, *others[1:]), expected)


@every_call
def test_flushing_subnormals_changes_no_value_and_no_gradient(call, aten, own, count):
    inputs = [torch.full((3,), x).requires_grad_() for x in (1e-40, 1.0, 1e-40)[:count]]
    expected = call(*(x.detach() for x in inputs), c=0.0)
    assert expected[0] != 0
    tiny = torch.full((3,), 1e-40)
    assert torch.set_flush_denormal(True)
    try:
        result = call(*inputs, c=0.0)
        gradient, *_ = torch.autograd.grad(result, inputs, tiny)
    finally:
        torch.set_flush_denormal(False)
    assert node(result) == own
    assert torch.equal(result, expected)
    assert torch.equal(gradient, tiny)


@every_call
def test_under_compiled_autograd_the_gradients_are_the_same(device, call, aten, own, count):
    inputs = leaves(count, device)
    expected = torch.autograd.grad(call(*inputs).sum(), inputs)
    with compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
        call(*inputs).sum().backward()
    assert all(map(torch.equal, [x.grad for x in inputs], expected))
