"""Up to four nested transforms of random expressions, with random modes around and inside, give ATen's results.

Some modes only observe. The backward pass, with its recomputations, may run in other modes. Any of the two inputs may
require grad, the backward pass runs twice, and an input may be written to before it.
"""

import contextlib
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import torch
from calls import RETURNING, Call
from hypothesis import given
from hypothesis import strategies as st
from modes import DispatchMode, FunctionMode
from torch import func
from torch.autograd import forward_ad, profiler
from torch.utils.checkpoint import checkpoint

COUNTS = Counter()


def itself(call):
    return call


def aten(call):
    """Return the same in ATen. Autocast does not cast for ATen's mul, but for our operators, except in float64."""

    def function(*x, c):
        if call.form.tensor_numbers:
            torch.tensor(c)  # torch refuses this in some nestings
        if not torch.is_autocast_enabled("cpu") or x[0].dtype == torch.float64:
            return call.expected(*x, c=c)
        dtype = torch.get_autocast_dtype("cpu")
        return call.expected(*(y.to(dtype).float() for y in x), c=c).to(dtype)  # rounded once, as our results are

    return function


MODES = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "inference_mode(False)": lambda: torch.inference_mode(False),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast(False)": lambda: torch.autocast("cpu", enabled=False),
    "no forward mode": lambda: forward_ad._set_fwd_grad_enabled(False),
    "dispatch mode": lambda: DispatchMode(),
    "function mode": lambda: FunctionMode(),
    "profiler of another thread": lambda: profiler_of_another_thread(),
}
LISTENERS = ["dispatch mode", "function mode", "profiler of another thread"]


@contextlib.contextmanager
def profiler_of_another_thread():
    """Set the state that a profiler sets in this thread. Starting a real one takes a hundred times as long."""
    before, profiler._is_profiler_enabled = profiler._is_profiler_enabled, True
    try:
        yield
    finally:
        profiler._is_profiler_enabled = before


def under(modes, function, *args):
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(MODES[mode]())
        return function(*args)


def dual(g):
    def tangent(a, b):
        with forward_ad.dual_level():
            result = g(forward_ad.make_dual(a, b), b)
            tangent = forward_ad.unpack_dual(result).tangent
            return torch.zeros_like(result) if tangent is None else tangent

    return tangent


def recorded(g):
    def gradient(a, b):
        a = a.detach().requires_grad_()
        result = g(a, b).sum()
        if not result.requires_grad:  # the result does not depend on `a`, for which ATen may record a gradient of zeros
            return torch.zeros_like(a)
        return torch.autograd.grad(result, a, create_graph=True, materialize_grads=True)[0]

    return gradient


TRANSFORMS = {
    "grad": lambda g: func.grad(lambda a, b: g(a, b).sum()),
    "grad of b": lambda g: func.grad(lambda a, b: g(a, b).sum(), 1),
    "value of grad": lambda g: lambda a, b: func.grad_and_value(lambda a, b: g(a, b).sum())(a, b)[1],
    "vjp": lambda g: lambda a, b: (y := func.vjp(g, a, b))[1](torch.ones_like(y[0]))[1],
    "value of vjp": lambda g: lambda a, b: func.vjp(g, a, b)[0],
    "jvp": lambda g: lambda a, b: func.jvp(g, (a, b), (b, a))[1],
    "jvp of a": lambda g: lambda a, b: func.jvp(lambda a: g(a, b), (a,), (b,))[1],
    "value of jvp": lambda g: lambda a, b: func.jvp(g, (a, b), (b, a))[0],
    "jacrev": func.jacrev,
    "jacfwd": lambda g: func.jacfwd(g, 1),
    "linearize": lambda g: lambda a, b: func.linearize(g, a, b)[1](b, a),
    "vmap": lambda g: lambda a, b: func.vmap(g)(torch.stack([a, 2 * a]), torch.stack([b, b + 1])),
    "vmap of a": lambda g: lambda a, b: func.vmap(g, (-1, None))(torch.stack([a, 2 * a], -1), b),
    "vmap of b": lambda g: lambda a, b: func.vmap(g, (None, 0))(a, torch.stack([b, b + 1])),
    "functionalize": func.functionalize,
    "dual numbers": dual,
    "autograd.grad": recorded,
    "checkpoint": lambda g: lambda a, b: checkpoint(g, a, b, use_reentrant=False),
}
FORWARD = ("jvp", "jvp of a", "value of jvp", "jacfwd", "linearize", "dual numbers")
# Derivatives that torch refuses for our operators and not for ATen's (docs/reliability.md): the transform or mode, the
# message, and the function that raises it. The causes are batching rules, which expand inputs without a batch, and
# backward passes of value and tangent together.
REFUSED = [
    ("inference_mode", "Cannot set version_counter for inference tensor", "rule"),
    ("functionalize", "!this_view_meta->has_fw_view() INTERNAL ASSERT FAILED", "rule"),
    ("functionalize", "derivative for aten::copy is not implemented", "grad"),
]


@dataclass
class Expression:
    """A call of an operator or of a function of torch, on leaves or other expressions, in some modes."""

    function: Call | str
    arguments: list[Any]
    modes: list[str] = field(default_factory=list)

    def __call__(self, library, a, b):
        arguments = [x(library, a, b) if isinstance(x, Expression) else {"a": a, "b": b}[x] for x in self.arguments]
        return under(self.modes, self.compute, library, arguments)

    def compute(self, library, x):
        if isinstance(self.function, str):
            return getattr(x[0], self.function)()
        return library(self.function)(*(y.to(x[0].dtype) for y in x), c=0.3)  # our operators do not promote dtypes


@dataclass
class Level:
    transform: str
    outside: list[str]
    inside: list[str]


some_modes = st.lists(st.sampled_from(list(MODES)), max_size=2)
few_modes = st.one_of(st.just([]), st.just([]), some_modes)


def exactly(count):
    return {"min_size": count, "max_size": count}


def expressions(depth):
    arguments = st.sampled_from("ab") if depth == 0 else st.one_of(st.sampled_from("ab"), expressions(depth - 1))
    of_ours = st.sampled_from(RETURNING).flatmap(
        lambda call: st.builds(Expression, st.just(call), st.lists(arguments, **exactly(len(call.names))), few_modes)
    )
    if depth == 0:
        return of_ours
    of_torch = st.builds(
        Expression, st.sampled_from(["sin", "cos", "detach", "clone"]), st.lists(arguments, **exactly(1)), few_modes
    )
    return st.one_of(of_ours, of_torch)


@given(
    expression=expressions(3),
    levels=st.lists(st.builds(Level, st.sampled_from(list(TRANSFORMS)), few_modes, few_modes), max_size=4),
    modes=few_modes,
    modes_of_backward=st.lists(st.sampled_from([*LISTENERS, "autocast"]), max_size=2),
    dtype=st.sampled_from([torch.float64, torch.float64, torch.float32]),
    needs=st.tuples(st.booleans(), st.booleans()),
    written=st.sampled_from([None, None, 0, 1]),
)
def right_in_any_nesting(expression, levels, modes, modes_of_backward, dtype, needs, written):
    if any(level.transform == "linearize" for level in levels[:-1]):
        hypothesis.reject()  # torch's derivative of linearize may be uninitialised memory: docs/reliability.md
    used = {mode for modes in all_modes(expression, levels, modes) for mode in modes}
    used |= {level.transform for level in levels}

    def run(library, dtype=dtype, factor=1):
        def g(a, b):
            return expression(library, a, b)

        for level in levels:
            g = wrapped(level, g)
        values = [0.6 * factor, -1.2 * factor], [1.1, 0.7]
        a, b = (torch.tensor(x, dtype=dtype, requires_grad=need) for x, need in zip(values, needs, strict=True))
        result = under(modes, g, a, b)
        wanted, gradients = [x for x in (a, b) if x.requires_grad], []
        if wanted and result.requires_grad and not any(level.transform == "linearize" for level in levels):
            losses = result.sum(), (3 * result).sum()
            if written is not None:
                with torch.no_grad():
                    (a, b)[written].mul_(2)
            for loss in losses:
                gradients += under(modes_of_backward, gradients_of, loss, wanted)
        return result, *gradients

    try:
        expected = run(aten)
        # In sin(1000), or a fourth derivative in bfloat16, few bits are right, and we must have as many as ATen.
        # float64, which autocast does not cast, gives the right result.
        exact = expected if dtype == torch.float64 else run(aten, torch.float64)
    except Exception:
        COUNTS["ATen also raises"] += 1
        return
    try:
        got = run(itself)
    except RuntimeError as error:
        functions = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
        if not any(x in used and sentence in str(error) and where in functions for x, sentence, where in REFUSED):
            raise
        COUNTS["torch refuses"] += 1
        return
    computed = torch.bfloat16 if "autocast" in used and dtype != torch.float64 else dtype
    bits = 2**-6 if computed != dtype else 1e-4  # two units in the last place of bfloat16
    # Our operators must run each backward pass that ATen's run. But for tangents of tangents the two may save different
    # tensors, and then torch may refuse only one of them.
    in_forward_mode = sum(level.transform in FORWARD for level in levels)
    assert len(got) >= len(expected) or in_forward_mode > 1, "a backward pass is refused"
    for i, (ours, atens, right) in enumerate(zip(got, expected, exact, strict=False)):
        assert ours.dtype == atens.dtype, f"the dtype is {ours.dtype}"
        assert ours.shape == atens.shape, f"the shape is {ours.shape}"
        error = largest(atens - right)
        if not torch.allclose(ours, atens, bits, bits + 8 * error, equal_nan=True):
            # If large terms cancel, ATen may be right by chance. We accept an error as large as the change that the
            # last bit of an input causes.
            error = max(error, largest(run(aten, torch.float64, 1 + torch.finfo(computed).eps)[i] - right))
        torch.testing.assert_close(ours, atens, equal_nan=True, rtol=bits, atol=bits + 8 * error)
    result, expected = got[0], expected[0]
    # For results that do not depend on `a`, one of the two may record a gradient of zeros and the other one not. But
    # neither may record anything if recording is off.
    records = expected.requires_grad or under(modes, torch.is_grad_enabled)
    assert not result.requires_grad or records, "requires grad"
    assert result.is_inference() == expected.is_inference(), f"is_inference() is {result.is_inference()}"
    COUNTS["right"] += 1


def gradients_of(loss, wanted):
    """Return the gradients, or an empty list if torch refuses a second backward pass, or one after a write."""
    try:
        return torch.autograd.grad(loss, wanted, materialize_grads=True, allow_unused=True)
    except RuntimeError as error:
        if any(sentence in str(error) for sentence in ("a second time", "modified by an inplace operation")):
            return []
        raise


def largest(x):
    return x.abs().nan_to_num(posinf=0).max().item() if x.numel() else 0


def wrapped(level, g):
    def inner(a, b):
        return under(level.inside, g, a, b)

    transformed = TRANSFORMS[level.transform](inner)
    return lambda a, b: under(level.outside, transformed, a, b)


def all_modes(expression, levels, modes):
    found = [modes, *(level.outside + level.inside for level in levels)]
    waiting = [expression]
    while waiting:
        inner = waiting.pop()
        found.append(inner.modes)
        waiting += [x for x in inner.arguments if isinstance(x, Expression)]
    return found
