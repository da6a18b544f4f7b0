"""``Elementwise`` is the author's table entry of an operator. ``Form`` is a registered overload; all rules take it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from .. import _C
from . import torch_private as private
from ._library import name, namespace

__all__ = ["Elementwise", "Form"]

TABLE = f"{namespace}/_operators.py"

MOST_DIMS = 64  # kMaxDims of strided.h
SIXTEEN_BITS = (torch.float16, torch.bfloat16)  # kernels compute them in float

# The roles of derivatives that do not name the arguments that they differentiate by.
VALUE_AND_TANGENT = ("",)
SECOND, THIRD = ("", ""), ("", "", "")  # the arguments are passed in the call


@dataclasses.dataclass(frozen=True)
class Elementwise:
    """The entry in the table of an operator that has a functor.

    Its functions get None for an absent tensor.

    Parameters
    ----------
    formula
        A function that computes the result, or a tuple of several, in torch's operators. Its parameters are named
        after the operator's arguments, and it does not write to them. Tests compare with it. torch differentiates it
        where no kernel does: without `differentiable` in `src/operators.h`, beyond the third order, and, if there is
        ``fused``, in compiled programs. A number that changes between calls of a compiled program is passed
        to it as a float64 tensor of shape [].
    derivative
        A dictionary with the functions ``save``, ``vjp`` and ``jvp`` of :func:`derivative.derivative`, for an operator
        whose derivative is not that of its functor.
    node
        The name of ``grad_fn``, without ``Backward``.
    differentiable
        Whether there is a derivative. If not, a call with a floating-point result is an error if an argument requires
        grad.
    instead
        Advice for the error message about an argument that has no gradient.
    aten
        An operator of ATen that takes the tensors, up to three, and has the same derivative:
        ``torch.ops.aten.mul.Tensor`` for ``a * b + c``. Its node is in C++, and records a small call in a fifth of the
        time that a node in Python takes.
    flops
        The number of floating point operations for each element, for ``flops.py``.
    fused
        A function that takes Inductor's operations, ``torch._inductor.virtualized.ops``, and an element of each
        argument, and returns an element of the result, or a tuple of several. Results have the kernel's bits; 16-bit
        dtypes are fused from torch 2.13 on. Or ``"formula"``: Inductor compiles the formula in place of the operator,
        on every device and in every dtype, and its bits may differ.
    autocast
        What an autocast region does to floating-point inputs, except float64: ``"cast"`` them to the dtype of the
        region, cast them to ``"float32"``, or ``"leave"`` them, unless their dtypes differ: then the widest is used.
        By default ``"cast"``, and ``"float32"`` for an operator over rows.
    linear
        Sets of tensors in which the operator is linear while the others are constant. The DTensors of one set may be
        partial sums together, in a call that passes all of them. Operators over rows ignore it.
    """

    formula: Callable[..., Any] | None = None
    derivative: Mapping[str, Callable[..., Any]] | None = None
    differentiable: bool = True
    node: str | None = None
    instead: str | None = None
    aten: Any = None
    flops: int = 1
    fused: Callable[..., Any] | Literal["formula"] | None = None
    autocast: Literal["cast", "float32", "leave"] | None = None
    linear: tuple[set[str], ...] = ()

    def __post_init__(self) -> None:
        if self.derivative is not None and not (
            self.differentiable and self.derivative.keys() == {"save", "vjp", "jvp"}
        ):
            raise ValueError(
                "derivative must have save, vjp and jvp, and differentiable must be True, got "
                f"{[*self.derivative]}, and differentiable={self.differentiable}"
            )
        if self.fused == "formula" and self.formula is None:
            raise ValueError('fused="formula" needs a formula, but there is none')


def _of_kinds(*kinds: str) -> cached_property[dict[str, int]]:
    """Return a property of a form: the names of its arguments of these kinds, and their indices."""

    def places(form: Form) -> dict[str, int]:
        return {name: place for place, (name, kind) in enumerate(form.kinds.items()) if kind in kinds}

    return cached_property(places)


@dataclasses.dataclass(eq=False)
class Form:
    """One form of an operator: a registered overload.

    Attributes
    ----------
    declaration
        The operator's declaration, the same text as in C++.
    kind
        Where the results go: they are returned (``functional``), written into ``out`` (``writing``, or ``out`` if it
        also returns ``out``), or written into tensors that it reads (``updating``). For a ``kernel`` of the author's
        own, the schema says it for each argument.
    op
        The overload.
    dtypes
        The dtypes that C may have: all tensors of type C have one of them.
    promises
        The entry of the operator. A derivative has one of its own.
    functional
        The overload that returns new tensors, or None.
    tensor_numbers
        Whether its floats are passed as tensors.
    of_results, of_inputs
        The dtype of each result and each tensor that has one of its own; None for those of type C.
    broadcasts
        Whether tensors are broadcast.
    choices
        The values of each int or bool that has few; there is a kernel for each.
    role
        Tells which member of the family it is. ``()`` is the operator itself, and ``("x",)`` its derivative by x.
        ``("x", "y")`` computes several gradients in one pass, ``SECOND`` and ``THIRD`` the derivatives of higher
        orders, and ``VALUE_AND_TANGENT`` a value and its tangent. Over rows, a derivative is ``("recorded",)``,
        ``("gradients",)``, ``("tangent",)`` or ``("second",)``.
    family
        The operator and its derivatives, which are made from one functor, by their roles.
    gradients_of
        If it returns gradients, each in the shape of an argument: the names of these arguments.
    reads, constant
        Only for a derivative of an element-wise operator. ``reads`` names the arguments that it reads besides the
        gradient; ``constant`` is its value, if it is the same for all arguments.
    of_row
        For an operator over rows (see ``rows.py``): which results and which tensors have one value for each row.
    asks_for_index
        Whether its functor calls ``row.index()``.
    recorder, without_autocast
        Made by recording.py: a function that records a call, given a tuple of its results and all arguments; and a copy
        of the operator that autocast ignores.
    aten_node
        Made by aten_node.py: with what C++ makes a node of ATen's, or None.
    """

    declaration: str
    kind: Literal["functional", "writing", "out", "updating", "kernel"]
    op: Any
    dtypes: tuple[torch.dtype, ...]
    promises: Elementwise
    functional: Any = None
    tensor_numbers: bool = False
    of_results: tuple[torch.dtype | None, ...] = (None,)
    of_inputs: tuple[torch.dtype | None, ...] = ()
    broadcasts: bool = False
    choices: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    role: tuple[str, ...] = ()
    gradients_of: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    constant: float | None = None
    family: Mapping[tuple[str, ...], Form] = dataclasses.field(default_factory=dict)
    of_row: tuple[Sequence[bool], Sequence[bool]] | None = None
    asks_for_index: bool = False
    recorder: Callable[..., Any] | None = None
    without_autocast: Any = None
    aten_node: tuple[int, int, Any, Mapping[str, int]] | None = None

    @property
    def recorded(self) -> Form:
        """The form that a recorded call computes. Over rows, it also returns what the gradients read."""
        return self if self.role else self.family.get(("recorded",), self)

    @cached_property
    def called(self) -> Form:
        """The form that the user calls: the inverse of ``recorded``."""
        return self.family[()] if self.role == ("recorded",) else self

    @cached_property
    def name(self) -> str:
        """The name that its error messages begin with."""
        return name(self.called.op)

    @property
    def operator(self) -> str:
        """The name of the operator in the declaration that this form belongs to."""
        return _C.read(self.declaration)[0]

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The type of each argument, without ``out``: Tensor, Tensor?, float, int, bool or SymInt[]."""
        return dict(_C.read(self.declaration)[1])

    # The arguments of some kinds, without ``out``, and their indices.
    inputs = _of_kinds("Tensor", "Tensor?")
    required = _of_kinds("Tensor")
    lists = _of_kinds("Tensor[]")  # only a kernel of the author's own has lists
    numbers = _of_kinds("float")  # with ``tensor_numbers`` they are passed as tensors
    floats = _of_kinds("float", "List[float]", "Optional[List[float]]")
    integers = _of_kinds("int", "bool")
    sizes = _of_kinds("SymInt[]")  # has the sizes of a row

    def given(self, args: Sequence[Any]) -> dict[str, Any]:
        """Return the tensors that are passed in a call, by their names. The last arguments may be left out."""
        return {x: args[i] for x, i in self.inputs.items() if i < len(args) and args[i] is not None}

    def wanted(self, args: Sequence[Any]) -> dict[str, Tensor]:
        """Return the tensors whose gradients a call asks for, by their names. Other gradients have the shape [0]."""
        needs, given = args[self.integers["needs__"]] if "needs__" in self.kinds else -1, self.given(args)
        return {x: given[x] for i, x in enumerate(self.gradients_of) if x in given and needs >> i & 1}

    @cached_property
    def own(self) -> dict[str, torch.dtype]:
        """The tensors with a dtype of their own, and these dtypes."""
        return {x: dtype for x, dtype in zip(self.inputs, self.of_inputs, strict=False) if dtype is not None}

    @cached_property
    def first(self) -> str:
        """The first tensor of type C that is not optional."""
        return next(x for x in self.required if x not in self.own)

    def result_dtypes(self, args: tuple[Any, ...]) -> list[torch.dtype]:
        """Return the dtype of each result of a call."""
        first, given = args[self.inputs[self.first]], self.given(args)
        of_c = [given.get(x, first).dtype for x in self.gradients_of] or [first.dtype] * len(self.of_results)
        return [own or dtype for own, dtype in zip(self.of_results, of_c, strict=True)]

    @cached_property
    def call(self) -> Callable[..., Any]:
        """A function that calls the overload with all arguments by position."""
        return by_position(self.op, self.op)

    @cached_property
    def of_c(self) -> list[int]:
        """The indices of the results of type C."""
        return [i for i, dtype in enumerate(self.of_results) if dtype is None]

    @cached_property
    def writes(self) -> dict[str, int]:
        """The arguments that it writes to, ``out`` included, and their indices."""
        arguments = enumerate(private.arguments(self.op))
        return {x.name: place for place, x in arguments if x.alias_info and x.alias_info.is_write}

    def with_written(self, returned: Any, written: list[Any]) -> Any:
        """Return what the operator returns, without None and ``out``, and then the list of written tensors."""
        if self.kind == "out" or returned is None:
            return written
        return (*returned, written) if isinstance(returned, (list, tuple)) else (returned, written)

    def targets(self, args: Sequence[Any]) -> dict[str, Any]:
        """Return the tensors that a call writes to, in the order of the results, by their names."""
        return {x: args[place] for x, place in self.writes.items()}


@cache
def _defaults(op: Any) -> dict[str, Any]:
    return {x.name: x.default_value for x in private.arguments(op)}


def complete(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return all arguments of a call by position. The dispatcher leaves out those that equal their defaults."""
    defaults = _defaults(op)
    if len(args) == len(defaults):
        return tuple(args)
    return tuple({**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}.values())


def named(op: Any, args: Sequence[Any]) -> dict[str, Any]:
    """Return all arguments of a call by their names. An element of a list is called ``xs[0]``."""
    each: dict[str, Any] = {}
    for x_name, x in zip(private.argument_names(op), args, strict=True):
        each |= {f"{x_name}[{i}]": y for i, y in enumerate(x)} if isinstance(x, (list, tuple)) else {x_name: x}
    return each


def tensors_in(args: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among arguments, and those in lists."""
    return [y for x in args for y in as_list(x) if isinstance(y, Tensor)]


def with_tensors(change: Callable[[Tensor], Any], x: Any) -> Any:
    """Return an argument with each of its tensors changed: itself, or those in a list."""
    if isinstance(x, (list, tuple)):
        return [with_tensors(change, y) for y in x]
    return change(x) if isinstance(x, Tensor) else x


def as_list(x: Any) -> Sequence[Any]:
    """Return the elements of an argument that is a list, or a list of an argument that is none."""
    return x if isinstance(x, (list, tuple)) else [x]


def as_tuple(returned: Any) -> tuple[Any, ...]:
    """Return the results of a call as a tuple. An operator with one result returns it alone."""
    return returned if isinstance(returned, tuple) else (returned,)


def by_position(call: Callable[..., Any], op: Any, leading: int = 0) -> Callable[..., Any]:
    """Return a function that takes all arguments by position, after ``leading`` others, and calls ``call``.

    ``call`` takes the operator's keyword-only arguments by name.
    """
    names = private.argument_names(op)
    count = len(private.positional_names(op))
    if count == len(names):
        return call
    first_keyword = leading + count

    def called(*args: Any, **kwargs: Any) -> Any:
        return call(*args[:first_keyword], **dict(zip(names[count:], args[first_keyword:], strict=False)), **kwargs)

    return called


_OF_A_DERIVATIVE = Elementwise(autocast="leave")


def declared(operators: Sequence[Mapping[str, Any]], table: Mapping[str, Elementwise]) -> list[Form]:
    """Return the forms of the operators that C++ declared, with their entries in ``table``."""
    in_cpp = {x["declaration"] for x in operators if not x["of"]}
    lacking = [f'src/operators.h has "{x}", but {TABLE} does not: add it there' for x in sorted(in_cpp - {*table})]
    lacking += [f'{TABLE} has "{x}", but src/operators.h does not: add it there' for x in sorted({*table} - in_cpp)]
    if lacking:
        raise ImportError(f"{namespace}: {'; '.join(lacking)}")
    ops = {
        (x["declaration"], x["kind"], x["tensor_numbers"]): private.overload(namespace, x["name"]) for x in operators
    }
    families: dict[tuple[str, str, bool], dict[tuple[str, ...], Form]] = {}
    forms = []
    alike = ("declaration", "kind", "tensor_numbers", "broadcasts", "choices", "constant", "of_row", "asks_for_index")
    for x in operators:
        declaration, kind, tensor_numbers, of = x["declaration"], x["kind"], x["tensor_numbers"], x["of"]
        family = families.setdefault((of or declaration, kind, tensor_numbers), {})
        promises = _OF_A_DERIVATIVE if of else table[declaration]
        if promises.autocast is None:  # as in torch, where norms, softmaxes and losses compute in float32
            promises = dataclasses.replace(promises, autocast="float32" if x["of_row"] else "cast")
        form = Form(
            op=ops[declaration, kind, tensor_numbers],
            dtypes=tuple(getattr(torch, dtype) for dtype in x["dtypes"]),
            promises=promises,
            functional=ops.get((declaration, "functional", tensor_numbers)),
            of_results=_own(x["of_results"]),
            of_inputs=_own(x["of_inputs"]),
            role=tuple(x["role"]),
            gradients_of=tuple(x["gradients_of"]),
            reads=tuple(x["reads"]),
            family=family,
            **{name: x[name] for name in alike},
        )
        family[form.role] = form
        forms.append(form)
    return forms


def _own(dtypes: list[str]) -> tuple[torch.dtype | None, ...]:
    return tuple(getattr(torch, dtype) if dtype else None for dtype in dtypes)
