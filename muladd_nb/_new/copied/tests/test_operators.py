# A copy, which `muladd-nb update` replaces. The operators of this project are in operators.py.
"""Test the promises of every operator, from the outside."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import itertools
import math
import re
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.func import vmap
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from cases import GRADIENT_TOLERANCE, as_tuple, each, is_float, is_tensor, tensors

LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "sliced": lambda x: torch.stack([x, x], -1)[..., 0],
    "expanded": lambda x: x[:1].expand_as(x),
}


def with_layout(layout, args):
    return [LAYOUTS[layout](x) if is_tensor(x) and x.dim() else x for x in args]


def without_data(args):
    def meta(x):
        if isinstance(x, (list, tuple)):
            return without_data(x)
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if is_tensor(x) else x

    return [*map(meta, args)]


@contextlib.contextmanager
def new_memory_is_nan():
    """Fill new tensors with NaN, so that a test notices an element that is never written."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_values(case, device):
    for what, args in case.samples(device):
        for layout in LAYOUTS if what.startswith("random") else ["contiguous"]:
            given = with_layout(layout, args)
            with new_memory_is_nan():
                result = case.call(*given)
            expected = case.expected(*given)
            case.check(result, expected, f"the result of {what}, {layout}")
            if what.startswith("random") and args[case.first].dtype.itemsize > 2:  # others often lie on ties
                case.check_rounding(result, expected, f"the result of {what}, {layout}")


# Tolerance of values whose operands are about 1000. An integer may be off by one.
FAR_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 0.15, torch.float32: 1e-3, torch.float64: 1e-7}


@pytest.mark.parametrize(
    "far",
    [{"mean": 1000.0}, {"extremes": (1000.0, 100.0, 1.0, -1.0, -100.0, -1000.0)}],
    ids=["a large common mean", "100 and 1000"],
)
def test_values_far_from_zero(case, device, far):
    """Results are right where a naive variance would lose all digits, or naive exponentials would overflow."""
    dtypes = [dtype for dtype in case.dtypes if dtype.is_floating_point]
    for dtype, choice, shape in itertools.product(dtypes, case.choices, case.shapes[:-1]):
        args = case.sample(dtype, device, shape, choice, **far)
        for ours, theirs in zip(as_tuple(case.call(*args)), as_tuple(case.expected(*args)), strict=True):
            part = FAR_TOLERANCE.get(theirs.dtype, 0)
            where = theirs.isfinite()
            ours, theirs = (torch.where(where, x.double(), 0) for x in (ours, theirs))
            close = max(part * max(theirs.abs().flatten().tolist(), default=0), part or 1)
            given = [f"{name}={x}" for name, x in zip(case.names, args, strict=True) if not is_tensor(x)]
            what = ", ".join([f"a result of {far}, shape {list(shape)} and {str(dtype)[6:]}", *given])
            case.close(ours, theirs, what, rtol=part, atol=close)


def of_template(case, args):
    """Return what an unedited operator computes: a product; over rows, a normalized product or its mean square."""
    pairs = [(name, x.double() if is_tensor(x) else x) for name, x in zip(case.names, args, strict=True)]
    written = [x for name, x in pairs if name in case.written and is_tensor(x)]
    others = case.reduces if case.is_over_rows else case.written
    factors = [x for name, x in pairs if isinstance(x, (float, int, Tensor)) and name not in others]
    product, given, n = math.prod(factors), dict(pairs), len(as_tuple(case.call(*args)))
    if not case.is_over_rows:
        return [x * product for x in written] + [product] * (n - len(written))
    dims = [*range(-len(given.get("normalized_shape", [1])), 0)]  # of a row
    mean = product.square().mean(given.get("dim", dims), given.get("keepdim", True))
    if all(case.forms[0].of_row[0]):
        return [mean] * n
    return [x * (1 + mean).rsqrt() for x in written or [product] * n]


def is_of_template(case, args):
    results = as_tuple(case.call(*args))
    try:
        expected = of_template(case, args)
        return all(torch.allclose(x.double(), y, rtol=1e-2) for x, y in zip(results, expected, strict=True))
    except (RuntimeError, ValueError):  # shapes, devices or a number do not fit together
        return False


def test_no_text_of_the_template_is_left(case, device):
    """If an operator no longer computes what a new one does, its documentation no longer says so."""
    names = [name for name in case.names if name not in case.reduces]
    read, written = ([x for x in names if (x in case.written) == is_written] for is_written in (False, True))
    product, package = re.escape(" * ".join(names)), case.function.__module__.partition(".")[0]
    become = re.escape(", ".join(" * ".join([x, *read]) for x in written))
    wrote = (
        rf"^(Return|Write) ``{product}``(, \d times| to ``out``)?\.$|\| `({product}|{become})` \|$|"
        rf"product of its tensors and num|"
        rf"by the other(s\.| tensors and)|mean of \({product}\) \*\* 2"
    )
    readme = Path(__file__).parents[1] / "README.md"
    lines = readme.read_text("utf-8").splitlines() if readme.exists() else []
    texts = {
        f"its docstring in python/{package}/ops.py": (inspect.getdoc(case.function) or "").partition("\n")[0],
        "its line in README.md": next((line for line in lines if line.startswith(f"| `{package}.{case.name}(")), ""),
    }
    left = [place for place, text in texts.items() if re.search(wrote, text)]
    if left and not is_of_template(case, case.sample(case.dtypes[-1], device)):
        pytest.fail(f"{case.name}: write what it computes into {' and '.join(left)}", pytrace=False)


def test_invalid_indices(case, device):
    """Invalid indices raise an error before anything is written."""
    args = case.sample(case.dtypes[-1], "cpu")
    for name, values in case.invalid_indices(args).items():
        for value in values:
            given = [x.clone() if is_tensor(x) else x for x in args]
            index = given[case.names.index(name)]
            assert index.numel(), f"{case.name}: {name} is empty in the first of its shapes"
            index.view(-1)[-1] = value
            before = [x.clone() if is_tensor(x) else x for x in given]
            by_place, by_keyword = case.given(given)
            try:
                case.function(*by_place, **by_keyword)
            except (RuntimeError, IndexError) as error:
                assert case.name in str(error), str(error)
            else:
                pytest.fail(f"{case.name}: {name} may have {value}; if that is right, write invalid=... in its Case")
            written = [case.names[i] for i, x in enumerate(given) if is_tensor(x) and not x.equal(before[i])]
            assert not written, f"{case.name}: {written} are written to before {name} is refused"


def test_threads_share_the_work(case, device):
    """Results of several threads are right, even on a machine with one processor."""
    args, threads = case.sample(case.dtypes[-1], device, case.shapes[-1]), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with new_memory_is_nan():
            result = case.call(*args)
    finally:
        torch.set_num_threads(threads)
    case.check(result, case.expected(*args), "the result of many elements, computed by 4 threads")


def test_a_large_mean_is_no_loss(case, device):
    """Rows with a large mean keep their precision. A difference of two sums of squares would lose it."""
    if not case.is_over_rows or case.mean is None or torch.float32 not in case.dtypes:
        pytest.skip("no elements around a large mean")
    for choice, shape in itertools.product(case.choices, case.shapes):
        args = case.sample(torch.float32, device, shape, choice)
        args[case.first] += case.mean
        # Integers are not compared, because a rounding may change them.
        result, expected = (tuple(filter(is_float, as_tuple(y))) for y in (case.call(*args), case.expected(*args)))
        case.close(result, expected, f"the result of a large mean, {list(shape)}", rtol=1e-3, atol=1e-3)


def test_a_place_out_of_its_row(case, device):
    """A label outside of its row is an error, unless the reference has a result for it, as for an `ignore_index`."""
    labels = [place for place, name in enumerate(case.names) if is_label(case, name)]
    if not labels:
        pytest.skip("it takes no label for each row")
    if device == "cuda":
        pytest.skip("it stops the kernel, as in torch, and then this process cannot use the GPU any more")
    numbers = [x for x in case.sample(torch.float32, device, (2, 7)) if type(x) is int]
    for label, value in itertools.product(labels, (-1, 7, 2**40, *numbers)):
        args = case.sample(torch.float32, device, (2, 7))
        args[label] = args[label].clone()
        args[label].view(-1)[-1] = min(value, torch.iinfo(args[label].dtype).max)
        try:
            expected = case.expected(*args)
        except (IndexError, RuntimeError):
            refuses(case, "a place that is read lies outside of its row", case.call, *args)
        else:
            case.check(case.call(*args), expected, f"the result of {case.names[label]} {value}")


def is_label(case, name):
    form = case.forms[0]
    of_row = zip(form.inputs, form.of_row[1], strict=True) if case.is_over_rows else ()
    own = form.own.get(name)
    return dict(of_row).get(name) and own not in (None, torch.bool) and not own.is_floating_point


def test_the_fake_kernel_knows_the_result(case, device):
    def metadata(x):
        # For an empty tensor, torch.empty_like itself has different strides with data and without.
        return x.dtype, x.shape, x.stride() if x.numel() else None

    for dtype, choice, shape, layout in itertools.product(case.dtypes, case.choices, case.shapes, LAYOUTS):
        args = with_layout(layout, case.sample(dtype, device, shape, choice))
        real, fake = (each(metadata, case.call(*these)) for these in (args, without_data(args)))
        assert fake == real, f"{case.name}: dtype, shape and strides of the fake result of {list(shape)}, {layout}"


# With 100 rows, the gradient of a tensor that they share is summed in parts.
@pytest.mark.parametrize("shape", [(3, 4), (100, 4)], ids=str)
def test_broadcasting(case, device, shape):
    """A tensor that lacks a dimension, or has size 1 there, is repeated, and its gradient is summed."""
    if not case.broadcasts or len(case.forms[0].inputs) < 2:
        pytest.skip("it does not broadcast")
    whole = case.sample(case.dtypes[-1], device, shape)
    read = [i for i, x in enumerate(whole) if is_tensor(x) and x.dim() == 2 and case.names[i] not in case.written]
    for place, of_one in itertools.product(read, ("row", "column")):
        small = whole[place][0] if of_one == "row" else whole[place][:, :1]
        given = [small if i == place else x for i, x in enumerate(whole)]
        expanded = [small.expand(shape) if i == place else x for i, x in enumerate(whole)]
        if torch.broadcast_shapes(*(x.shape for x in tensors(given) if x.dim() == 2 or x is small)) != shape:
            continue  # no other tensor determines the length of a row
        what = f"{case.name} of a {of_one} as {case.names[place]}"
        result, expected = case.call(*given), case.call(*expanded)
        assert_close(result, expected, rtol=0, atol=0, equal_nan=True, msg=lambda m, what=what: f"{what}: {m}")
        fake, real = (each(lambda x: (x.shape, x.stride()), y) for y in (case.call(*without_data(given)), result))
        assert fake == real, what
        if case.names[place] not in case.differentiable:
            continue
        for args in (given, expanded):
            args[place] = args[place].detach().requires_grad_()
        (actual,), (of_all,) = (
            torch.autograd.grad(sum(y.sum() for y in as_tuple(case.call(*args)) if y.requires_grad), args[place])
            for args in (given, expanded)
        )
        assert_close(actual, of_all.sum_to_size(small.shape), msg=lambda m, what=what: f"the gradient of {what}: {m}")


class Listens(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_out(case, device):
    """The result is written to `out`, which may be an argument, and the write is counted, also under a mode."""
    if not case.has_out:
        pytest.skip("it has no out")
    for observer in (contextlib.nullcontext, Listens):
        args = case.sample(case.dtypes[-1], device)
        expected = case.call(*args)
        # A tensor with one value for each row must share no memory with out.
        may_be_out = [] if case.is_over_rows and case.forms[0].of_row[0][0] else tensors(args)[:1]
        for out in (
            case.empty_out(args),
            *(x for x in may_be_out if (x.dtype, x.shape) == (expected.dtype, expected.shape)),
        ):
            version = out._version
            with observer():
                by_place, by_keyword = case.given(args)
                returned = case.function(*by_place, **by_keyword, out=out)
            assert returned is (None if case.writes else out)
            assert torch.equal(out, expected)
            assert out._version > version, f"{case.name}: the write into out is not counted"


def test_writes(case, device):
    """Writes to arguments are counted, also under a mode, and are right in views and in compiled programs."""
    args = case.sample(case.dtypes[-1], device)
    expected = case.call(*args)
    places = [place for place, name in enumerate(case.names) if name in case.written and is_tensor(args[place])]
    compiled = torch.compile(case.function, fullgraph=True, backend="aot_eager")
    for how, function, observer in (
        ("", case.function, contextlib.nullcontext),
        ("observed ", case.function, Listens),
        ("compiled ", compiled, contextlib.nullcontext),
    ):
        given = [x.clone() if is_tensor(x) else x for x in args]
        # Dynamo passes an argument named `out` by name, and refuses it if it is not contiguous.
        apart = [place for place in places if how and not (function is compiled and case.names[place] == "out")]
        wide = {place: torch.stack([given[place], given[place]], -1) for place in apart}
        for place, x in wide.items():
            given[place] = x[..., 0]
        before = [given[place]._version for place in places]
        with observer():
            result = case.call(*given, out=given[places[0]], function=function)
        case.check(result, expected, f"the {how}result")
        for place, version in zip(places, before, strict=True):
            what = f"{case.name}: the {how}write into {case.names[place]} is not counted"
            assert given[place]._version > version, what
        for place, x in wide.items():
            assert torch.equal(x[..., 1], args[place]), f"{case.name}: a {how}write beside {case.names[place]}"


def test_writes_that_are_refused(case, device):
    """A write is refused if it would change elements that are read later, lose a gradient, or mix batches."""
    args = case.sample(case.dtypes[-1], device)
    places = [place for place, x in enumerate(args) if is_tensor(x)]

    def refused(message, place, x, function=case.call):
        given = [y.clone() if is_tensor(y) else y for y in args]
        given[place] = x(given) if callable(x) else x
        refuses(case, message, function, *given, out=given[place])

    for place in places:
        name, x = re.escape(case.names[place]), args[place]
        for other in (other for other in places if case.names[place] in case.written and other != place):
            if args[other].dtype != x.dtype:
                pass  # an earlier check refuses different dtypes
            elif case.kernel or case.names[other] in case.written:
                message = ".* is written to and must share no memory with "
                if args[other].numel() >= (n := x.numel()):  # over rows their shapes may differ
                    refused(message, place, lambda given, j=other, n=n, x=x: given[j].view(-1)[:n].view_as(x))
            else:  # if it has the same shape, it may be the same tensor: each element is read before it is written
                message = f"{name} (must be .* itself or|is written to and must) share no memory with "
                refused(message, place, partial(overlapping, other, x))
            in_dims = tuple(0 if i == other else None for i in range(len(args)))
            with pytest.raises(RuntimeError, match=".* must have a batch dimension under vmap"):
                vmap(lambda *y, other=other: case.call(*y, out=y[other]), in_dims)(
                    *(torch.stack([y, y]) if i == other else y for i, y in enumerate(args))
                )
        if case.names[place] in case.written:
            refused(f"{name} must not overlap itself", place, x[:1].expand_as(x))
            with torch.inference_mode():
                made_there = x.clone()
            refused(f"{name} was made in inference mode", place, made_there)
        if is_float(x):
            refused(f".*{name} requires grad", place, x.clone().requires_grad_())
    for place in [place for place in places if case.names[place] in case.written and is_float(args[place])][1:]:
        given = case.sample(torch.float32, device)
        given[place] = given[place].half()
        with torch.autocast(device):  # if it cast this tensor, the call would write to a copy
            message = f".* must have the same dtype|{re.escape(case.names[place])} must be float"
            refuses(case, message, case.call, *given, out=given[place])


def overlapping(place, x, given):
    """Replace the argument at this index, and return a tensor like x that begins at its last element."""
    last = given[place].numel() - 1
    memory = x.new_zeros(last + x.numel())
    given[place] = memory[: last + 1].view_as(given[place])
    return memory[last:].view_as(x)


def refuses(case, message, function, *args, **options):
    with pytest.raises(RuntimeError) as caught:
        function(*args, **options)
        pytest.fail(f"{case.name}: this call must raise an error: {message}")
    assert re.match(f"{case.forms[0].name}: (?:{message})", str(caught.value)), str(caught.value)


@pytest.mark.parametrize("data", [True, False], ids=["data", "meta"])
def test_bad_arguments_are_named(case, device, data):
    """Bad arguments raise an error that names them, with the same text for real and for meta tensors."""
    args = case.sample(case.dtypes[0], device)
    args = args if data else without_data(args)
    out, first = case.empty_out(args), case.first
    others = [place for place, x in enumerate(args) if is_tensor(x) and place != first]
    names, required = list(map(re.escape, case.names)), case.forms[0].required
    bad, any_tensor = [], rf"({'|'.join(names)})(\[\d+\])?"
    for place in (first, *others):
        name, x = names[place], args[place]
        own, both = f"{name} must be .*, got complex64", f"{names[first]} and {name} must"
        if case.kernel:  # it may compare the tensors in any order
            both = f"({any_tensor} and {name}|{name} and {any_tensor}) must"
        is_alone = place == first and not case.kernel
        bad += [(place, x.to(torch.complex64), own if is_alone else f"{both} have the same dtype|{own}")]
        if place == first:
            continue
        bad += [(place, torch.empty_like(x, device="meta" if data else "cpu"), f"{both} be on the same device")]
        if x.dim() and x.shape == args[first].shape and x.dtype == args[first].dtype:
            shapes = ".* must have shapes that broadcast" if case.broadcasts else f"{both} have the same shape"
            bad.append((place, torch.cat([x, x]), shapes))
    missing = [place for place in (first, *others) if case.names[place] in required]
    bad += [(place, None, f"{names[place]} must be a tensor, got None") for place in missing]
    for name, values in case.forms[0].choices.items():
        more = not values[0] if isinstance(values[0], bool) else max(values) + 1
        bad += [(case.names.index(name), more, f"{name} must be .*{values[-1]}, got {more}")] * (more not in values)
    for place, x, message in bad:
        refuses(case, message, case.call, *args[:place], x, *args[place + 1 :], out=out)
    for place in missing if others else ():  # the operator itself must refuse None, too
        by_place, by_keyword = case.given([*args[:place], None, *args[place + 1 :]])
        message = f"{names[place]} must be a tensor, got None"
        refuses(case, message, case.ops[0], *by_place, *[out] * case.writes, **by_keyword)


def test_a_kernel_takes_the_shapes_that_its_fake_kernel_takes(case, device):
    """A kernel that takes other shapes than it was written for reads past the end of a tensor."""
    args = case.sample(case.dtypes[-1], device)
    tensors = [(place, x) for place, x in enumerate(args) if is_tensor(x)] if case.kernel else []

    def outcome(args):
        args = [x.clone() if is_tensor(x) else x for x in args]  # a kernel may write to them
        try:
            result = case.call(*args, out=case.empty_out(args))
        except RuntimeError:
            return "an error"
        return [(x.shape, x.dtype) for x in as_tuple(result) if is_tensor(x)]

    for place, x in tensors:
        for other in (*(torch.cat([x, x], dim) for dim in range(x.dim())), x[None]):
            given = [*args[:place], other, *args[place + 1 :]]
            real, fake = outcome(given), outcome(without_data(given))
            may_differ = real == "an error" and not x.is_floating_point()  # only a real kernel sees the integers
            what = f"{case.names[place]} of shape {list(other.shape)} in place of {list(x.shape)}"
            assert real == fake or may_differ, f"{case.name}: {what} gives {real}, and in the fake kernel {fake}"


def test_a_kernel_takes_the_lists_that_its_fake_kernel_takes(case, device):
    """A kernel that takes other lists than it was written for reads past the end of one."""
    args = case.given(case.sample(case.dtypes[-1], device), ())[0] if case.kernel else []

    def outcome(args):
        try:
            result = case.kernel.call(*args)
        except RuntimeError:
            return "an error"
        return [(x.shape, x.dtype) for x in as_tuple(result) if is_tensor(x)]

    for place, x in enumerate(args):
        for other in (x[:-1], [*x, copy.deepcopy(x[-1])]) if isinstance(x, (list, tuple)) and x else ():
            given = [*args[:place], other, *args[place + 1 :]]
            fake, real = outcome(without_data(given)), outcome(copy.deepcopy(given))
            what = f"{[*case.kernel.kinds][place]} of {len(other)} elements in place of {len(x)}"
            assert real == fake, f"{case.name}: {what} gives {real}, and in the fake kernel {fake}"


def test_a_tensor_on_mps_is_refused(case, device):
    """An error says what to do with a tensor on an Apple GPU. Fake tensors can be on one without such a device."""
    args = case.sample(case.dtypes[0], device)
    with FakeTensorMode() as mode:
        args = [mode.from_tensor(x) if is_tensor(x) else x for x in args]
        out = case.empty_out(args)
        for place, x in enumerate(args):
            if is_tensor(x):
                there = x.new_empty(x.shape, device="mps")
                must = 'must be on the CPU or a CUDA device, got mps:0; call to("cpu") first'
                message = re.escape(f"{case.names[place]} {must}")
                refuses(case, message, case.call, *args[:place], there, *args[place + 1 :], out=out)
    for op in case.ops:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "MPS"), f"{op.name()} has no kernel for MPS"


def test_no_memory_is_read_past_the_end_of_a_storage(case, device):
    """A tensor whose storage was made smaller, as FSDP does, is refused."""
    args = case.sample(case.dtypes[-1], device)
    out = case.empty_out(args)
    for place, x in enumerate(args):
        for less in (1, x.numel()) if is_tensor(x) else ():
            shrunk = x.clone()
            shrunk.untyped_storage().resize_((x.numel() - less) * x.element_size())
            message = f"{re.escape(case.names[place])} must lie in its storage"
            refuses(case, message, case.call, *args[:place], shrunk, *args[place + 1 :], out=out)


def test_memory_that_is_not_there_is_refused(case, device):
    """A tensor without memory is refused. Autograd makes such zeros. A view of them begins at null plus an offset."""
    args = case.sample(case.dtypes[-1], device)
    out = case.empty_out(args)
    for place, x in enumerate(args):
        if is_tensor(x):
            size = (x.numel() + 1) * x.element_size()
            nothing = torch._C._construct_storage_from_data_pointer(0, x.device, size)
            absent = x.new_empty(0).set_(nothing, 1, x.shape)
            message = f"{re.escape(case.names[place])} must have memory"
            refuses(case, message, case.call, *args[:place], absent, *args[place + 1 :], out=out)


def test_registrations(case, device):
    """Schema, fake kernel, autograd registration and compiled programs agree with the kernel."""
    for op in case.ops:
        name, _, overload = op.name().partition("::")[2].partition(".")
        for requires_grad in {False, bool(case.differentiable)}:
            args = with_layout("transposed", case.sample(case.dtypes[-1], device))
            for place, argument in enumerate(case.names):
                if argument in case.present(args):
                    args[place].requires_grad_(requires_grad)
                elif overload and isinstance(args[place], float):
                    args[place] = torch.tensor(args[place], dtype=torch.float64)
            writes = [case.empty_out(args)] if name.endswith("_out") else []
            if not (writes and requires_grad):  # such a call warns
                # The other forms take all arguments by position.
                by_place, by_keyword = case.given(args, None if op is case.ops[0] else ())
                # torch's check of schemas does not support a device as an argument.
                schema = [] if any(isinstance(x, torch.device) for x in args) else ["test_schema"]
                utils = [*schema, "test_autograd_registration", "test_faketensor"]
                # torch's check adds the sums of all results to that of the first, which may be an integer.
                if not requires_grad or is_float(as_tuple(case.call(*args))[0]):
                    utils.append("test_aot_dispatch_dynamic")
                torch.library.opcheck(op, (*by_place, *writes), by_keyword, test_utils=utils)


def leaves(case, args, names):
    """Return arguments of which only those with these names require grad."""
    pairs = zip(case.names, args, strict=True)
    return [x.detach().requires_grad_() if name in names and is_tensor(x) else x for name, x in pairs]


def gradients(case, function, args, names, cotangents):
    """Return the gradients with respect to these arguments, by name. Results whose cotangent is None are not used."""
    args = leaves(case, args, names)
    results = [y for y in as_tuple(function(*args)) if is_float(y)]
    pairs = [(y, x.to(y.dtype)) for y, x in zip(results, cotangents, strict=True) if y.requires_grad and x is not None]
    inputs = [args[case.names.index(name)] for name in names]
    if not pairs:
        return dict(zip(names, map(torch.zeros_like, inputs), strict=True))
    results, cotangents = zip(*pairs, strict=True)
    return dict(zip(names, torch.autograd.grad(results, inputs, cotangents, materialize_grads=True), strict=True))


def cotangents_of(case, args):
    return [torch.randint_like(y, 1, 3) - 1.5 for y in as_tuple(case.call(*args)) if is_float(y)]


def subsets(names):
    """Return all subsets, or for more than five names those of one, of two, of all but one, and of all."""
    most = len(names)
    sizes = range(1, most + 1) if most <= 5 else (1, 2, most - 1, most)
    return [subset for n in sizes for subset in itertools.combinations(names, n)]


def test_gradients(case, device):
    """Gradients are those of the reference.

    Where both arguments of elementwise::min are equal, torch.minimum has the same derivative; torch.clamp has another.
    The reference computes in float64, where a number such as 0.8 is another one than in float32: if a kink depends on
    it, test with a number that every dtype has, such as 0.75. At NaN the reference may have any derivative.
    """
    for what, args in case.samples(device, with_nan=False):
        cotangents = cotangents_of(case, args)
        wide = [x.double() if is_float(x) else x for x in args]
        actual = gradients(case, case.call, args, case.present(args), cotangents)
        expected = gradients(case, case.reference, wide, case.present(args), cotangents)
        for name, gradient in actual.items():
            # Compare only where the reference's gradient is finite in the tested dtype.
            dtype = gradient.dtype
            of_reference = expected[name].to(dtype)
            where = of_reference.isfinite()
            ours, theirs = (torch.where(where, x, 0) for x in (gradient, of_reference))
            terms = args[case.first].shape[-1:].numel() if case.is_over_rows else 1  # rounding errors of a sum
            tolerances = {"rtol": GRADIENT_TOLERANCE[dtype], "atol": GRADIENT_TOLERANCE[dtype] * max(1, terms) ** 0.5}
            # In 16 bits, rounding moves a few elements across a kink of the function.
            few = ours.numel() // 100 if dtype.itemsize == 2 else 0
            if (~torch.isclose(ours, theirs, **tolerances)).sum() > few:
                case.close(ours, theirs, f"the gradient of {name}, reverse mode, {what}", **tolerances)


def test_gradients_of_each_subset(case, device):
    """If only some arguments require grad, their gradients are the same, in reverse and in forward mode."""
    few, many = case.shapes[0], case.shapes[-1]
    choices = [(few, torch.float64, choice) for choice in case.choices_with_floats()]
    for shape, dtype, choice in [*choices, (many, torch.float32, {})]:
        args = case.sample(dtype, device, shape, choice)
        cotangents = cotangents_of(case, args)
        of_all = gradients(case, case.call, args, case.present(args), cotangents)
        tangents = {name: torch.rand_like(gradient) for name, gradient in of_all.items()}
        for subset in subsets(case.present(args)):
            where = f"where {' and '.join(subset)} have one, shape {list(shape)}, {str(dtype)[6:]}"
            for name, gradient in gradients(case, case.call, args, subset, cotangents).items():
                case.check(gradient, of_all[name], f"the gradient of {name}, reverse mode, {where}")
            alone = [[x if i == j else None for j, x in enumerate(cotangents)] for i in range(len(cotangents))]
            parts = [gradients(case, case.call, args, subset, of_one) for of_one in alone if len(alone) > 1]
            for name in subset if parts else ():
                whole = sum(part[name] for part in parts)
                case.check(whole, of_all[name], f"the gradients of {name} by one result each, {where}")
            if shape == few:
                _, of_results = torch.func.jvp(*of_floats(case, args, subset), tuple(tangents[name] for name in subset))
                actual = sum((x * y).sum() for x, y in zip(of_results, cotangents, strict=True))
                expected = sum((of_all[name] * tangents[name]).sum() for name in subset)
                case.check(actual, expected, f"the tangent of {' and '.join(subset)}, forward mode, {where}")


class Stops(torch.autograd.Function):
    """Returns its input, and has no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


def test_where_no_gradient_comes_back_none_is_passed_on(case, device):
    sample = case.sample(case.dtypes[-1], device)
    for subset in subsets(case.present(sample)):
        args = leaves(case, sample, subset)
        results = [Stops.apply(y) for y in as_tuple(case.call(*args)) if is_float(y)]
        inputs = [args[case.names.index(name)] for name in subset]
        gradients = torch.autograd.grad(scalar(tuple(results)), inputs, allow_unused=True)
        assert not any(x.any() for x in gradients if x is not None), subset


def of_floats(case, args, names, function=None):
    """Return a function from these arguments to the floating-point results, and the arguments."""
    places = [case.names.index(name) for name in names]

    def of_these(*x):
        given = dict(zip(places, x, strict=True))
        results = as_tuple((function or case.call)(*(given.get(place, y) for place, y in enumerate(args))))
        return tuple(y for y in results if is_float(y))

    return of_these, tuple(args[place] for place in places)


def test_arguments_without_a_gradient(case, device):
    """An argument without a gradient raises an error in both modes, and is not taken for a constant."""
    if case.writes or case.written:
        pytest.skip("it records nothing")
    args = case.sample(case.dtypes[-1], device)
    if not any(map(is_float, as_tuple(case.call(*args)))):
        pytest.skip("its results are integers, which have no derivative to lose")
    for name, x in zip(case.names, args, strict=True):
        if is_float(x) and name not in case.differentiable:
            given, results = leaves(case, args, [name]), ()
            with contextlib.suppress(RuntimeError):  # some operators refuse the call itself
                results = as_tuple(case.call(*given))
            for y in results:
                if y.requires_grad:
                    refuses(case, "", torch.autograd.grad, y.sum(), given[case.names.index(name)])
            refuses(case, "", torch.func.jvp, *of_floats(case, args, [name]), (x,))


class Taylor:
    """The derivatives of an operator at several points, and the Taylor polynomials that have these derivatives.

    Each derivative is the gradient of the previous one. The polynomials consist of PyTorch's operators, so every
    nesting of transforms differentiates them correctly, and the operator must agree.
    """

    def __init__(self, case, device, choice, n, order):
        samples = [case.sample(torch.float64, device, choice=choice) for _ in range(n)]
        self.names = case.present(samples[0])
        self.points = [of_floats(case, args, self.names)[1] for args in samples]
        # The other arguments come from the first sample. Infinite results, such as the logarithm of a probability of 0,
        # are replaced by a constant, because finite differences and polynomials cannot represent them.
        self.function, self.reference = (
            lambda *x, f=f: tuple(torch.where(y.isinf(), 0, y) for y in f(*x))
            for f, _ in (of_floats(case, samples[0], self.names, function) for function in (case.call, case.reference))
        )
        self.shapes = [x.shape for x in self.points[0]]
        self.result_shapes = [y.shape for y in self.function(*self.points[0])]
        self.x = torch.stack([flat(x) for x in self.points])
        of_points = [self.derivatives(x, order) for x in self.x]
        self.levels = [torch.stack(level) for level in zip(*of_points, strict=True)]

    def derivatives(self, x, order, function=None):
        """Return the results at a point, as one vector, and their derivatives."""
        x = x.detach().requires_grad_()
        y = flat((function or self.function)(*split(x, self.shapes)))
        levels, rows = [y.detach()], [y]
        for n in range(order):
            # Differentiate each element by itself. Through a stack, autograd would visit the graphs of all elements.
            rows = [self.gradient(y, x, create_graph=n + 1 < order) for row in rows for y in row]
            levels.append(torch.stack(rows).detach().view(*levels[-1].shape, len(x)))
        return levels

    def gradient(self, y, x, create_graph):
        if not y.requires_grad:
            return torch.zeros_like(x)
        return torch.autograd.grad(y, x, create_graph=create_graph, retain_graph=True, materialize_grads=True)[0]

    def __call__(self, *args):
        x = flat(args)
        at = (x == self.x).all(-1).to(x.dtype)
        d = x - at @ self.x
        *lower, results = (torch.tensordot(at, level, 1) for level in self.levels)
        for n in range(len(lower), 0, -1):
            results = lower[n - 1] + results @ d / n
        return tuple(split(results, self.result_shapes))


def flat(xs):
    return torch.cat([x.reshape(-1) for x in xs])


def split(x, shapes):
    parts = x.split([shape.numel() for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def test_derivatives_are_those_of_what_they_are_derived_from(case, device):
    """Each higher derivative in reverse mode matches finite differences of the previous one, up to the last order.

    The first one is that of the reference. It need not be that of the values: a straight-through estimator has another.
    Where a value is detached, differences see its changes, and the derivative need only be that of the reference. If
    many arguments have a derivative, it stops at the second order, because the third one would take minutes.
    """
    orders = min(case.orders, 2) if len(case.differentiable) > 5 else case.orders
    for choice in case.choices_with_floats():
        taylor, h = Taylor(case, device, choice, 1, orders), 1e-5
        (x,), is_detached = taylor.x, False
        names = [name for name, x in zip(taylor.names, taylor.points[0], strict=True) for _ in range(x.numel())]
        for place, name in enumerate(names):
            step = h * torch.eye(len(x), dtype=x.dtype, device=x.device)[place]
            above, below = (taylor.derivatives(x + step, orders - 1), taylor.derivatives(x - step, orders - 1))
            for order in range(1, orders):
                difference = (above[order] - below[order]) / (2 * h)
                found, what = taylor.levels[order + 1][0], f"derivative {order + 1} by {name}, reverse mode"
                try:
                    case.close(found[..., place], difference, what, rtol=1e-3, atol=1e-5)
                except AssertionError:
                    expected = taylor.derivatives(x, order + 1, taylor.reference)[-1]
                    case.close(found, expected, what, rtol=1e-6, atol=1e-8)
                    is_detached = True
        # A gradient also depends on the incoming gradient: differentiate with respect to both.
        leaves = [x.detach().requires_grad_() for x in taylor.points[0]]
        if orders > 1 and not is_detached and any(y.requires_grad for y in taylor.function(*leaves)):
            torch.autograd.gradgradcheck(taylor.function, leaves)


def scalar(results):
    return sum(scalar(x) for x in results) if isinstance(results, tuple) else results.sum()


TRANSFORMS = {
    "vmap": lambda f, n: vmap(f),
    "grad": lambda f, n: torch.func.grad(lambda *x: scalar(f(*x)), tuple(range(n))),
    "jvp": lambda f, n: lambda *x: torch.func.jvp(f, x, tuple(value.cos() for value in x)),
    "jacrev": lambda f, n: torch.func.jacrev(f, tuple(range(n))),
    "jacfwd": lambda f, n: torch.func.jacfwd(f, tuple(range(n))),
}


@pytest.mark.parametrize("depth", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_nested_derivatives(case, device, depth):
    """Every nesting of transforms agrees with the operator's derivatives."""
    orders = min(depth, case.orders)
    taylor = Taylor(case, device, {}, 3, orders)
    for nesting in [nesting for n in range(depth) for nesting in itertools.product(TRANSFORMS, repeat=n + 1)]:
        forward = sum(nesting.count(name) for name in ("jvp", "jacfwd"))
        if case.is_over_rows and (forward > 1 or len(nesting) - nesting.count("vmap") > orders):
            continue  # operators over rows refuse this nesting
        batch = (2,) * nesting.count("vmap")
        which = torch.arange(2 ** len(batch), device=device) % 3  # batch dimensions differ from each other
        x = [
            torch.stack(of_points)[which].reshape(batch + of_points[0].shape)
            for of_points in zip(*taylor.points, strict=True)
        ]
        actual, expected = taylor.function, taylor
        for transform in reversed(nesting):
            actual, expected = (TRANSFORMS[transform](f, len(x)) for f in (actual, expected))
        compare(case, actual(*x), expected(*x), " of ".join(nesting), nesting[0] in ("grad", "jacrev", "jacfwd"))


def compare(case, actual, expected, what, by_argument):
    if isinstance(actual, tuple):
        names = case.differentiable if by_argument and len(actual) == len(case.differentiable) else [""] * len(actual)
        for name, x, y in zip(names, actual, expected, strict=True):
            compare(case, x, y, f"{what} by {name}" if name else what, False)
    else:
        case.close(actual, expected, what, rtol=1e-6, atol=1e-8)


def two_that_differ(case, device, choice):
    """Return the arguments of two calls. Their tensors of integers differ, if that is possible."""
    for _ in range(20):
        pair = [case.sample(case.dtypes[-1], device, choice=choice) for _ in range(2)]
        both = [(x, y) for x, y in zip(*pair, strict=True) if is_tensor(x) and not is_float(x)]
        if not any(x.equal(y) for x, y in both):
            break
    return pair


def test_vmap(case, device):
    """vmap works over any dimension of any of the tensors."""
    for choice in case.choices:
        pair = two_that_differ(case, device, choice)
        places = [place for place, x in enumerate(pair[0]) if is_tensor(x)]
        for batched in subsets(places):
            if case.writes and places[0] not in batched:
                continue
            if case.written and any(case.names[place] in case.written for place in {*places} - {*batched}):
                continue  # it is refused (test_writes_that_are_refused)
            for dim in (0, 1, -1):
                in_dims, stacked = [None] * len(case.names), list(pair[0])
                for place in batched:
                    in_dims[place] = min(dim, pair[0][place].dim())
                    stacked[place] = torch.stack([pair[0][place], pair[1][place]], in_dims[place])
                result = vmap(case.call, tuple(in_dims))(*stacked)
                for i in range(2):
                    one = [pair[i][place] if place in batched else x for place, x in enumerate(pair[0])]
                    what = f"vmap over dimension {dim} of {' and '.join(case.names[place] for place in batched)}"
                    numbers = [x for x in pair[0] if not is_tensor(x)]
                    case.check(each(lambda x, i=i: x[i], result), case.call(*one), f"{what}, numbers {numbers}")


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled(case, device, backend):
    """The operator compiles in one graph, forward and backward, even if Inductor fuses it with the next operation."""

    def function(*args):
        return each(lambda y: torch.maximum(y, y), case.call(*args, out=out))

    # Only an operator with `fused` computes in a compiled program what the kernel does not compute.
    is_fused = case.has_functor and case.forms[0].promises.fused
    for choice in case.choices if is_fused else case.choices[:: len(case.choices) - 1 or 1]:
        args = case.sample(case.dtypes[-1], device, choice=choice)
        out = case.empty_out(args) if case.writes else None
        args = leaves(case, args, case.differentiable)
        result, expected = torch.compile(function, fullgraph=True, backend=backend)(*args), case.call(*args)
        case.check(result, expected, "the compiled result")
        inputs = [x for x in tensors(args) if x.requires_grad]
        if inputs and any(map(is_float, as_tuple(result))):
            floats = [[y for y in as_tuple(of_one) if is_float(y)] for of_one in (result, expected)]
            actual, expected = (torch.autograd.grad(scalar(tuple(y)), inputs) for y in floats)
            case.check(actual, expected, f"the compiled gradients of {' and '.join(case.differentiable)}")


def test_fused(case, device):
    """The table's entry ``fused`` is right. Only Inductor uses it, and no other quick test runs Inductor."""
    test_compiled(case, device, "inductor")


def numbers(args):
    return [place for place, x in enumerate(args) if isinstance(x, float)]


def test_numbers_change_without_compiling_again(case, device):
    if not case.has_functor:
        pytest.skip("a kernel: a number is a constant of the compiled program")
    args, compilations = case.sample(case.dtypes[0], device), 0

    def backend(graph, inputs):
        nonlocal compilations
        compilations += 1
        return graph.forward

    out = case.empty_out(args) if case.writes else None
    compiled = torch.compile(lambda *args: case.call(*args, out=out), backend=backend, fullgraph=True)
    for factor in (1.0, 1.25, 1.5, 1.75):
        changed = [x * factor if place in numbers(args) else x for place, x in enumerate(args)]
        case.check(compiled(*changed), case.call(*changed), f"the compiled result, all numbers times {factor}")
    assert compilations <= 2  # from the second one on, the compiler treats numbers as variables


def test_numbers_that_require_grad_are_refused(case, device):
    args = case.sample(case.dtypes[0], device)
    for place in numbers(args):
        learned = [torch.tensor(x, requires_grad=True) if place == i else x for i, x in enumerate(args)]
        with pytest.raises(RuntimeError, match=f"{case.names[place]} has no gradient"):
            case.call(*learned)


def test_autocast(case, device):
    """A region casts to the dtype that the operator promises, and the result has the precision of that dtype."""
    if torch.float32 not in case.dtypes:
        pytest.skip("not of floating-point dtypes")
    promised = case.forms[0].promises.autocast
    if case.autocast not in (None, promised):
        sentence = f"its Case says that autocast does {case.autocast!r}, and the operator {promised!r}"
        pytest.fail(f"{case.name}: {sentence}", pytrace=False)
    args = case.sample(torch.float32, device)
    left = {*case.written, *case.forms[0].own}
    read = [place for place, x in enumerate(args) if is_float(x) and case.names[place] not in left]
    for target in (torch.bfloat16, torch.float16):
        mixed = [x.to(target) if place in read[:1] else x for place, x in enumerate(args)]
        for these in (args, mixed):
            with torch.autocast(device, target):
                result = case.call(*these)
            # Integers are not compared, because a rounding may change them.
            expected = case.expected(*case.in_region(these, target))
            actual, expected = (tuple(filter(is_float, as_tuple(y))) for y in (result, expected))
            case.check(actual, expected, f"the result under autocast to {str(target)[6:]}")


def test_a_backward_pass_in_an_autocast_region(case, device):
    """If only the backward pass is in an autocast region, it uses the dtype of the forward pass."""
    if not case.differentiable or torch.float32 not in case.dtypes:
        pytest.skip("it has no derivative in float32")
    args = leaves(case, case.sample(torch.float32, device), case.differentiable)
    inputs = [x for x in tensors(args) if x.requires_grad]
    for how, function in (("", case.call), ("compiled ", torch.compile(case.call, backend="aot_eager"))):
        y = scalar(tuple(y for y in as_tuple(function(*args)) if is_float(y)))
        expected = torch.autograd.grad(y, inputs, retain_graph=True)
        with torch.autocast(device, torch.bfloat16):
            actual = torch.autograd.grad(y, inputs)
        case.check(actual, expected, f"the {how}gradients of {' and '.join(case.differentiable)} in an autocast region")


def test_a_mode_does_not_change_the_bits_of_a_backward_pass(case, device):
    """A backward pass has the same bits with and without a mode; without one it bypasses the dispatcher."""
    if not case.differentiable:
        pytest.skip("it has no derivative")
    sample = case.sample(case.dtypes[-1], device)
    for subset in subsets(case.present(sample)):
        args = leaves(case, sample, subset)
        inputs = [args[case.names.index(name)] for name in subset]
        y = scalar(tuple(y for y in as_tuple(case.call(*args)) if is_float(y)))
        expected = torch.autograd.grad(y, inputs, retain_graph=True, materialize_grads=True)
        with Listens():
            actual = torch.autograd.grad(y, inputs, materialize_grads=True)
        case.close(actual, expected, f"the gradients of {' and '.join(subset)}, observed", rtol=0, atol=0)


@pytest.fixture(scope="module")
def mesh():
    """Return a mesh with only this process."""
    importlib.import_module("my_ops.dtensor")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_dtensors(case, mesh):
    """DTensors are computed shard by shard, and results keep the placement of the arguments."""
    if not case.has_functor:
        pytest.skip("a kernel has no rule for DTensors")
    args = case.sample(case.dtypes[-1])
    if any(is_tensor(x) and x.shape != args[case.first].shape for x in args):
        pytest.skip("not of one shape")
    if case.is_over_rows and args[case.first].dim() == 1:
        pytest.skip("it is one row, which is not sharded")
    expected = case.call(*args)
    # The dimension that row.index() counts is replicated.
    keeps = not case.forms[0].asks_for_index or args[case.first].dim() > 2
    for placement in (Shard(0), Replicate()):
        of_result = placement if keeps else Replicate()
        out = distribute_tensor(case.empty_out(args), mesh, [of_result]) if case.writes else None
        given = (distribute_tensor(x, mesh, [placement]) if is_tensor(x) else x for x in args)
        result = case.call(*given, out=out)
        assert all(y.placements == (of_result,) for y in as_tuple(result))
        case.check(each(DTensor.full_tensor, result), expected, f"the result of DTensors with {placement}")
