"""Operators that write, as authors may have them: element-wise operators that update, and operators with own kernels.

Their kernels are in Python. As C++ kernels do, they refuse a written tensor that shares memory with another tensor.
"""

import inspect
import itertools
import operator

import torch

from muladd_nb._layer import SUBSYSTEMS, Elementwise
from muladd_nb._layer.kernel import Kernel
from muladd_nb._layer.operator import Form
from muladd_nb._layer.public import public

library = torch.library.Library("muladd_nb", "FRAGMENT")
FLOATING = (torch.float32, torch.float64)


def _flat(args):
    return [y for x in args for y in (x if isinstance(x, (list, tuple)) else [x]) if isinstance(y, torch.Tensor)]


def _elements(x):
    """Return the addresses of the elements of a tensor."""
    places = itertools.product(*map(range, x.shape))
    return {x.data_ptr() + x.element_size() * sum(map(operator.mul, place, x.stride())) for place in places}


def _defined(schema, compute, overlaps):
    """Define an operator that writes the first values that ``compute`` returns, and returns the rest."""
    library.define(schema)
    name = schema.partition("(")[0]
    op = getattr(torch.ops.muladd_nb, name).default

    def kernel(*args, **kwargs):
        given = inspect.signature(compute).bind(*args, **kwargs)
        given.apply_defaults()
        args = list(given.arguments.values())
        read, written = (
            _flat(
                [
                    x
                    for x, declared in zip(args, op._schema.arguments, strict=True)
                    if bool(declared.alias_info) == is_written
                ]
            )
            for is_written in (False, True)
        )
        for i, x in enumerate(written):
            if (
                len(_elements(x)) < x.numel()
                or any(overlaps(x, y) for y in read)
                or any(_overlap(x, y) for y in written[:i])
            ):
                raise RuntimeError(f"{name}: what is written to must share no memory with others")
        results = list(compute(*args))
        for x in written:
            x.copy_(results.pop(0))
        return results[0] if results else None

    library.impl(name, kernel, "CPU")
    return op


def _overlap(x, y):
    return not _elements(x).isdisjoint(_elements(y))


def _overlap_in_part(x, y):
    return _overlap(x, y) and (x.data_ptr(), x.stride()) != (y.data_ptr(), y.stride())


def _row(declaration, function):
    schema = f"{declaration} -> ()"
    op = _defined(schema, function, _overlap_in_part)
    form = Form(
        declaration, "updating", op, FLOATING, Elementwise(), of_results=(None,) * schema.count("!"), broadcasts=True
    )
    form.family[()] = form
    for subsystem in SUBSYSTEMS:
        subsystem.register(form)
    return form


def kernel(schema, function):
    form = Kernel.of(_defined(schema, function, _overlap), FLOATING)
    returns = len(form.op._schema.returns)

    @form.fake
    def fake(*args):
        form.check(*args)
        return torch.empty_like(_flat(args)[0]) if returns else None

    @form.batched
    def rule(info, in_dims, *args):
        return form.call(*form.batch_first(info, in_dims, args)), 0 if returns else None

    return form


def public_of(form):
    """Return the public function of an operator."""

    def declared():
        raise AssertionError

    declared.__name__ = form.name
    declared.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                x.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=x.default_value if x.has_default_value() else inspect.Parameter.empty,
            )
            for x in form.op._schema.arguments
        ]
    )
    return public([form])(declared)


def ema_(x, y, by):
    return [x + y * by]


def adam2_(p, m, v, grad, lr):
    m, v = m * 0.5 + grad, v * 0.75 + grad * grad
    return [p - m * lr / (v + 1), m, v]


def scale_(x, y, by=0.5):
    return [x * by + y]


def steps_(xs, y, by):
    return [x + y * (i + by) for i, x in enumerate(xs)]


def fold_(x, total, parts, by):
    return [*([] if total is None else [total + x]), *(y * by + x for y in parts), x + by]


FORMS = [
    _row("_test_ema_(Tensor(a!) x, Tensor y, float by)", ema_),
    _row("_test_adam2_(Tensor(a!) p, Tensor(b!) m, Tensor(c!) v, Tensor grad, float lr)", adam2_),
    kernel("_test_scale_(Tensor! x, Tensor y, float by=0.5) -> ()", scale_),
    kernel("_test_steps_(Tensor(a!)[] xs, Tensor y, float by) -> ()", steps_),
    kernel("_test_fold_(Tensor x, Tensor(a!)? total, Tensor(b!)[] parts, float by) -> Tensor", fold_),
]

# For each kind, the functions that call the operators, by name.
CALLS = {
    "public": {form.name.removeprefix("_test_"): public_of(form) for form in FORMS},
    "raw": {form.name.removeprefix("_test_"): form.op for form in FORMS},
}
