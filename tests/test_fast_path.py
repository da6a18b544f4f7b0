"""A call past the dispatcher does what a call through it does, for any tensors and with other kernels registered."""

import gc
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from calls import CALLS, RETURNING
from conftest import HAS_GIL, each
from forked import python, together
from torch import nested
from torch._C import _dispatch_keys
from torch._subclasses import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.testing._internal.two_tensor import TwoTensor

import muladd_nb
from muladd_nb import _C
from muladd_nb._layer import aten_node, torch_private

ops = torch.ops.muladd_nb
IN_CPP = [path for path in torch_private.names if path.startswith("libtorch:")]  # empty if torch's C++ is not called
TAKEN = [call for call in CALLS if not call.returns_out]


@pytest.fixture
def taken():
    """Return a function that counts the calls past the dispatcher since it was last called."""
    if not _C.wants_fast_path():
        pytest.skip("the fast path is off")
    before = [_C.calls_past_dispatcher()]

    def count():
        before.append(_C.calls_past_dispatcher())
        return before[-1] - before[-2]

    return count


@each(TAKEN)
def test_a_plain_call_goes_past_the_dispatcher(device, call, taken):
    a, b, c, out = (torch.randn(3, device=device) for _ in range(4))
    for x in a, b[1:], torch.nn.Parameter(c):
        with torch.no_grad():
            call(x, out=x if call.writes else None)
        assert taken() == 1
    with torch.inference_mode():  # here calling an overload reaches its kernel without a step in Python
        call(a.clone(), b, c, out=out.clone())
    assert taken() == (call.writes or not isinstance(call.function, torch._ops.OpOverload))
    if not call.writes:
        call(a.requires_grad_(), b, c)
        assert taken() == 1


@each(TAKEN)
def test_a_call_with_other_dispatch_keys_than_the_default_ones_goes_through_the_dispatcher(call, device, taken):
    a, b, c, out = (torch.randn(3, device=device) for _ in range(4))
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    with torch.no_grad(), torch._C._ExcludeDispatchKeyGuard(keys):
        call(a, b, c, out=out if call.writes else None)
    assert taken() == (not IN_CPP)  # without torch's C++ functions, the keys cannot be read


# ---- Kinds of tensors, by the dispatch keys that a dense tensor does not have


@dataclass
class Kind:
    """A tensor made of four numbers; `read` converts it to a dense tensor."""

    make: Callable
    keys: tuple = ()
    read: Callable = lambda x: x


def escaped(transform):
    kept = []

    def keep(x):
        kept.append(x)
        return x.sum()

    return lambda x: (transform(keep)(x.expand(2, 4)), kept.pop())[1]


def fake(x):
    return FakeTensorMode(allow_non_fake_inputs=True).from_tensor(x)


def without_memory(x):
    storage = torch._C._construct_storage_from_data_pointer(0, torch.device("cpu"), 64)
    return torch.empty(0, dtype=x.dtype).set_(storage, 2, x.shape)


def nothing(x):
    return None


OFFSETS = torch.tensor([0, 1, 4])  # jagged tensors have the same shape only if they share their offsets
IN_PYTHON = ("Python", "PythonTLSSnapshot")
KINDS = {
    "dense": Kind(lambda x: x),
    "parameter": Kind(torch.nn.Parameter),
    "made in inference mode": Kind(torch.inference_mode(lambda x: x.clone())),
    "negative": Kind(lambda x: torch._neg_view(-x), ("Negative",)),
    "view of a negative": Kind(lambda x: torch._neg_view(-x.repeat(2))[4:], ("Negative",)),
    "conjugate": Kind(lambda x: torch.complex(x, x).conj(), ("Conjugate",)),
    "zero": Kind(lambda x: torch._efficientzerotensor(4), ("ZeroTensor",)),
    "view of a zero": Kind(lambda x: torch._efficientzerotensor(9)[5:], ("ZeroTensor",)),
    "column of a zero": Kind(lambda x: torch._efficientzerotensor((4, 3)).t()[1], ("ZeroTensor",)),
    "sparse": Kind(torch.Tensor.to_sparse, ("Sparse",), torch.Tensor.to_dense),
    "rows": Kind(lambda x: x.view(2, 2).to_sparse_csr(), ("SparseCsr",), torch.Tensor.to_dense),
    "strided nested": Kind(
        lambda x: nested.nested_tensor([x, x[:1]], layout=torch.strided), ("NestedTensor",), torch.Tensor.values
    ),
    "jagged": Kind(lambda x: nested.nested_tensor_from_jagged(x, OFFSETS), IN_PYTHON, torch.Tensor.values),
    "quantized": Kind(
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), ("Quantized",), torch.Tensor.dequantize
    ),
    "mkldnn": Kind(torch.Tensor.to_mkldnn, (), torch.Tensor.to_dense),
    "functional": Kind(torch._to_functional_tensor, ("Functionalize",), torch._from_functional_tensor),
    "of vmap": Kind(escaped(torch.vmap), ("FuncTorchBatched",), nothing),
    "of grad": Kind(escaped(torch.func.grad), ("FuncTorchGradWrapper",), nothing),
    "meta": Kind(lambda x: x.to("meta"), ("Meta",), nothing),
    "fake": Kind(fake, IN_PYTHON, nothing),
    "wrapper": Kind(lambda x: TwoTensor(x, x + 1), IN_PYTHON, lambda x: getattr(x, "b", x)),
    "named": Kind(lambda x: x.refine_names("N"), ("Named",), lambda x: x.rename(None)),
}
if not hasattr(torch.Tensor, "refine_names"):  # newer torch has no named tensors
    del KINDS["named"]
# Dispatch keys that no tensor here can have: those of other devices, those of a thread, and those that no tensor has.
NOT_MADE = {
    *("Undefined", "Dense", "BackendSelect", "PythonDispatcher", "PreDispatch", "AutogradOther", "Autograd"),
    *("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd"),
    *("CompositeImplicitAutogradNestedTensor", "FuncTorchBatchedDecomposition", "FuncTorchVmapMode"),
    *("FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "AutogradNestedTensor"),
    *("AutogradFunctionality", "ADInplaceOrView"),  # a dense tensor has these
}


def test_there_is_a_tensor_for_every_dispatch_key():
    """If a new torch has another key, this test fails until there is a tensor with that key."""
    of_devices = {key.removeprefix("StartOf").removesuffix("Backends") for key in torch._C.DispatchKey.__members__}
    keys = {
        key
        for key in torch._C.DispatchKey.__members__
        if not key.startswith(("StartOf", "EndOf", "Autocast"))
        and not any(key.startswith(kind) and key != kind for kind in of_devices - {"Dense", "AutogradFunctionality"})
        and not key.startswith("Autograd")
    }
    devices = {key.removeprefix("Sparse") for key in torch._C.DispatchKey.__members__ if key.startswith("Sparse")}
    made = {key for kind in KINDS.values() for key in kind.keys}
    assert keys - devices - made - NOT_MADE == set()


def outcome(function, tensors, kind):
    """Return the result of a call, or its error."""
    try:
        result = function(*tensors)
        return type(result), getattr(result, "names", None), kind.read(result) if result is not None else None
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return error


@pytest.mark.parametrize("place", ["every", "first", "last"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_kind_of_tensor_is_as_for_aten(name, place):
    for call in TAKEN:
        compare(KINDS[name], call, place, (2, 2) if name == "rows" else (4,))


def compare(kind, call, place, shape):
    count = len(call.names) + call.writes
    places = {"every": range(count), "first": [0], "last": [count - 1]}[place]

    def tensors():
        dense = [torch.tensor([1.0, 2.0, 3.0, 4.0]) / (k + 1) for k in range(count)]
        made = [kind.make(x) if k in places else x.view(shape) for k, x in enumerate(dense)]
        for k in places:
            assert all(key in str(_dispatch_keys(made[k])) for key in kind.keys)
        return made

    def aten(*x):
        return x[-1].copy_(call.expected(*x[:-1])) if call.writes else call.expected(*x)

    def ours(*x):
        result = call(*x[: len(call.names)], out=x[-1])
        return x[-1] if call.writes else result

    with torch.no_grad():
        expected = outcome(aten, tensors(), kind)
        got = outcome(ours, tensors(), kind)
    if isinstance(got, Exception):
        sentence = str(got).splitlines()[0]
        # Outside of torch.func and torch.compile, torch functionalizes only its own operators that write. Only its own
        # operators accept named tensors.
        torchs = "non-ATen" in sentence or "Named tensors are currently unsupported" in sentence
        ours = torchs or (sentence.startswith("my") and ": " in sentence)
        assert ours or isinstance(expected, Exception), f"{call}: ATen takes it, we say: {sentence}"
        assert "INTERNAL ASSERT" not in sentence or sentence == str(expected).splitlines()[0]
        return
    assert not isinstance(expected, Exception), f"{call}: ATen refuses it: {expected}"
    assert got[:2] == expected[:2]
    if got[2] is not None:
        torch.testing.assert_close(got[2], expected[2])


def test_zero_tensors_in_a_backward_pass():
    def f(mul, x):
        return torch.cat([mul(x[:2], x[:2]), mul(x[2:], x[2:])])

    def gradient(mul):
        x = torch.arange(1.0, 6.0, requires_grad=True)
        (value, tangent) = torch.func.jvp(lambda x: f(mul, x), (x,), (torch.ones(5),))
        return torch.autograd.grad(tangent[3:].sum() + value[:1].sum(), x)

    torch.testing.assert_close(gradient(muladd_nb.mymul), gradient(torch.mul))


@each([call for call in CALLS if not call.form.tensor_numbers])
def test_memory_that_is_not_there_is_refused(call):
    """Each tensor in turn has a storage that has a size, and begins at null."""
    count = len(call.names) + call.writes
    for place in range(count):
        x = [torch.ones(4) for _ in range(count)]
        x[place] = without_memory(x[place])
        name = [*call.names, "out"][place]
        with pytest.raises(RuntimeError, match=rf"^my\S+: {name} must have memory"):
            call(*x[: len(call.names)], out=x[-1])
    call(*(without_memory(torch.ones(0)) for _ in call.names), out=torch.ones(0))  # no elements need no memory


# ---- Kernels that a program registers


# Each kernel gets its own process, because torch goes on calling it after it was deregistered.
REGISTERS = """
import sys, torch, muladd_nb
sys.path.insert(0, {tests!r})
from calls import CALLS
from muladd_nb import _C

for call in CALLS:
    if call.returns_out:
        continue
    a, out, seen = torch.ones(3), torch.ones(3), []
    args, kwargs = call.arguments(a, out=out)

    def kernel(*args, **kwargs):
        seen.append(1)
        return torch.full_like(a, 7.0) if call.form.kind == "functional" else None

    before = call.form.op(*args, **kwargs)
    library = torch.library.Library("muladd_nb", "IMPL")
    library.impl(call.form.op.name().partition("::")[2], kernel, {key!r}, allow_override=True)
    taken = _C.calls_past_dispatcher()
    result = call.function(*args, **kwargs)
    assert seen == [1] and _C.calls_past_dispatcher() == taken, call
    assert call.writes or result.eq(7).all(), call
    library._destroy()
    result = call.function(*args, **kwargs)
    assert seen == [1] and _C.calls_past_dispatcher() == taken + 1, call
    assert call.writes or torch.equal(result, before), call
"""


def test_kernels_that_a_program_registers_are_called(tmp_path):
    keys = ["CPU", "AutogradCPU", "Autograd", "ADInplaceOrView", "BackendSelect"]
    codes = {tmp_path / key: REGISTERS.format(tests=str(Path(__file__).parent), key=key) for key in keys}
    for key, (status, stderr) in zip(keys, together(codes), strict=True):
        assert status == 0, f"{key}: {stderr}"


def test_kernels_that_were_registered_before_the_import_are_called(tmp_path):
    library = muladd_nb.library_path()
    code = f"""
import torch
torch.ops.load_library({library!r})
other = torch.library.Library("muladd_nb", "IMPL")
other.impl("mymul", lambda a, b: torch.full_like(a, 7.0), "CPU", allow_override=True)
import muladd_nb
x = torch.ones(3)
assert muladd_nb.mymul(x, x).eq(7).all() and torch.ops.muladd_nb.mymul(x, x).eq(7).all()
assert muladd_nb.mymuladd(x, x, 0.5).eq(1.5).all()
"""
    status, stderr = python(code, tmp_path / "stderr")
    assert status == 0, stderr


def test_one_setting_turns_it_off(tmp_path):
    code = """
import os
os.environ["MULADD_NB_FAST_PATH"] = "{}"
import torch, muladd_nb
x, out = torch.ones(3, requires_grad=True), torch.empty(3)
y = muladd_nb.mymuladd(x, x, 0.5)
y.sum().backward()
with torch.no_grad():
    muladd_nb.mymul(x, x, out=out)
assert y.eq(1.5).all() and x.grad.eq(2).all() and out.eq(1).all() and out._version == 1
print(muladd_nb._C.calls_past_dispatcher(), torch.ops.muladd_nb.mymul(out, out), file=__import__("sys").stderr)
"""
    codes = {tmp_path / value: code.format(value) for value in ("0", "1", "off")}
    (off, said_off), (on, said_on), (bad, said_bad) = together(codes)
    assert (off, on, bad) == (0, 0, 1)
    assert said_off.startswith("0 tensor") and int(said_on.split()[0]) > 0
    assert "ImportError: muladd_nb: MULADD_NB_FAST_PATH must be 0 or 1, got off" in said_bad


# ---- Other threads


@pytest.mark.skipif(not HAS_GIL, reason="there is no lock")
@pytest.mark.parametrize("out", [False, True])
def test_a_result_that_is_larger_than_every_input_is_computed_without_the_lock(out):
    a, b, c = torch.rand(3000, 1), torch.rand(1, 3000), torch.rand(1, 1)
    into = torch.empty(3000, 3000) if out else None
    before, switch = [0], sys.getswitchinterval()
    done = threading.Event()

    def count():
        while not done.is_set():
            before[0] += 1
            time.sleep(0)  # lets the other thread run

    thread = threading.Thread(target=count)
    thread.start()
    sys.setswitchinterval(1000)  # from here on, other threads run only if this one releases the GIL
    try:
        start, counted = before[0], 0
        for _ in range(50):  # on a busy machine the other thread may not run at once
            muladd_nb.mymuladd(a, b, c, out=into)
            counted = before[0] - start
            if counted:
                break
    finally:
        sys.setswitchinterval(switch)
        done.set()
        thread.join()
    assert counted > 0


# ---- When torch throws

THROWS = """
import gc, sys
import torch
from lacking import import_without
import_without("muladd_nb", {path!r}, instead="_ZSt17__throw_bad_allocv")
import muladd_nb

def held():  # counts objects that were made after gc.freeze()
    gc.collect()
    return sum(type(x) is torch.Tensor for x in gc.get_objects()), *map(sys.getrefcount, (a, b, c, out, w))

a, b, c, out = (torch.full((3,), x) for x in (2.0, 3.0, 0.5, 0.0))
w = torch.full((3,), 2.0, requires_grad=True)
calls = dict(
    plain=lambda: muladd_nb.mymul(a, b),
    three=lambda: muladd_nb.mymuladd(a, b, c),
    raw=lambda: torch.ops.muladd_nb.mymul(a, b),
    out=lambda: muladd_nb.mymul(a, b, out=out),
    by_aten=lambda: muladd_nb.mymul(w, b),
    recorded=lambda: muladd_nb.mymuladd(w, b, c),
)
gc.freeze()
for name, call in calls.items():
    for turn in range(3):  # torch keeps what it makes at first
        packed, version, before = [], out._version, held()
        with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(1) or x, lambda x: x):
            try:
                result = call()
            except (MemoryError, RuntimeError) as error:
                assert "bad_alloc" in str(error) or isinstance(error, MemoryError), error
                result = None
        assert result is None or result.eq(6.5 if name in ("three", "recorded") else 6).all(), (name, result)
        saved = int(name in ("by_aten", "recorded"))
        assert len(packed) == saved or (result is None and not packed), (name, packed)
        assert out._version - version == (name == "out"), name
        del result, packed
    assert held() == before, (name, held(), before)
"""


# All functions of torch's C++ in the table, except those called during the import. (_KEYS is a variable.)
THROWING = [path for path in IN_CPP if "OperatorEntry" not in path and not path.endswith(torch_private._KEYS)]


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=() if "Wrap" in path else pytest.mark.slow) for path in THROWING]
)
def test_nothing_is_done_twice_or_leaks_where_torch_throws(path, tmp_path):
    assert python(THROWS.format(path=path), tmp_path / "stderr") == (0, "")


def test_a_hook_that_raises_while_aten_records_is_called_once_and_its_error_is_raised():
    seen, counts = [], []

    def pack(x):
        seen.append(1)
        raise LookupError("of the hook")

    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        gc.collect()
        counts.append(sum(type(one) is torch.Tensor for one in gc.get_objects()))
        with saved_tensors_hooks(pack, lambda x: x), pytest.raises(LookupError, match="of the hook"):
            muladd_nb.mymul(x, x)
    assert len(seen) == 3
    assert counts[1] == counts[2]
    assert muladd_nb.mymul(x, x).eq(1).all()  # nothing of the failed calls is left


def test_a_hook_may_record_a_call_while_aten_records_another():
    x, y = (torch.full((3,), value, requires_grad=True) for value in (2.0, 3.0))
    inner = []

    def pack(saved):
        if len(inner) < 2:  # the second is recorded while the first is being recorded
            inner.append(None)
            with torch.enable_grad():
                inner.append(muladd_nb.mymul(y, y))
        return saved

    with saved_tensors_hooks(pack, lambda x: x):
        outer = muladd_nb.mymuladd(x, y, 0.5)
    assert outer.eq(6.5).all() and inner[-1].eq(9).all()
    assert [g.unique().item() for g in torch.autograd.grad(outer.sum(), (x, y))] == [3, 2]
    assert torch.autograd.grad(inner[-1].sum(), y)[0].eq(6).all()


def test_a_hook_that_exchanges_tensors_while_aten_records_is_an_error():
    x, y, other = (torch.full((3,), value, requires_grad=True) for value in (2.0, 3.0, 7.0))
    exchanged = []

    def pack(saved):
        if not exchanged:
            exchanged.append(torch.utils.swap_tensors(x, other))
        return saved

    with saved_tensors_hooks(pack, lambda x: x), pytest.raises(RuntimeError):
        muladd_nb.mymul(x, y)
    assert muladd_nb.mymul(x, y).eq(3 * x).all()


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.detach().div(1 / b)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad / (1 / b), grad / (1 / a)


def computes_twice(keys, a, b):
    below = keys & torch._C._after_autograd_keyset
    torch.ops.aten.mul.Tensor.redispatch(below, a, b)
    return torch.ops.aten.mul.Tensor.redispatch(below, a, b)


REPLACED = {
    "CPU": lambda keys, a, b: torch.zeros(3),
    "AutogradCPU": lambda keys, a, b: Product.apply(a, b),
    "Autograd": computes_twice,
    aten_node.UNUSED[0]: lambda keys, a, b: torch.zeros(3),
}


@pytest.mark.parametrize("key", REPLACED)
@pytest.mark.filterwarnings("ignore:Warning only once")
def test_a_program_may_replace_kernels_of_the_operator_that_records(key):
    x, y = (torch.full((3,), value, requires_grad=True) for value in (2.0, 3.0))
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("mul.Tensor", REPLACED[key], key, with_keyset=True, allow_override=True)
        result = muladd_nb.mymul(x, y)
    finally:
        library._destroy()
    assert result.eq(6).all()
    assert [g.unique().item() for g in torch.autograd.grad(result.sum(), (x, y))] == [3, 2]


# `multiply` calls `mul`, whose kernel would compute another result. A registration refuses it, so this goes around it.
CALLS_OTHERS = """
import copy, torch
from muladd_nb._layer import aten_node, fast_path
from muladd_nb._operators import FORMS
form = copy.copy(next(form for form in FORMS if form.name == "mymul" and form.kind == "functional"))
form.aten_node = aten_node.node_of(torch.ops.aten.multiply.Tensor)
call = fast_path.direct_caller(form, otherwise=form.op)
x = torch.ones(3, requires_grad=True)
assert call(x.detach(), x.detach()).eq(1).all()
try:
    call(x, x)
    assert form.aten_node is None  # the fast path is off
except RuntimeError as error:
    assert str(error) == "mymul: the operator that aten names has not called its own kernel", error
"""


def test_a_result_that_the_operator_of_aten_does_not_take_is_an_error(tmp_path):
    assert python(CALLS_OTHERS, tmp_path / "stderr") == (0, "")


def test_a_second_library_takes_another_key():
    has = [torch_private.has_kernel_for(torch.ops.aten.mul.Tensor, key) for key in aten_node.UNUSED]
    assert has == [bool(IN_CPP), False, False, False]


# ---- Arguments that the C++ code parses itself


def test_a_keyword_may_be_a_string_with_a_hash_of_its_own():
    class Name(str):
        def __hash__(self):
            return 5

    x, out = torch.full((3,), 2.0), torch.zeros(3)
    assert muladd_nb.mymul(x, x, **{Name("out"): out}) is out
    assert out.eq(4).all()
    assert muladd_nb.mymuladd(x, **{Name("c"): 0.5, Name("b"): x}).eq(4.5).all()
    for wrong in ("others", "a"):
        with pytest.raises(TypeError, match=f"argument '?{wrong}"):
            muladd_nb.mymul(x, x, **{Name(wrong): out})


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_was_made_in_inference_mode_may_say_that_it_requires_grad(device, count):
    """Autograd does not see such tensors unless another one is among them."""
    with torch.inference_mode():
        x = [torch.full((3,), 2.0, requires_grad=k != 1, device=device) for k in range(count)]
    x += [torch.full((3,), 3.0, device=device) for _ in range(3 - count)]

    def outcome(function, *x):
        try:
            result = function(*x)
        except RuntimeError as error:
            return str(error)
        return result.tolist(), result.requires_grad, result.is_inference()

    for ours in (muladd_nb.mymuladd, ops.mymuladd):
        assert outcome(ours, *x) == outcome(lambda a, b, c: torch.addcmul(c, a, b), *x)
    assert outcome(muladd_nb.mymul, *x[:2]) == outcome(torch.mul, *x[:2])
    assert outcome(muladd_nb.mymuladd, *x[:2], 0.0) == outcome(torch.mul, *x[:2])


@each(RETURNING)
def test_a_tensor_that_escaped_from_vmap_is_explained(call):
    x = KINDS["of vmap"].make(torch.ones(4))
    with pytest.raises(RuntimeError, match=r"^my\S+: a tensor of torch.vmap is used outside of it; return it"):
        call(x)
