"""Writes into `out` are complete, stay within `out`, and are visible to autograd."""

import warnings

import calls
import modes
import pytest
import torch
from calls import WRITES, WRITING
from conftest import each
from torch.testing._internal.two_tensor import TwoTensor

ops = torch.ops.muladd_nb


@each(WRITES)
def test_written_in_place(call, device, dtype):
    a, b, out = (torch.randn(5, 7, device=device).to(dtype) for _ in range(3))
    pointer, version = out.data_ptr(), out._version
    result = call(a, b, out=out)
    assert torch.equal(out, call.result(a, b))
    assert out.data_ptr() == pointer
    assert out._version == version + 1
    assert result is (out if call.returns_out or (call.is_public and call.form.functional) else None)


@each(WRITING)
def test_writes_to_the_meta_device_are_counted_and_refused_ones_are_not(call):
    a, out = torch.empty(3, device="meta"), torch.empty(3, device="meta")
    call(a, out=out)
    assert out._version == 1
    with pytest.raises(RuntimeError, match=f"^{call.form.name}: .*out must have the s"):
        call(a[:2], out=out)
    assert out._version == 1


@each(WRITING)
@pytest.mark.parametrize("n", [7, 1 << 17])
def test_out_may_be_an_input_itself(call, device, dtype, n):
    for which in range(len(call.names)):
        inputs = [torch.randn(n, device=device).to(dtype) for _ in call.names]
        expected = call.result(*inputs)
        call(*inputs, out=inputs[which])
        assert torch.equal(inputs[which], expected)
    every = torch.randn(n, device=device).to(dtype)
    expected = call.result(every)
    call(every, out=every)
    assert torch.equal(every, expected)


OVERLAPPING = {
    "shifted": lambda m: (m[:50], m[1:51]),
    "transposed": lambda m: (m.view(10, 10), m.view(10, 10).t()),
    "expanded": lambda m: (m[:10].view(2, 5), m[3:4].expand(2, 5)),
}


@each(WRITING)
@pytest.mark.parametrize("case", OVERLAPPING)
def test_partial_overlap_is_refused(call, device, case):
    memory = torch.randn(100, device=device)
    before = memory.clone()
    out, x = OVERLAPPING[case](memory)
    for place, name in enumerate(call.names):
        inputs = [torch.zeros(x.shape, device=device) for _ in call.names]
        inputs[place] = x
        with pytest.raises(RuntimeError, match=f"^{call.form.name}: out must be {name} itself or share no memory with"):
            call(*inputs, out=out)
    assert torch.equal(memory, before)


@pytest.mark.parametrize(
    "views",
    [
        lambda: torch.zeros(200_000, 8).split(4, 1),
        lambda: torch.zeros(300, 300, 4).split(2, 2),
        lambda: (torch.zeros(8, 64, 57, 57)[:, :, :56, :28],) * 2,
        lambda: torch.zeros(8, 64, 64, 32, 2).unbind(-1),
        lambda: (m := torch.zeros(32, 64, 57, 57)) is not None and (m[:, :, :56, :28], m[:, :, 1:, 29:]),
    ],
)
def test_large_views_that_share_no_element_are_taken(views):
    out, x = views()
    ops.myadd_out(x, x, out)


def test_memory_of_any_alignment_is_written(dtype):
    """This includes tensors larger than the caches, for which stores are streamed."""
    for n in (1000, 1 << 23):
        for offset in (1, 6):
            raw = bytearray(n * dtype.itemsize + 8)
            out = torch.frombuffer(raw, dtype=dtype, offset=offset, count=n)
            a = torch.full((n,), 1.5, dtype=dtype)
            ops.mymuladd_out(a, a, 0.25, out)
            assert (out == 2.5).all()


def test_overlap_is_decided_as_numpy_decides():
    """For random views of the same memory, the check agrees with numpy.shares_memory."""
    numpy = pytest.importorskip("numpy")
    generator = torch.Generator().manual_seed(3)

    def random(low, high, size):
        return torch.randint(low, high, size, generator=generator).tolist()

    decided = {True: 0, False: 0}
    for _ in range(2000):
        memory = torch.arange(200.0)
        shape = random(1, 4, (3,))
        strides = [random(1, 20, (3,)) for _ in range(2)]
        offsets = random(0, 60, (2,))
        out, x = (memory.as_strided(shape, s, o) for s, o in zip(strides, offsets, strict=True))
        itself = (
            len({int(i) for i in torch.arange(200).as_strided(shape, strides[0], offsets[0]).flatten()}) < out.numel()
        )
        same = offsets[0] == offsets[1] and all(size == 1 or s == t for size, s, t in zip(shape, *strides, strict=True))
        refused = itself or (not same and numpy.shares_memory(out.numpy(), x.numpy()))
        decided[bool(refused)] += 1
        expected = x + 1
        try:
            ops.myadd_out(x, torch.ones(shape), out)
            assert not refused and torch.equal(out, expected), (shape, strides, offsets)
        except RuntimeError:
            assert refused, (shape, strides, offsets)
    assert min(decided.values()) > 100


OBSERVERS = modes.OBSERVERS | {"inference mode": torch.inference_mode}
KINDS = {"plain": lambda x: x, "wrapper": lambda x: TwoTensor(x, x.clone())}


@each(WRITES)
@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_write_is_counted(device, call, observer, kind):
    """A backward pass through an overwritten tensor raises, whatever observes the write."""
    x = torch.randn(4, device=device, requires_grad=True)
    memory, a = (KINDS[kind](torch.randn(4, device=device)) for _ in range(2))
    for view in (memory, memory[1:]):
        y, part = x * memory, a[4 - len(view) :]
        with OBSERVERS[observer](), torch.no_grad():
            call(part, out=view)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_compiled_write_is_counted(device, backend):
    """One program with all writes compiles faster than a program for each."""

    def write(inputs, outs):
        for call, out in zip(WRITES, outs, strict=True):
            call(*inputs, out=out)

    x, *others = (torch.randn(4, device=device, requires_grad=i == 0) for i in range(3))
    inputs = [x.detach(), *others]
    outs = [torch.randn(4, device=device) for _ in WRITES]
    results = [x * out for out in outs]
    with torch.no_grad():
        torch.compile(write, backend=backend, fullgraph=True)(inputs, outs)
    assert all(torch.equal(out, call.result(*inputs)) for call, out in zip(WRITES, outs, strict=True))
    assert [str(call) for call, out in zip(WRITES, outs, strict=True) if not out._version] == []
    for y in results:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_inference_tensors_have_no_version_and_are_written(device):
    with torch.inference_mode():
        a, out = torch.randn(3, device=device), torch.zeros(3, device=device)
        ops.myadd_out(a, a, out)
        assert torch.equal(out, a + a)


@each(WRITING)
def test_inference_tensors_are_not_written_outside_inference_mode(call, device):
    a = torch.randn(3, device=device)
    with torch.inference_mode():
        out = torch.zeros(3, device=device)
    for x in (a, out):
        sentence = f"^{call.form.name}: out was made in inference mode and is not written outside"
        with pytest.raises(RuntimeError, match=sentence):
            call(x, out=out)
    assert not out.any()


@each([call for call in WRITES if call.is_public])
def test_public_functions_refuse_gradients_through_out(device, call):
    for name in [*call.names, "out"]:
        tensors = {x: torch.randn(3, device=device, requires_grad=x == name) for x in [*call.names, "out"]}
        *inputs, out = tensors.values()
        sentence = f"^{call.function.__name__}: no gradient is recorded through out, but {name} requires"
        with pytest.raises(RuntimeError, match=sentence):
            call(*inputs, out=out)
        with torch.no_grad():
            call(*inputs, out=out)


@each(WRITING)
def test_raw_operators_warn_once_and_do_not_record(call, device, monkeypatch):
    from muladd_nb._layer import mutation

    monkeypatch.setattr(mutation, "_warned", set())
    inputs = [torch.randn(3, device=device, requires_grad=True) for _ in call.names]
    out = torch.zeros(3, device=device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*inputs, out=out)
        call(*inputs, out=out)
    (warning,) = caught
    assert str(warning.message).startswith(f"{call.form.name}: ")
    assert warning.filename == calls.__file__  # the file with the call
    assert not out.requires_grad
    assert torch.equal(out, call.result(*inputs))


@each(WRITING)
def test_a_lazy_clone_is_written_apart_from_its_original(call):
    a = torch.randn(100)
    out = torch._lazy_clone(a)
    before, expected = a.clone(), call.result(a)
    call(a, out=out)
    assert torch.equal(out, expected)
    assert torch.equal(a, before)
    shifted = torch._lazy_clone(a)
    call(a[:50], out=shifted[25:75])  # the result has its own memory, so nothing overlaps
    assert torch.equal(a, before)
