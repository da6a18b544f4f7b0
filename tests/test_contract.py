"""Shapes, dtypes, devices and sizes: which are accepted, and which error messages the others raise."""

import re
import sys
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from calls import OPERATORS, WRITING
from conftest import each, message, on_cuda
from modes import DispatchMode
from torch._subclasses import FakeTensorMode

import muladd_nb
from muladd_nb._operators import FORMS

ops = torch.ops.muladd_nb

OF_TENSOR_NUMBERS = [call for call in OPERATORS if call.form.tensor_numbers]
OF_TWO = [call for call in OPERATORS if len(call.names) > 1]
SAME_SHAPE = [call for call in OF_TWO if not call.form.broadcasts]


def test_no_two_overloads_take_the_same_types():
    """TorchScript finds an operator by its name and the types of its arguments."""
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("muladd_nb::")]
    taken = [(schema.name, *(str(argument.type) for argument in schema.arguments)) for schema in schemas]
    assert len(set(taken)) == len(taken)


def messages(call, *tensors, out):
    """Return the messages of the real kernel, the fake kernel and the meta device for the same arguments."""
    real = message(call, *tensors, out=out)
    with FakeTensorMode() as mode:
        fake = message(call, *map(mode.from_tensor, tensors), out=mode.from_tensor(out))
    *of_meta, out = (torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") for x in (*tensors, out))
    return real, fake, message(call, *of_meta, out=out)


@each(SAME_SHAPE)
@pytest.mark.parametrize(
    ("of_a", "of_b"), [((2, 3), (3,)), ((2, 3), (2, 1)), ((), (1,)), ((2, 3), (3, 2)), ((0,), (1,)), ((4,), (5,))]
)
def test_shapes_must_be_equal(call, device, of_a, of_b):
    a, b = torch.zeros(of_a, device=device), torch.zeros(of_b, device=device)
    x, y = call.names[:2]
    cure = f"nothing is broadcast, use {y}.expand_as({x}) or {x}.expand_as({y})"
    expected = f"{call.form.name}: {x} and {y} must have the same shape, got {list(of_a)} and {list(of_b)}; {cure}"
    assert messages(call, a, b, out=torch.zeros_like(a)) == (expected,) * 3


@each(OPERATORS)
@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
def test_a_tensor_on_mps_is_refused_by_one_sentence(call, place):
    """Eager mode and compilation refuse it. Fake tensors can be on such a device, even if this machine has none."""
    argument = call.names[place]
    with FakeTensorMode():
        tensors = [torch.zeros(3) for _ in call.names]
        tensors[place] = torch.zeros(3, device="mps")
        expected = f'{call.form.name}: {argument} must be on the CPU or a CUDA device, got mps:0; call to("cpu") first'
        assert message(call, *tensors, out=torch.zeros(3)) == expected
        # The kernel that eager mode would call.
        args, kwargs = call.arguments(*tensors, out=torch.zeros(3))
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.MPS)
        assert message(call.form.op.redispatch, keys, *args, **kwargs) == expected

    def compiled(x, out):
        tensors = [x for _ in call.names]
        tensors[place] = torch.zeros(3, device="mps")
        return call(*tensors, out=out)

    with pytest.raises(RuntimeError, match=re.escape(expected)):
        torch.compile(compiled, backend="aot_eager", fullgraph=True)(torch.zeros(3), torch.zeros(3))


def test_every_operator_has_a_kernel_that_refuses_mps():
    for form in FORMS:  # derivatives, too
        assert torch._C._dispatch_has_kernel_for_dispatch_key(form.op.name(), "MPS")


@each(OF_TWO)
def test_dtypes_must_be_equal(call, device):
    a, b = torch.zeros(3, device=device), torch.zeros(3, device=device, dtype=torch.float64)
    x, y = call.names[:2]
    cure = f"nothing is promoted, use {y}.to({x}.dtype)"
    expected = f"{call.form.name}: {x} and {y} must have the same dtype, got float32 and float64; {cure}"
    assert messages(call, a, b, out=a) == (expected,) * 3


INTEGERS = [torch.int8, torch.uint8, torch.uint16, torch.int32, torch.int64, torch.bool]


@each(OPERATORS)
@pytest.mark.parametrize("dtype", [*INTEGERS, torch.complex64, torch.float8_e8m0fnu], ids=str)
def test_other_dtypes_are_refused(call, device, dtype):
    a = torch.zeros(3, device=device, dtype=dtype)
    came = str(dtype).removeprefix("torch.")
    expected = f"{call.form.name}: {call.names[0]} must be float16, bfloat16, float32 or float64, got {came}"
    assert messages(call, a, out=a) == (expected,) * 3


@each(WRITING)
def test_out_must_match(call, device):
    a, must = torch.zeros(2, 3, device=device), f"{call.form.name}: {call.names[0]} and out must have the same"
    of_shape = f"{must} shape, got [2, 3] and [3, 2]; make out with torch.empty_like"
    assert messages(call, a, out=torch.zeros(3, 2, device=device)) == (of_shape,) * 3
    of_dtype = f"{must} dtype, got float32 and float16; make out with torch.empty_like"
    assert messages(call, a, out=a.half()) == (of_dtype,) * 3


@each(OF_TWO)
@pytest.mark.parametrize(("device", "it"), [("meta", "meta"), pytest.param("cuda", "cuda:0", marks=on_cuda())])
def test_devices_must_be_equal(call, device, it):
    a, b = torch.zeros(3, device=device), torch.zeros(3)
    x, y = call.names[:2]
    expected = f"{call.form.name}: {x} and {y} must be on the same device, got {it} and cpu; use {y}.to({x}.device)"
    assert message(call, a, b, out=a) == expected


@each(WRITING)
def test_out_that_overlaps_itself_is_refused(call, device):
    a = torch.zeros(2, 3, device=device)
    out = torch.zeros(3, device=device).expand(2, 3)
    expected = f"{call.form.name}: out must not overlap itself, got shape [2, 3] and strides [0, 1]"
    assert messages(call, a, out=out) == (expected,) * 3
    window = torch.zeros(4, device=device).unfold(0, 3, 1)
    expected = f"{call.form.name}: out must not overlap itself, got shape [2, 3] and strides [1, 1]"
    assert messages(call, a, out=window) == (expected,) * 3


@each(OPERATORS)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3, 2), ()])
def test_no_elements_and_no_dimensions(call, device, dtype, shape):
    a, b, out = (torch.randn(shape, device=device).to(dtype) for _ in range(3))
    result = call(a, b, out=out)
    result = out if result is None else result
    assert result.shape == shape
    assert result.dtype == dtype
    assert torch.equal(result, call.result(a, b))


def test_nothing_is_written_when_refused(device):
    a, b, out = torch.ones(3, device=device), torch.ones(4, device=device), torch.zeros(4, device=device)
    version = out._version
    for call in WRITING:
        message(call, a, b, out=out)
    assert not out.any()
    assert out._version == version


@each(OF_TENSOR_NUMBERS)
@pytest.mark.parametrize(
    ("c", "came"),
    [
        (torch.tensor(0.5), "float32, shape [], on cpu"),
        (torch.zeros(1, dtype=torch.float64), "float64, shape [1], on cpu"),
        (torch.zeros((), dtype=torch.float64, device="meta"), "float64, shape [], on meta"),
    ],
)
def test_c_is_a_float64_scalar_on_the_cpu(device, call, c, came):
    x, (number, place) = call.form.name, *call.form.numbers.items()
    expected = f"{x}: {number} must be a number, or for tensor_c a float64 tensor of shape [] on cpu, got one of {came}"

    def of(a):
        (*args,), _ = call.arguments(a, out=a)
        args[place] = c
        return message(call.function, *args)

    a = torch.zeros(3, device=device)
    if c.device.type == "cpu":
        assert of(a) == expected
    assert of(a.to("meta")) == expected


@each(OF_TENSOR_NUMBERS)
def test_c_may_be_on_a_gpu_if_the_tensors_are(call):
    """Fake tensors can be on a GPU, even if this machine has none. The kernels for CUDA follow the same rule."""
    (place,) = call.form.numbers.values()

    def of(a, c):
        (*args,), _ = call.arguments(a, out=a)
        args[place] = c
        return call.function(*args)

    with FakeTensorMode():
        a, c = torch.zeros(3, device="cuda:0"), torch.zeros((), dtype=torch.float64, device="cuda:1")
        of(a, c)
        must = f"{call.form.name}: a number that is passed as a tensor must be on cpu beside a, which is on cpu"
        with pytest.raises(RuntimeError, match=re.escape(must)):
            of(a.cpu(), c)


def test_a_tensor_c_has_no_gradient(device):
    a, c = torch.zeros(3, device=device), torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    sentence = "mymuladd: c has no gradient, but requires one; detach c, or write a \\* b \\+ c"
    with pytest.raises(RuntimeError, match=sentence):
        ops.mymuladd.tensor_c(a, a, c)
    with pytest.raises(RuntimeError, match=sentence.replace("mymuladd:", "mymuladd_out:")):
        ops.mymuladd_out.tensor_c(a, a, c, a.clone())
    for observer in (nullcontext, DispatchMode):  # past the dispatcher, and through Python's registrations
        with torch.no_grad(), observer():
            out = torch.ones_like(a)
            ops.mymuladd_out.tensor_c(a, a, c, out)
            assert torch.equal(out, ops.mymuladd.tensor_c(a, a, c))
    with pytest.raises(RuntimeError, match=sentence):
        torch.func.grad(lambda c: ops.mymuladd.tensor_c(a, a, c).sum())(c.detach())
    with pytest.raises(RuntimeError, match=sentence):
        torch.func.jvp(lambda c: ops.mymuladd.tensor_c(a, a, c), (c.detach(),), (c.detach(),))


@pytest.mark.parametrize("c", [1j, np.complex64(1 + 2j), np.complex128(1)])
def test_c_is_no_complex_number(device, c):
    a = torch.zeros(3, device=device)
    for call in (lambda: muladd_nb.mymuladd(a, a, c), lambda: muladd_nb.mymuladd(a, a, c, out=a)):
        with pytest.raises(TypeError, match="^mymuladd: c must be a real number or a tensor, got .*j"):
            call()
    compiled = torch.compile(muladd_nb.mymuladd, backend="aot_eager")
    with pytest.raises(TypeError, match="^mymuladd: c must be a real number or a tensor, got "):
        compiled(a, a, c)
    for real in (np.float32(0.5), np.int64(1), np.bool_(True)):
        assert torch.equal(muladd_nb.mymuladd(a, a, real), torch.full_like(a, float(real)))


@pytest.mark.parametrize(
    "c", [10**400, -(10**5000), 2**1024 - 2**970, Fraction(10**400)], ids=lambda c: type(c).__name__
)
def test_c_is_no_larger_than_a_float_can_be(device, c):
    a = torch.ones(3, device=device)
    got = f"{type(c).__name__} of {int(c).bit_length()} bits"
    expected = f"mymuladd: c must be a real number or a tensor, within a float's range, got {got}"
    compiled = torch.compile(muladd_nb.mymuladd, backend="aot_eager")
    for call in (
        lambda: muladd_nb.mymuladd(a, a, c),
        lambda: muladd_nb.mymuladd(a.clone().requires_grad_(), a, c),
        lambda: muladd_nb.mymuladd(a, a, c, out=a),
        lambda: torch.func.vmap(lambda x: muladd_nb.mymuladd(x, x, c))(a),
        *([lambda: compiled(a, a, c)] if type(c) is int else []),
    ):
        with pytest.raises(OverflowError, match=f"^{re.escape(expected)}$"):
            call()
    zero = torch.zeros(1, dtype=torch.float64, device=device)
    assert muladd_nb.mymuladd(zero, zero, 2**1024 - 2**970 - 1) == sys.float_info.max


def test_many_dimensions(device):
    a, b = torch.randn([1, 2] * 10, device=device), torch.randn([1, 2] * 10, device=device).permute(*range(19, -1, -1))
    b = b.reshape(a.shape)
    torch.testing.assert_close(ops.mymuladd(a, b, 0.5), a * b + 0.5)
    wide = torch.randn([1] * 70 + [3], device=device)
    assert torch.equal(ops.mymul(wide, wide).flatten(), wide.flatten() ** 2)  # ATen stops at 64 dimensions
    for x in (wide, wide.to("meta")):
        assert ops.mymuladd.Tensor(x, x, x).shape == wide.shape
        with pytest.raises(
            RuntimeError, match="mymuladd: tensors of more than 64 dimensions are not broadcast, got 71"
        ):
            ops.mymuladd.Tensor(x, x, x[0])


def _free_memory(device):
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    with open("/proc/meminfo") as file:  # noqa: PTH123
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


def test_more_than_2_to_the_31_elements(device):
    """Touching memory first takes most of the time, so one tensor is a new result, and is then written in place."""
    if _free_memory(device) < 6 << 30:
        pytest.skip("needs 6 GiB of free memory")
    n = (1 << 31) + 6
    x = torch.tensor([1.5], device=device, dtype=torch.bfloat16).expand(n)  # needs no memory
    out = ops.mymuladd(x, x, 0.75)
    assert [bound.item() for bound in out.aminmax()] == [3, 3]
    transposed = out.view(2, -1).t()
    for of_x, inout in ((x, out), (x.view(-1, 2), transposed)):
        before, last = out[0].item(), (-1,) * inout.ndim  # the last offset does not fit into 32 bits
        inout[last] = -4
        ops.mymuladd_out(of_x, inout, 1.0, inout)
        assert inout[last].item() == -5
        inout[last] = 1.5 * before + 1
        assert [bound.item() for bound in out.aminmax()] == [1.5 * before + 1] * 2


@each([call for call in OPERATORS if len(call.names) + call.writes > 1])  # with one tensor the dispatcher raises first
def test_none_is_no_tensor(call, device):
    for name, (*tensors, out) in each_place(call, lambda: torch.zeros(3, device=device), None):
        expected = f"{call.form.name}: {name} must be a tensor, got None"
        assert message(call, *tensors, out=out) == expected
        with torch.no_grad(), torch.autocast(device):
            assert message(call, *tensors, out=out) == expected
        *tensors, out = (x if x is None else x.to("meta") for x in (*tensors, out))
        assert message(call, *tensors, out=out) == expected


def each_place(call, tensor, wrong):
    """Yield the name of each tensor of a call, and the tensors and ``out`` with that one replaced by a wrong one."""
    names = [*call.names, "out"]
    for name in names if call.writes else names[:-1]:
        yield name, [wrong if x == name else tensor() for x in names]


@pytest.mark.parametrize("arguments", [(None, None, 1.0), (1.0, None, 1.0), (None, None, None)])
def test_the_public_functions_say_so_whatever_else_is_wrong(arguments):
    with pytest.raises(RuntimeError, match="^mymuladd: [ab] must be a tensor, got None$"):
        muladd_nb.mymuladd(*arguments)
    with pytest.raises(RuntimeError, match="^mymul: [ab] must be a tensor, got None$"):
        muladd_nb.mymul(*arguments[:2])


@each(OPERATORS)
@pytest.mark.parametrize("size", [0, 64])
def test_a_storage_that_is_smaller_than_its_tensor_is_neither_read_nor_written(call, device, size):
    shrunk = torch.zeros(2, 101, device=device)[:, 1:]
    shrunk.untyped_storage().resize_(size)
    for name, (*tensors, out) in each_place(call, lambda: torch.zeros(2, 100, device=device), shrunk):
        expected = (
            f"{call.form.name}: {name} must lie in its storage, got shape [2, 100], strides [101, 1] and offset 1 in a "
            f"storage of {size} bytes"
        )
        assert message(call, *tensors, out=out) == expected


def test_a_storage_without_elements_to_read_may_be_empty(device):
    a = torch.zeros(0, 3, device=device)
    a.untyped_storage().resize_(0)
    assert ops.mymul(a, a).shape == (0, 3)


def test_whether_a_tensor_overlaps_itself_takes_a_bounded_search():
    """For this layout, the search for an overlap takes many steps."""
    out = torch.empty_strided((2**29, 2**29), (2**29 + 12, 2**29 + 11), device="meta")
    with pytest.raises(RuntimeError, match="^myadd_out: out must not overlap itself"):
        ops.myadd_out(out, out, out)
