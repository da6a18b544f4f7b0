"""The checks of the operators' contract for fake and meta tensors, which have no data.

``src/elementwise/contract.h`` makes the same checks for tensors with data, with the same messages and in the same
order; for operators over rows, C++ checks the reduced dimension first. Only C++ makes the checks that need memory:
whether a tensor lies in its storage, and whether ``out`` partly overlaps an input.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any

import torch
from torch import Tensor

from .. import _C
from . import rows
from . import torch_private as private
from .operator import MOST_DIMS, SIXTEEN_BITS, Form

_NOTHING: Mapping[str, Any] = {}
_MANY = 2**31  # we assume that a dimension with a symbolic size has fewer elements


def check(form: Form, args: tuple[Any, ...], targets: Mapping[str, Tensor] = _NOTHING) -> Sequence[Any]:
    """Check the tensors of a call, raise ``RuntimeError`` if one is wrong, and return the shape to broadcast to.

    ``targets`` are the tensors that the operator writes to.
    """
    check_defined(form, args, targets)
    first = form.first
    a = args[form.inputs[first]]
    _check_dtype(form.name, form.dtypes, first, a)
    for other, x in form.given(args).items():
        if other != first:
            _check_beside(form.name, first, a, other, x, form.own.get(other), bool(form.of_row))
            if not form.broadcasts:
                _check_same_shape(form.name, first, a, other, x)
    shape = _broadcast(form, args) if form.broadcasts else a.shape
    for place, ((target, x), own) in enumerate(zip(targets.items(), form.of_results, strict=False)):
        _check_beside(form.name, first, a, target, x, own, bool(form.of_row) and form.kind == "updating")
        _check_shape_of_target(form, args, shape, place, target, x)
        check_not_self_overlapping(form.name, target, x)
    return shape


def check_alike(op: str, dtypes: Sequence[torch.dtype], tensors: Mapping[str, Tensor]) -> None:
    """Raise ``RuntimeError`` unless all tensors have one dtype, which is among ``dtypes``, one device and one shape."""
    (first, a), *others = tensors.items()
    _check_dtype(op, dtypes, first, a)
    for other, x in others:
        _check_beside(op, first, a, other, x, None)
        _check_same_shape(op, first, a, other, x)


def check_beside(op: str, first: str, a: Tensor, other: str, x: Tensor | None, dtypes: Sequence[torch.dtype]) -> None:
    """Raise ``RuntimeError`` unless a tensor has one of these dtypes, and the device of ``a``. None is accepted."""
    if x is not None:
        _check_dtype(op, dtypes, other, x)
        _check_device(op, first, a, other, x)


def _check_dtype(op: str, dtypes: Sequence[torch.dtype], first: str, a: Tensor) -> None:
    if a.dtype not in dtypes:
        raise RuntimeError(f"{op}: {first} must be {listed('or', map(dtype_name, dtypes))}, got {dtype_name(a.dtype)}")


def check_defined(form: Form, args: tuple[Any, ...], targets: Mapping[str, Any] = _NOTHING) -> None:
    """Raise ``RuntimeError`` if a tensor that is not optional is None, which torch's parser accepts for any tensor."""
    refuse_none(form.name, (*((argument, args[place]) for argument, place in form.required.items()), *targets.items()))


def refuse_none(op: str, tensors: Iterable[tuple[str, Any]]) -> None:
    """Raise ``RuntimeError`` if one of the tensors of a call is None."""
    for argument, x in tensors:
        if x is None:
            raise RuntimeError(f"{op}: {argument} must be a tensor, got None")


def check_numbers(form: Form, args: Sequence[Any]) -> None:
    """Raise ``RuntimeError`` unless each number is allowed: one of its choices, or a float64 tensor without dimensions.

    Such a tensor must be on the CPU or beside the other tensors (contract.h).
    """
    given = dict(zip(form.kinds, args, strict=False))
    for number, values in form.choices.items():
        if (value := given[number]) not in values:
            raise RuntimeError(f"{form.name}: {number} must be {listed('or', values)}, got {value}")
    for number, place in form.numbers.items() if form.tensor_numbers else ():
        c = args[place]
        if c is None:
            raise RuntimeError(f"{form.name}: {number} must be a number, got None")
        is_near = c.device.type == "cpu" or c.is_cuda
        if c.dim() != 0 or c.dtype != torch.float64 or not is_near:
            overload = form.op.name().partition(".")[2]
            raise RuntimeError(
                f"{form.name}: {number} must be a number, or for {overload} a float64 tensor of shape [] on cpu, got "
                f"one of {dtype_name(c.dtype)}, shape {list(c.shape)}, on {c.device}"
            )
        first, a = form.first, args[form.inputs[form.first]]
        if c.is_cuda and a.device.type == "cpu":  # torch chooses the CUDA kernel
            must = "a number that is passed as a tensor must be on cpu"
            raise RuntimeError(f"{form.name}: {must} beside {first}, which is on {a.device}")


def check_in_storage(form: Form, argument: str, x: Tensor) -> None:
    """Raise ``RuntimeError`` if the storage of ``x`` is smaller than ``x``, which ATen's conversions do not check."""
    try:
        size = x.untyped_storage().nbytes() if type(x) is Tensor and x.numel() else None
    except (NotImplementedError, RuntimeError):  # a tensor of a transform has no storage
        return
    if size is None:  # it has no elements, or is of a subclass, such as a nested tensor, whose sizes are symbols
        return
    shape, strides, offset = list(x.shape), list(x.stride()), x.storage_offset()
    if (offset + extent(shape, strides)) * x.element_size() > size:
        raise RuntimeError(
            f"{form.name}: {argument} must lie in its storage, got shape {shape}, strides {strides} and offset "
            f"{offset} in a storage of {size} bytes"
        )


def _check_beside(
    op: str, first: str, a: Tensor, x_name: str, x: Tensor, own: torch.dtype | None, over_rows: bool = False
) -> None:
    _check_device(op, first, a, x_name, x)
    if own is not None and x.dtype != own:
        raise RuntimeError(f"{op}: {x_name} must be {dtype_name(own)}, got {dtype_name(x.dtype)}")
    may_differ = over_rows and a.dtype in SIXTEEN_BITS and x.dtype == torch.float32
    if own is None and a.dtype != x.dtype and not may_differ:
        cure = f"nothing is promoted, use {x_name}.to({first}.dtype)"
        got = f"{dtype_name(a.dtype)} and {dtype_name(x.dtype)}"
        raise RuntimeError(f"{op}: {first} and {x_name} must have the same dtype, got {got}; {_cure(x_name, cure)}")


def _check_device(op: str, first: str, a: Tensor, x_name: str, x: Tensor) -> None:
    if a.device != x.device:
        got, cure = f"got {a.device} and {x.device}", _cure(x_name, f"use {x_name}.to({first}.device)")
        raise RuntimeError(f"{op}: {first} and {x_name} must be on the same device, {got}; {cure}")


def _cure(x_name: str, cure: str) -> str:
    return "make out with torch.empty_like" if x_name == "out" else cure


def _check_same_shape(op: str, first: str, a: Tensor, x_name: str, x: Tensor) -> None:
    def sentence() -> str:
        cure = _cure(x_name, f"nothing is broadcast, use {x_name}.expand_as({first}) or {first}.expand_as({x_name})")
        return f"{op}: {first} and {x_name} must have the same shape, got {list(a.shape)} and {list(x.shape)}; {cure}"

    _check_sizes(a.shape, x.shape, sentence)


def _check_shape_of_target(
    form: Form, args: tuple[Any, ...], shape: Sequence[Any], place: int, target: str, x: Tensor
) -> None:
    which = "the shape that the tensors are broadcast to"
    if form.of_row:
        shape, which = rows.result_shapes(form, args, shape)[place], "the shape of the result"
    elif all(is_shape(other.shape, shape) for other in form.given(args).values()):
        _check_same_shape(form.name, form.first, args[form.inputs[form.first]], target, x)
        return
    must = f"{form.name}: {target} must have {which}"
    _check_sizes(shape, x.shape, lambda: f"{must}, {list(shape)}, got {list(x.shape)}")


def _check_sizes(expected: Sequence[Any], got: Sequence[Any], sentence: Callable[[], str]) -> None:
    # For symbolic sizes, torch._check adds an assertion to the compiled program. `if` would specialize the program.
    torch._check(len(expected) == len(got), sentence)
    for size, other in zip(expected, got, strict=True):
        torch._check(size == other, sentence)


def _broadcast(form: Form, args: tuple[Any, ...]) -> list[Any]:
    """Return the shape that the tensors are broadcast to."""
    shapes = rows.aligned(form, args) if form.of_row else {name: x.shape for name, x in form.given(args).items()}

    def sentence() -> str:
        note, given = " (one value for each row)", form.given(args).items()
        got = listed("and", [f"{list(x.shape)}{note if len(shapes[y]) > len(x.shape) else ''}" for y, x in given])
        return f"{form.name}: {listed('and', shapes)} must have shapes that broadcast, got {got}"

    dims = max(map(len, shapes.values()))
    if dims > MOST_DIMS and not all(is_shape(shape, shapes[form.first]) for shape in shapes.values()):
        raise RuntimeError(f"{form.name}: tensors of more than {MOST_DIMS} dimensions are not broadcast, got {dims}")
    result: list[Any] = [1] * dims
    for shape in shapes.values():
        for place, size in enumerate(shape, len(result) - len(shape)):
            if _is(result[place], 1):
                result[place] = size
            elif not _is(size, 1):
                torch._check(size == result[place], sentence)
    return result


def listed(word: str, each: Iterable[Any]) -> str:
    """Return ``a, b and c``, if the word is ``and``."""
    *most, last = map(str, each)
    return f"{', '.join(most)} {word} {last}" if most else last


def is_shape(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two shapes are known to be equal."""
    return len(shape) == len(other) and all(map(_is, shape, other))


def _is(size: Any, other: Any) -> bool:
    """Return whether two sizes are known to be equal; False for a size that depends on data, without a guard."""
    if type(size) is int and type(other) is int:
        return size == other
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(size == other)


def check_not_self_overlapping(op: str, target: str, x: Tensor) -> None:
    """Raise ``RuntimeError`` if elements of a tensor that is written to share memory."""
    if x.is_nested:  # the call on its values checks them
        return
    shape, strides = list(x.shape), list(x.stride())
    is_known = all(type(x) is int for x in shape + strides)
    if _C.overlaps_itself(shape, strides) if is_known else _overlaps_itself(shape, strides):
        raise RuntimeError(f"{op}: {target} must not overlap itself, got shape {shape} and strides {strides}")


def _overlaps_itself(shape: list[Any], strides: list[Any]) -> bool:
    """Return whether a tensor of symbolic sizes may overlap itself; False if that depends on data."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    def before(x: tuple[Any, Any], y: tuple[Any, Any]) -> int:
        return -1 if guard_or_false(x[0] < y[0]) else 1

    reach = 0  # the distance from the first element to the last, along the dimensions with smaller strides
    for stride, size in sorted(zip(strides, shape, strict=True), key=cmp_to_key(before)):
        if guard_or_false(size > 1) and guard_or_false(stride <= reach):
            return not any(is_shape([n], [0]) for n in shape)
        reach = reach + (size - 1) * stride
    return False


def check_apart(form: Form, targets: Mapping[str, Any]) -> None:
    """Raise ``RuntimeError`` if a call writes twice to one element. A kernel that gets copies cannot see that."""
    refuse_none(form.name, targets.items())
    for name, x in targets.items():
        check_not_self_overlapping(form.name, name, x)
    for (name, x), (other, y) in itertools.combinations(targets.items(), 2):
        if private.is_alias(x, y) and overlap(x, y):
            raise RuntimeError(f"{form.name}: {name} is written to and must share no memory with {other}")


def overlap(x: Tensor, y: Tensor) -> bool:
    """Return whether two views of one memory have an element in common."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    begin, end = zip(*map(_bytes, (x, y)), strict=True)
    if guard_or_false(end[0] <= begin[1]) or guard_or_false(end[1] <= begin[0]):
        return False
    distance, strides = begin[1] - begin[0], (*x.stride(), *y.stride())

    def overlap_if(size: Callable[[Any], int]) -> bool:
        layouts = [([*map(size, z.shape)], [*map(int, z.stride())], z.element_size()) for z in (x, y)]
        return _C.overlap(*layouts[0], *layouts[1], int(distance))

    # Tensors that would share no element with more elements share none now. int() makes a size a constant.
    is_known = all(type(n) is int for n in (*strides, distance))
    return (not is_known or overlap_if(lambda n: n if type(n) is int else _MANY)) and overlap_if(int)


def _bytes(x: Tensor) -> tuple[Any, Any]:
    """Return the offsets in the storage of a tensor's first byte, and of the first byte after the tensor."""
    begin = x.storage_offset() * x.element_size()
    return begin, begin + x.element_size() * extent(x.shape, x.stride())


def extent(shape: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Return how many elements lie from the first element of a tensor to the last in memory, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def has_no_gaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the elements of a tensor fill a range of memory, in any order, each once."""
    numel = math.prod(shape)
    return numel == 0 or (extent(shape, strides) == numel and not _C.overlaps_itself(shape, strides))


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of ``dtype`` in error messages: that of C++, without ``torch.``."""
    return str(dtype).removeprefix("torch.")
