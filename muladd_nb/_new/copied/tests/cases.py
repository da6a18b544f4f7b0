# A copy, which `muladd-nb update` replaces. The operators of this project are in operators.py.
"""`Case` describes an operator to the tests, which call it through its `Case`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from my_ops._layer import contract, rows
from my_ops._layer.kernel import Kernel
from my_ops._layer.torch_private import arguments
from my_ops._operators import FORMS, TABLE

# Elements that are tried in addition to random ones. They are powers of two that are not far apart, so float32 adds
# hundreds of them without rounding, in any order, and a result that differs is wrong.
LARGE, SMALL = 2.0**6, 2.0**-6
FINITE = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, LARGE, -LARGE, SMALL, -SMALL)
EXTREMES = (*FINITE, float("inf"), float("-inf"), float("nan"))

SHAPES = ((2,), (), (0, 3), (5, 4, 7), (150_001,))
# Rows that end in the middle of a vector, of a block of lanes, and of a block of 1024 elements.
ROWS = ((2, 3), (5,), (0, 3), (3, 1, 33), (2, 2100), (300, 501))

# The arguments over rows that say what is reduced. A new operator does not multiply them.
REDUCES = ("dim", "normalized_shape", "keepdim")

# Relative and absolute tolerance of a value: those of torch.testing.assert_close.
VALUE_TOLERANCE = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
# Relative and absolute tolerance of a gradient. It is wide because the reference rounds after each of its operations.
GRADIENT_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 0.15, torch.float32: 1e-5, torch.float64: 1e-10}


@dataclasses.dataclass(eq=False)
class Case:
    """An operator, and how to test it.

    Parameters
    ----------
    function
        The public function.
    arguments
        Returns the arguments of a call, without ``out``. It takes two functions:

        - ``tensor(low=-2, high=2, shape=None, dtype=None)`` makes a tensor of random elements between these bounds. By
          default it has the shape and dtype that are being tested, ``tensor.shape`` and ``tensor.dtype``. If ``low`` is
          not negative, no element is less, nor -0.0. An index is ``tensor(0, tensor.shape[0], dtype=torch.int64)``; a
          kernel must refuse elements outside of these bounds. If the functor declares another dtype for a tensor, it
          is converted to that.
        - ``either(1.5, -1.0)`` returns the first value; other calls try the others. Use numbers that float16 has, such
          as 0.75 and not 0.7: the reference gets them unrounded. An optional tensor is ``either(tensor(), None)``.

        A list must have the same number of tensors in every call.
    reference
        Computes the same with PyTorch. It receives all arguments by position, also those that are keyword-only. For an
        operator that writes into ``out``, it returns the value of ``out``; for one that writes to its arguments, a
        tuple of their new values, then the results. It is differentiated once, in reverse mode. By default it is the
        formula of the table.
    shapes
        The shapes to test. Derivatives of every order are tested on the first, which must be small: with more than 8
        elements in a tensor, the third order may take gigabytes. Threads are tested on the
        last, which must be large enough for several threads. Over rows each shape needs a dimension; make a tensor with
        one value for each row by ``shape=tensor.shape[:-1]``.
    differentiable
        The arguments that have a gradient. The default comes from the table. For a kernel it is all floating-point
        tensors, or none if the kernel writes to a tensor or takes a list.
    results
        The dtype of each result. By default the functor decides, or it is the dtype of the first tensor, or that of the
        reference if it returns integers. If dtypes follow a rule, pass a function of the arguments:
        ``lambda x, y: [torch.float32 if x.dtype.itemsize == 2 else x.dtype]``.
    tolerance
        Relative and absolute tolerance of values, for each dtype; by default those of ``torch.testing.assert_close``.
    invalid
        For each index, the elements that a kernel must refuse, with an error message and before it writes anything. The
        default, for each ``tensor(low, high)`` of integers, is -100 and the first integer beyond each bound. With
        ``{"index": ()}`` it need not refuse any.
    extremes
        Elements of floating-point tensors that are tested in addition to random ones: by default finite ones, infinities
        and NaN, which only the values are tested with. If the operator need not treat infinities and NaN as the reference
        does, write ``extremes=FINITE``. The numbers among the arguments, the bounds of ``tensor`` and equal elements in
        all tensors are tested, too.
    autocast
        "cast", "float32" or "leave": how an autocast region treats the operator. The tests fail if the operator's
        entry says otherwise. By default they expect what the entry says.
    mean
        For an operator over rows: a large number that is added to all elements of the first tensor, to see that no
        precision is lost. None if the elements must lie between bounds.
    """

    function: Callable[..., Any]
    arguments: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Any] | None = None
    shapes: Sequence[tuple[int, ...]] = ()
    differentiable: Sequence[str] | None = None
    results: Sequence[torch.dtype] | Callable[..., Sequence[torch.dtype]] = ()
    tolerance: Mapping[torch.dtype, tuple[float, float]] = dataclasses.field(default_factory=dict)
    extremes: Sequence[float] = EXTREMES
    invalid: Mapping[str, Sequence[int]] | None = None
    autocast: str | None = None
    mean: float | None = 1000.0

    def __post_init__(self) -> None:
        self.name = self.function.__name__
        declared = {self.name, self.name.removesuffix("_out")}
        self.forms = [form for form in FORMS if form.operator in declared]
        # The form that returns `out` is for ExecuTorch. Programs in Python call the others.
        self.ops = [form.op for form in self.forms if form.kind != "out"]
        self.dtypes = self.forms[0].dtypes
        self.is_over_rows = bool(self.forms[0].of_row)
        self.reduces = REDUCES if self.is_over_rows else ()
        # How often it can be differentiated.
        self.orders = 1 + (("second",) in self.forms[0].family) if self.is_over_rows else 3
        self.shapes = self.shapes or (ROWS if self.is_over_rows else SHAPES)
        self.kernel = self.forms[0] if isinstance(self.forms[0], Kernel) else None
        self.written = {*self.forms[0].writes} & {*self.forms[0].kinds}  # without out
        self.writes = self.name.endswith("_out") and not (self.kernel or self.written)
        parameters = inspect.signature(self.function).parameters
        self.names = [name for name in parameters if name != "out" or self.kernel or self.written]
        self.by_keyword = [x.name for x in arguments(self.ops[0]) if x.kwarg_only]
        self.lengths: list[int | None] = [None] * len(self.names)
        if self.kernel:
            self._take_lists_apart()
        self.has_cuda = self.ops[0].has_kernel_for_dispatch_key("CUDA")
        self.has_out = any(form.kind == "writing" for form in self.forms)
        self.has_functor = self.forms[0].declaration in TABLE
        self.broadcasts = self.forms[0].broadcasts
        self.first = self.names.index(self.forms[0].first)  # the index of a tensor that has the tested dtype
        formula = self.forms[0].promises.formula if self.has_functor else None
        if self.reference is None:
            if formula is None:
                raise ValueError(f"{self.name}: its Case needs a reference, or its entry in the table a formula")
            read = inspect.signature(formula).parameters
            self.reference = lambda *args: formula(**{x: dict(zip(self.names, args, strict=True))[x] for x in read})
        either = _Either({})
        self._sample(either, self.dtypes[-1], "cpu", self.shapes[0], ())
        alternatives = [{place: i} for place, n in enumerate(either.counts) for i in range(1, n)]
        last = {place: n - 1 for place, n in enumerate(either.counts)}
        self.choices = [{}, *alternatives] + ([last] if len(either.counts) > 1 else [])
        if self.differentiable is None:
            args = self.sample(self.dtypes[-1])
            is_by_hand = not self.has_functor or self.forms[0].promises.derivative
            names = () if self.written or any(self.lengths) else self.names if is_by_hand else ()
            if self.forms[0].promises.differentiable:
                by_formula = inspect.signature(formula).parameters if formula else ()
                family = self.forms[0].family
                by_functor = {role[0] for role in family if len(role) == 1}
                if self.is_over_rows:
                    by_functor = {*family["gradients",].gradients_of} if ("gradients",) in family else ()
                names = {*names, *by_formula, *by_functor}
            self.differentiable = [name for name, x in zip(self.names, args, strict=True) if is_float(x)]
            self.differentiable = [name for name in self.differentiable if name in names and not self.writes]
            if self.has_functor and not any(x.is_floating_point for x in self.forms[0].result_dtypes(args)):
                self.differentiable = []

    def _take_lists_apart(self) -> None:
        """Replace each list of tensors by one argument for each of them, which is easier to test."""
        first = self.arguments(_Tensor(self.dtypes[-1], "cpu", self.shapes[0], ()), _Either({}))
        written, names = self.kernel.writes, self.names
        self.lengths = [len(x) if isinstance(x, (list, tuple)) and all(map(is_tensor, x)) else None for x in first]
        parts = [
            [name] if n is None else [f"{name}[{i}]" for i in range(n)]
            for name, n in zip(names, self.lengths, strict=True)
        ]
        self.names = [part for of_one in parts for part in of_one]
        self.written = {part for name, of_one in zip(names, parts, strict=True) if name in written for part in of_one}
        arguments, reference = self.arguments, self.reference
        self.arguments = lambda *args: [
            x for y, n in zip(arguments(*args), self.lengths, strict=True) for x in ([y] if n is None else y)
        ]

        def of_lists(*args: Any) -> Any:
            by_place, by_keyword = self.given(args)
            return reference(*by_place, *by_keyword.values())

        self.reference = of_lists

    def given(self, args: Sequence[Any], by_keyword: Sequence[str] | None = None) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments of the operator, with lists put together again."""
        by_keyword = self.by_keyword if by_keyword is None else by_keyword
        whole, begin = [], 0
        for n in self.lengths:
            end = begin + (1 if n is None else n)
            whole.append(args[begin] if n is None else list(args[begin:end]))
            begin = end
        by_place = len(whole) - len(by_keyword)
        return whole[:by_place], dict(zip(by_keyword, whole[by_place:], strict=True))

    def sample(
        self,
        dtype: torch.dtype,
        device: str = "cpu",
        shape: tuple[int, ...] | None = None,
        choice: dict[int, int] | None = None,
        extremes: Sequence[float] = (),
        mean: float = 0,
    ) -> list[Any]:
        """Return arguments with tensors of this shape, by default the first. Elements are random or extremes."""
        shape = self.shapes[0] if shape is None else shape
        return self._sample(_Either(choice or {}), dtype, device, shape, extremes, mean)

    def _sample(
        self, either: _Either, dtype: torch.dtype, device: str, shape: Any, extremes: Sequence[float], mean: float = 0
    ) -> Any:
        args = list(self.arguments(_Tensor(dtype, device, shape, extremes, mean), either))
        if extremes and any(isinstance(x, float) for x in args):
            more = [sign * x for x in args if isinstance(x, float) for sign in (1, -1)]
            args = list(self.arguments(_Tensor(dtype, device, shape, [*extremes, *more]), _Either(either.choice)))
        own = self.forms[0].own
        pairs = zip(self.names, args, strict=True)
        return [as_dtype(x, own[name]) if name in own and is_tensor(x) else x for name, x in pairs]

    def samples(self, device: str, *, with_nan: bool = True) -> Iterator[tuple[str, list[Any]]]:
        """Yield a description and the arguments of each call that tests values or gradients."""
        finite = [x for x in self.extremes if math.isfinite(x)]
        kinds = {"random": (), "finite": finite, "extreme": [x for x in self.extremes if with_nan or x == x]}
        for dtype, choice, shape, kind in itertools.product(self.dtypes, self.choices, self.shapes, kinds):
            args = self.sample(dtype, device, shape, choice, kinds[kind])
            given = [f"{name}={x}" for name, x in zip(self.names, args, strict=True) if not is_tensor(x)]
            yield ", ".join([f"{kind} elements of shape {list(shape)} and {str(dtype)[6:]}", *given]), args

    def call(self, *args: Any, out: Tensor | None = None, function: Callable[..., Any] | None = None) -> Any:
        """Call the operator, and return its results or new values. It writes to copies, unless ``out`` is given."""
        function = function or self.function
        if self.kernel or self.written:
            return self._call_and_take_written(function, args, itself=out is not None)
        by_place, by_keyword = self.given(args)
        if not self.writes:
            return function(*by_place, **by_keyword)
        out = self.empty_out(args) if out is None else out
        function(*by_place, out, **by_keyword)
        return out

    def empty_out(self, args: Sequence[Any]) -> Tensor:
        """Return a tensor for the result of a call, on the device of its tensors."""
        dtype = None if self.kernel or self.written else self.forms[0].result_dtypes(args)[0]
        given = tensors(args)
        if self.is_over_rows:
            form = self.forms[0]
            shape, *_ = rows.result_shapes(form, args, contract.check(form, tuple(args)))
            return given[0].new_empty(shape, dtype=dtype)
        return torch.empty_like((torch.broadcast_tensors(*given) if self.broadcasts else given)[0], dtype=dtype)

    def own_results(self, args: Sequence[Any]) -> Sequence[torch.dtype]:
        """Return the dtypes of the results of a call, if the functor declares the dtype of a result."""
        return self.forms[0].result_dtypes(args) if any(self.forms[0].of_results) else ()

    def _call_and_take_written(self, function: Callable[..., Any], args: Sequence[Any], *, itself: bool) -> Any:
        places = [i for i, x in enumerate(args) if self.names[i] in self.written and is_tensor(x)]
        args = [x.clone() if i in places and not itself else x for i, x in enumerate(args)]
        by_place, by_keyword = self.given(args)
        returned = function(*by_place, **by_keyword)
        if not self.written:
            return returned
        written = tuple([args[i] for i in places])
        return written if returned is None else written + as_tuple(returned)

    def present(self, args: Sequence[Any]) -> list[str]:
        """Return the arguments that have a gradient, without those that are None."""
        return [name for name in self.differentiable if is_tensor(args[self.names.index(name)])]

    def choices_with_floats(self) -> list[dict[int, int]]:
        """Return the choices for which a result is floating-point, and so may have a derivative."""
        calls = [(choice, self.call(*self.sample(self.dtypes[-1], choice=choice))) for choice in self.choices]
        return [choice for choice, results in calls if any(map(is_float, as_tuple(results)))]

    def expected(self, *args: Any) -> Any:
        """Return the results of the reference, computed in float64 and then rounded to the dtype of each result."""
        first = args[self.first].dtype
        wide = self.reference(*(x.double() if is_float(x) else x for x in args))
        dtypes = iter((self.results(*args) if callable(self.results) else self.results) or self.own_results(args))

        def rounded(x: Tensor) -> Tensor:
            return x.to(next(dtypes, first if x.is_floating_point() else x.dtype))

        return each(rounded, wide)

    def invalid_indices(self, args: Sequence[Any]) -> dict[str, Sequence[int]]:
        """Return, by the name of each index, the elements that it must not have."""
        if self.invalid is not None or not self.kernel:
            return dict(self.invalid or {})
        bounds = {name: getattr(x, "bounds", None) for name, x in zip(self.names, args, strict=True) if is_tensor(x)}
        return {name: (x[0] - 1, x[1], -100) for name, x in bounds.items() if x}

    def in_region(self, args: Sequence[Any], dtype: torch.dtype) -> list[Any]:
        """Return arguments as an autocast region of this dtype casts them."""
        own, pairs = self.forms[0].own, list(zip(self.names, args, strict=True))
        read = [name for name, x in pairs if is_float(x) and name not in {*own, *self.written}]
        written = [x.dtype for name, x in pairs if name in self.written and name not in own and is_tensor(x)]
        if self.writes and not self.own_results(args):
            written = [self.forms[0].result_dtypes(args)[0]]
        rule = self.autocast or self.forms[0].promises.autocast
        if floats := [x for x in written if x.is_floating_point]:
            to = floats[0]
        elif rule == "cast" and dtype in self.dtypes:
            to = dtype
        else:
            differ = len({x.dtype for name, x in pairs if name in read}) > 1
            to = torch.float32 if rule == "float32" or differ else None
        return [x.to(to) if name in read and to else x for name, x in pairs]

    def check(self, actual: Any, expected: Any, what: str) -> None:
        """Raise ``AssertionError`` with a sentence that begins with ``what``, unless the results are close."""
        __tracebackhide__ = True
        self.close(actual, expected, what)

    def check_rounding(self, actual: Any, expected: Any, what: str) -> None:
        """Raise ``AssertionError`` if many integers differ, which a tolerance of 1 allows: they are rounded wrongly."""
        for x, y in zip(as_tuple(actual), as_tuple(expected), strict=True):
            if x.numel() >= 100 and not (x.is_floating_point() or x.dtype == torch.bool):
                share = (x != y).double().mean().item()
                assert share <= 0.05, f"{self.name}: {what}. {share:.0%} of the integers differ"

    def close(self, actual: Any, expected: Any, what: str, **tolerances: Any) -> None:
        """Do the same as :meth:`check`, with other tolerances than those of the case."""
        __tracebackhide__ = True
        got, wanted = as_tuple(actual), as_tuple(expected)
        assert len(got) == len(wanted), f"{self.name}: {what}. There must be {len(wanted)} results, got {len(got)}"
        for i, (x, y) in enumerate(zip(got, wanted, strict=True)):
            start = f"{self.name}: {what}{f', result {i}' if len(wanted) > 1 else ''}."
            rtol, atol = self.tolerance.get(y.dtype, VALUE_TOLERANCE.get(y.dtype, (0, 0)))
            limits = tolerances or {"rtol": rtol, "atol": atol}
            message = functools.partial(_with_elements, start, x, y, limits)
            assert_close(x, y, **limits, equal_nan=True, msg=message)


def _with_elements(start: str, actual: Tensor, expected: Tensor, limits: dict[str, float], message: str) -> str:
    """Return a message of ``assert_close`` with the two elements that exceed its tolerances most."""
    if actual.shape != expected.shape or not actual.numel():
        return f"{start} {message}"
    x, y = (z.detach().cpu().double().flatten() for z in (actual, expected))
    same = (x == y) | (x.isnan() & y.isnan())
    excess = ((x - y).abs() - limits["atol"] - limits["rtol"] * y.abs()).nan_to_num(torch.inf)
    place = torch.where(same, -torch.inf, excess).argmax()
    return f"{start} {message}\nWhere they differ most: got {x[place]:.9g}, expected {y[place]:.9g}"


class _Tensor:
    """Makes the tensors of one call."""

    def __init__(
        self, dtype: torch.dtype, device: str, shape: tuple[int, ...], extremes: Sequence[float], mean: float = 0
    ) -> None:
        self.dtype, self.device, self.shape, self.extremes, self.mean = dtype, device, shape, extremes, mean

    def __call__(
        self, low: float = -2, high: float = 2, shape: Sequence[int] | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        shape, dtype = tuple(self.shape if shape is None else shape), dtype or self.dtype
        if self.extremes:
            values = [x for x in self.extremes if low < 0 or (x >= low and math.copysign(1, x) > 0)]
            values = [x for x in values if high > 0 or x <= high]
            values = [*values, low, high] if dtype.is_floating_point else [low, high - 1]
            chosen = torch.randint(len(values), shape, device=self.device)
            made = torch.tensor(values, dtype=torch.float64, device=self.device)[chosen]
        else:
            made = torch.empty(shape, dtype=torch.float64, device=self.device).uniform_(low, high)
            if (low, high) == (-2, 2) and dtype.is_floating_point:
                made = made + self.mean
        made = made >= (low + high) / 2 if dtype == torch.bool else made.to(dtype)
        if (low, high) != (-2, 2) and not dtype.is_floating_point and dtype != torch.bool:
            made.bounds = (int(low), int(high))
        return made


class _Either:
    """Chooses one of several values: the first, unless ``choice`` has another index for the n-th call."""

    def __init__(self, choice: dict[int, int]) -> None:
        self.choice, self.counts = choice, []

    def __call__(self, *values: Any) -> Any:
        self.counts.append(len(values))
        return values[self.choice.get(len(self.counts) - 1, 0)]


def as_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a tensor: to bool, positive elements become true; to integers, elements are clamped to their range."""
    if dtype == torch.bool:
        return x if x.dtype == dtype else x > 0
    if dtype.is_floating_point:
        return x.to(dtype)
    range_ = torch.iinfo(dtype)
    return x.double().clamp(max(range_.min, -(2**31)), min(range_.max, 2**31 - 1)).to(dtype)


def product(*factors: Any) -> Any:
    """Return the product of tensors and numbers, including those in lists. None is left out."""
    return functools.reduce(operator.mul, _each_of(factors), 1)


def times(factor: Any, *tensors: Any) -> tuple[Tensor, ...]:
    """Return each tensor, including those in lists, times a factor. None is left out."""
    return tuple(x * factor for x in _each_of(tensors))


def _each_of(values: Sequence[Any]) -> list[Any]:
    each = [x for value in values for x in (value if isinstance(value, (list, tuple)) else [value])]
    return [x for x in each if x is not None]


def is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def is_float(x: Any) -> bool:
    return is_tensor(x) and x.is_floating_point()


def each(function: Callable[..., Any], results: Any) -> Any:
    """Apply a function to the result, or to each of several results."""
    return tuple(map(function, results)) if isinstance(results, tuple) else function(results)


def as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def tensors(args: Sequence[Any]) -> list[Tensor]:
    """Return the tensors among arguments."""
    return list(filter(is_tensor, args))
