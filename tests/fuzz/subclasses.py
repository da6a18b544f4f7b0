"""Every kind of tensor in every place gives the values, type, gradient and version of ATen's result, or an error."""

import contextlib
from collections import Counter

import torch
from calls import CALLS, MOST
from hypothesis import given
from hypothesis import strategies as st
from modes import DispatchMode, FunctionMode
from torch.testing._internal.two_tensor import TwoTensor

COUNTS = Counter()


class Plain(torch.Tensor):
    pass


class Reluctant(torch.Tensor):
    """A subclass that handles operators in Python and wraps no tensor."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs)


def zero_gradient(x):
    """Return the zero tensor that autograd makes as the gradient of a tensor on which a tangent does not depend."""
    x, b = x.detach().requires_grad_(), x.detach()
    tangent = torch.func.jvp(lambda x: x * b, (x,), (torch.ones_like(x),))[1]
    return torch.autograd.grad(tangent.sum(), x)[0]


OFFSETS = torch.tensor([0, 2, 3])
# Each function makes a tensor of three numbers.
KINDS = {
    "plain": lambda x: x.clone(),
    "slice": lambda x: torch.cat([x, x])[3:],
    "parameter": lambda x: torch.nn.Parameter(x.clone()),
    "subclass": lambda x: x.clone().as_subclass(Plain),
    "subclass with a function of its own": lambda x: x.clone().as_subclass(Reluctant),
    "wrapper": lambda x: TwoTensor(x.clone(), x.clone()),
    "wrapper of a wrapper": lambda x: TwoTensor(TwoTensor(x.clone(), x + 1), TwoTensor(x - 1, x.clone())),
    "jagged": lambda x: torch.nested.nested_tensor_from_jagged(x.clone(), OFFSETS),
    "negated": lambda x: torch.complex(x, x).conj().imag,
    "zero": lambda x: torch._efficientzerotensor(3),
    "zero of autograd": lambda x: zero_gradient(x),
    "part of a zero of autograd": lambda x: zero_gradient(torch.cat([x, x]))[3:],
    "column of a zero": lambda x: torch._efficientzerotensor((3, 2)).t()[1],
    "lazy clone": lambda x: torch._lazy_clone(x),
    "expanded": lambda x: x[:1].expand(3),
    "of inference mode": torch.inference_mode(lambda x: x.clone()),
    "half": lambda x: x.half(),
    "sparse": lambda x: x.to_sparse(),
    "mkldnn": lambda x: x.to_mkldnn(),
    "meta": lambda x: x.to("meta"),
    "complex": lambda x: torch.complex(x, x),
    "conjugated": lambda x: torch.complex(x, x).conj(),
}
if hasattr(torch.Tensor, "refine_names"):  # newer torch has no named tensors
    KINDS["named"] = lambda x: x.refine_names("N")
PLAIN = {"plain", "slice", "parameter", "expanded"}
ZERO = {kind for kind in KINDS if "zero" in kind}
# Our operators refuse these, and ATen's do not. The same holds for promotion and broadcasting.
REFUSED = {"sparse", "mkldnn", "complex", "conjugated", "named"}


@given(
    call=st.sampled_from(CALLS),
    kinds=st.one_of(
        st.lists(st.sampled_from(list(KINDS)), min_size=MOST + 1, max_size=MOST + 1),
        st.sampled_from(list(KINDS)).map(lambda kind: [kind] * (MOST + 1)),
        st.tuples(st.sampled_from(list(KINDS)), st.sampled_from(range(MOST + 1))).map(
            lambda one: ["plain"] * one[1] + [one[0]] + ["plain"] * (MOST - one[1])
        ),
    ),
    in_place=st.booleans(),
    requires_grad=st.booleans(),
    mode=st.sampled_from([torch.enable_grad, torch.no_grad, torch.inference_mode]),
    listener=st.sampled_from([contextlib.nullcontext, DispatchMode, FunctionMode]),
    registers=st.sampled_from([False, False, True]),
)
def right_with_any_kind_of_tensor(call, kinds, in_place, requires_grad, mode, listener, registers):
    count = len(call.names)
    kinds = kinds[:count] + kinds[MOST:] * call.writes
    if any(kind.startswith("wrapper") for kind in kinds) and len(set(kinds)) > 1:
        in_place = False  # TwoTensor calls operators twice, so they write twice into a tensor with fewer wrappers
        # Since torch 2.15, ATen's product of a wrapper and a zero tensor is not a wrapper.
        kinds = ["plain" if kind in ZERO else kind for kind in kinds]

    def run(function):
        """Return everything that a call changes. A refused call raises an exception."""
        generator = torch.Generator().manual_seed(0)
        x = [KINDS[kind](torch.randn(3, generator=generator)) for kind in kinds]
        if requires_grad:
            x = [y.requires_grad_() if y.is_leaf and not y.is_inference() else y for y in x]
        if call.writes and in_place:
            x[-1] = x[0]
        tensors, out = x[:count], x[-1]
        recorded = [y for y in x if y.requires_grad and not y.is_inference()]
        version = None if out.is_inference() else out._version
        with mode(), listener():
            result = function(*tensors, out=out)
        gradients = []
        if result is None or call.writes:
            result = out
            counted = version is None or out._version > version
        else:
            counted = True
            if result.requires_grad:
                gradients = torch.autograd.grad(result.sum(), recorded, allow_unused=True)
        return result, gradients, counted

    def aten(*x, out):
        result = call.expected(*x)
        return out.copy_(result) if call.writes else result

    seen = []

    def kernel(*args, out=None):
        """A kernel that the program registers. It records that it was called."""
        seen.append(call)
        names, tensors = [*call.form.inputs], [x for x in args if isinstance(x, torch.Tensor)]
        result = call.expected(*tensors[: len(names)])
        if call.writes:
            out = args[-1] if out is None else out
            out.copy_(result)
        return out if call.returns_out else None if call.writes else result

    try:
        expected, its_gradients, aten_counts = run(aten)
    except Exception:
        expected = None
    registers = registers and not call.form.tensor_numbers and set(kinds) <= PLAIN
    try:
        with torch.library._scoped_library("muladd_nb", "IMPL") as library:
            if registers:
                library.impl(call.form.op.name().partition("::")[2], kernel, "CPU", allow_override=True)
            result, gradients, counted = run(call)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError, AttributeError) as error:
        sentence = str(error).splitlines()[0]
        if expected is None:
            COUNTS["both refuse"] += 1
            return
        due = (
            REFUSED & set(kinds)
            or len({kind == "half" for kind in kinds}) > 1  # our operators do not promote dtypes
            or "meta" in kinds
            or (call.writes and {"expanded", "negated", "jagged", *ZERO} & set(kinds))
            or (call.writes and mode is not torch.no_grad and (requires_grad or "parameter" in kinds))
        )
        of_torch = "ZeroTensors are immutable" in sentence or "Named tensors are currently unsupported" in sentence
        assert due and (of_torch or sentence.startswith("my")), f"{kinds}: ATen takes it; {error}"
        COUNTS["refused with an error message"] += 1
        return
    assert seen or not registers, "a kernel that the program has registered is not called"
    if expected is None:
        COUNTS["ATen refuses"] += 1
        return
    assert type(result) is type(expected), f"the type is {type(result)}, not {type(expected)}"
    assert counted or not aten_counts, "the write is not counted"
    for one, other in zip([result, *gradients], [expected, *its_gradients], strict=True):
        if one is None or other is None:
            assert one is other, f"a gradient is {one}, not {other}"
        elif one.device.type == "meta":
            assert one.shape == other.shape
            # Where ATen returns an expanded gradient, ours has the layout of its input.
            assert one.stride() == other.stride() or 0 in other.stride()
        else:
            one, other = (x.values() if x.is_nested else x for x in (one, other))
            tolerance = {"rtol": 1e-2, "atol": 1e-2} if "half" in kinds else {}
            torch.testing.assert_close(one.detach(), other.detach(), **tolerance)
    COUNTS["right"] += 1
