"""Profilers, modes and other observers see the operators, even those that the public functions call directly."""

import json
import threading

import numpy as np
import pytest
import torch
from calls import CALLS
from conftest import each, on_cuda
from modes import DispatchMode, FunctionMode
from torch.fx.experimental.proxy_tensor import make_fx

import muladd_nb

ops = torch.ops.muladd_nb


def inputs(device):
    return [torch.randn(3, device=device) for _ in range(3)]


@each(CALLS)
@pytest.mark.parametrize("mode", [DispatchMode, FunctionMode])
def test_modes_see_the_operator(device, call, mode):
    with mode() as observer:
        call(*inputs(device), out=torch.empty(3, device=device))
    # A function mode sees torch.ops.muladd_nb.mymuladd; a dispatch mode sees its overload.
    op = call.form.op
    assert ({op} if mode is DispatchMode else {op, op.overloadpacket}) & set(observer.seen)


@pytest.mark.parametrize("observer", [
    DispatchMode,
    FunctionMode,
    lambda: torch.autocast("cpu", torch.bfloat16),
], ids=["dispatch mode", "function mode", "autocast"])  # fmt: skip
def test_who_observes_one_thread_observes_no_other(observer):
    a, b, _ = inputs("cpu")
    entered, left = threading.Event(), threading.Event()
    modes, dtypes = [], []

    def observed():
        muladd_nb.mymuladd(a, b, 0.5)  # the first call is not observed
        with observer() as mode:
            modes.append(mode)
            entered.set()
            left.wait()
            dtypes.append(muladd_nb.mymuladd(a, b, 0.5).dtype)

    thread = threading.Thread(target=observed)
    thread.start()
    entered.wait()
    assert muladd_nb.mymuladd(a, b, 0.5).dtype == torch.float32
    seen = getattr(modes[0], "seen", [])
    assert not seen
    left.set()
    thread.join()
    assert seen or dtypes == [torch.bfloat16]


@each(CALLS)
def test_make_fx_records_the_operator(device, call):
    a, b, c = inputs(device)
    graph = make_fx(lambda *x: call(*x, out=torch.empty_like(a)))(a, b, c)
    assert call.form.op in [node.target for node in graph.graph.nodes]


@each(CALLS)
def test_the_profiler_names_the_operator(device, call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        call(*inputs(device), out=torch.empty(3, device=device))
    assert call.form.op._schema.name in {event.name for event in profiler.events()}


@each(CALLS)
def test_an_execution_trace_has_the_operator(device, call, tmp_path):
    path = tmp_path / "trace.json"
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    call(*inputs(device), out=torch.empty(3, device=device))
    observer.stop()
    observer.unregister_callback()
    assert call.form.op._schema.name in {node["name"] for node in json.loads(path.read_text())["nodes"]}


@each(CALLS)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # a number that is made there is a constant
def test_jit_trace_records_the_operator(device, call):
    def function(a, b, c):
        out = torch.zeros_like(a)
        result = call(a, b, c, out=out)
        return out.clone() if call.writes else result

    a, b, c = (x.requires_grad_(not call.writes) for x in inputs(device))
    traced = torch.jit.trace(function, (a, b, c))
    assert call.form.op._schema.name in {node.kind() for node in traced.graph.nodes()}
    assert torch.equal(traced(b, c, a), function(b, c, a))


@pytest.mark.parametrize(("wrong", "got"), [
    (1.5, "1.5, of type float; make one with torch.full_like"),
    ("x", "'x', of type str"),
    ([1.0], "a list; make a tensor of it with torch.as_tensor"),
    (np.ones(1), "a numpy.ndarray; make a tensor of it with torch.as_tensor"),
])  # fmt: skip
def test_what_is_no_tensor_is_a_type_error(wrong, got):
    x = torch.ones(2)
    for call, argument in (
        (lambda: muladd_nb.mymuladd(x, wrong, 0.5), "mymuladd: b must be a tensor"),
        (lambda: muladd_nb.mymul(x, x, out=wrong), "mymul: out must be a tensor"),
        (lambda: muladd_nb.myadd_out(wrong, x, x), "myadd_out: a must be a tensor"),
        (lambda: muladd_nb.mymuladd(x, x, wrong), "mymuladd: c must be a real number or a tensor"),
    ):
        if not (isinstance(wrong, float) and argument.startswith("mymuladd: c")):
            with pytest.raises(TypeError, match=f"^{argument}, got {got}$"):
                call()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_call_allocates_its_result_and_nothing_else(device, requires_grad):
    a, b = (torch.randn(1 << 16, device=device, requires_grad=requires_grad) for _ in range(2))
    b = b.view(256, 256).t()
    a = a.view(256, 256)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = ops.mymuladd(a, b, 0.5)
    memory = "self_device_memory_usage" if device == "cuda" else "self_cpu_memory_usage"
    assert sum(getattr(event, memory) for event in profiler.events()) == result.nbytes
    with (
        torch.no_grad(),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        ops.mymuladd_out(a, b, 0.5, result)
    assert not any(getattr(event, memory) for event in profiler.events())


@on_cuda()
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_cuda_graphs(layout):
    a, b, out = (torch.randn(300, 300, device="cuda") for _ in range(3))
    b = b.t() if layout == "transposed" else b
    ops.mymuladd_out(a, b, 0.5, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.mymuladd_out(a, b, 0.5, out)
        result = ops.mymul(a, b)
    a.normal_()
    graph.replay()
    assert torch.equal(out, ops.mymuladd(a, b, 0.5))
    assert torch.equal(result, ops.mymul(a, b))


@on_cuda()
def test_the_current_stream_is_used():
    stream = torch.cuda.Stream()
    a = torch.zeros(1 << 24, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.fill_(1.0)
        result = ops.mymuladd(a, a, 1.0)
    stream.synchronize()
    assert (result == 2.0).all()


@on_cuda()
def test_two_streams_at_once():
    streams = [torch.cuda.Stream() for _ in range(2)]
    a = torch.randn(1 << 20, device="cuda")
    torch.cuda.synchronize()
    results = []
    for first in range(20):
        for c, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results.append((first + c, ops.mymuladd(a, a, float(first + c))))
    torch.cuda.synchronize()
    for c, result in results:
        assert torch.equal(result.cpu(), ops.mymuladd(a.cpu(), a.cpu(), float(c)))


@on_cuda(2)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_a_second_device_is_used_while_the_first_is_current(layout):
    a = torch.randn(300, 300, device="cuda:1")
    b = a.t() if layout == "transposed" else a
    result = ops.mymuladd(a, b, 0.5)
    assert (result.device, torch.cuda.current_device()) == (a.device, 0)
    assert torch.equal(result.cpu(), ops.mymuladd(a.cpu(), b.cpu(), 0.5))
