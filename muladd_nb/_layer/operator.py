"""What an element-wise operator promises, and the forms that C++ declared of it: what every rule here reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from .. import _C
from . import torch_private as private
from ._library import name, namespace

__all__ = ["Elementwise", "Form"]

TABLE = f"{namespace}/_operators.py"


@dataclasses.dataclass(frozen=True)
class Elementwise:
    """What an element-wise operator promises.

    Its functions are given None for a tensor that is absent.

    Parameters
    ----------
    formula
        The result, or a tuple of several, in torch's operators, none of which writes: a function whose parameters name
        the arguments. It tells the tests what to expect. It is differentiated where the functor gives no derivative:
        if the row does not say `differentiable`, beyond the third order, and, where there is ``fused``, in compiled
        programs. A number that changes between calls of a compiled program comes as a float64 tensor of shape [].
    derivative
        The functions ``save``, ``vjp`` and ``jvp`` by their names, as :func:`derivative.derivative` takes them, of an
        operator that has another derivative than its functor.
    node
        What ``grad_fn`` is called, without ``Backward``.
    differentiable
        Whether there is a derivative. Where there is none, a floating-point result does not require grad, and to ask
        for its derivative is an error.
    instead
        What to do for a gradient that there is none of, for the error message.
    aten
        A function of the tensors, made of one operator of ATen that has the same derivative: ``torch.mul`` for
        ``a * b + c``. Its node, in C++, records a small call three times faster than one in Python can.
    flops
        Floating point operations for each element, for ``flops.py``; instructions do not count.
    fused
        Takes the operations of Inductor, ``torch._inductor.virtualized.ops``, and an element of each argument; returns
        that of the result, or a tuple of several, with the kernel's bits; in 16 bits from torch 2.13 on. Or
        ``"formula"``: Inductor compiles the formula in place of the operator, on every device and in every dtype, and
        its bits may differ.
    autocast
        What an autocast region does to floating-point inputs other than float64: ``"cast"`` them to the dtype of the
        region, compute in ``"float32"``, or ``"leave"`` them, in the widest dtype where they differ. By default it
        casts them, and computes in float32 what is over rows.
    linear
        The sets of tensors in which the operator is linear while the others stay as they are. Only those may
        stay partial sums together, as a DTensor.
    """

    formula: Callable[..., Any] | None = None
    derivative: Mapping[str, Callable[..., Any]] | None = None
    differentiable: bool = True
    node: str | None = None
    instead: str | None = None
    aten: Callable[..., Tensor] | None = None
    flops: int = 1
    fused: Callable[..., Any] | Literal["formula"] | None = None
    autocast: Literal["cast", "float32", "leave"] | None = None
    linear: tuple[set[str], ...] = ()

    def __post_init__(self) -> None:
        if self.derivative is not None and not (
            self.differentiable and self.derivative.keys() == {"save", "vjp", "jvp"}
        ):
            raise ValueError(
                "a derivative is a save, a vjp and a jvp, of an operator that is differentiable, got "
                f"{[*self.derivative]}, and differentiable={self.differentiable}"
            )
        if self.fused == "formula" and self.formula is None:
            raise ValueError('fused="formula" is to compile a formula, and there is none')


@dataclasses.dataclass
class Made:
    """What the registrations of a form have made, for those that come later."""

    recorder: Callable[..., Any] | None = None  # records a call: takes a tuple of its results, and all arguments
    without_autocast: Any = None  # a copy of the operator that autocast leaves alone


@dataclasses.dataclass(frozen=True)
class Form:
    """One form of an operator.

    ``kind`` says where its results go: they are returned (``functional``), or written into ``out`` (``writing``, and
    ``out`` where that is returned), or into tensors that it reads (``updating``). Its floats are tensors
    where it has ``tensor_numbers``.

    ``dtypes`` are those that its tensors share; ``of_results`` and ``of_inputs`` have the dtype of each result and
    tensor that has one of its own, and None for the others. ``broadcasts`` says that the tensors need not have one
    shape. ``functional`` is the operator that returns new tensors, where it exists. ``family`` has the operators that
    are made of the functor: the partial derivatives times the gradients, by the arguments that they are by, an empty
    name where a call says it, and by several names all gradients in one pass; by none the operator itself, and by one
    empty name the operator's result and its tangent. Of these ``by`` has the arguments, ``reads`` those that it reads
    beside the gradient, and ``constant`` the partial derivative, where it is the same everywhere.

    ``of_row`` is for an operator over rows, whose rules are in ``rows.py``, and says which results and tensors have one
    value for each row. Its derivatives are in ``family`` by what they are, ``("gradients",)`` and so on, and ``reads``
    has the tensors that have a derivative.
    """

    declaration: str
    kind: Literal["functional", "writing", "out", "updating"]
    op: Any
    dtypes: tuple[torch.dtype, ...]
    promises: Elementwise
    functional: Any = None
    tensor_numbers: bool = False
    of_results: tuple[torch.dtype | None, ...] = (None,)
    of_inputs: tuple[torch.dtype | None, ...] = ()
    broadcasts: bool = False
    by: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    constant: float | None = None
    family: Mapping[tuple[str, ...], Form] = dataclasses.field(default_factory=dict)
    of_row: tuple[Sequence[bool], Sequence[bool]] | None = None
    made: Made = dataclasses.field(default_factory=Made, compare=False)

    @cached_property
    def has_all_gradients(self) -> bool:
        """Whether its results are the gradients by several arguments, each of the shape of its own."""
        return len(self.by) > 1 and "" not in self.by

    @cached_property
    def name(self) -> str:
        """What its error messages begin with."""
        return name(self.op)

    @cached_property
    def _read(self) -> tuple[str, Sequence[tuple[str, str, bool]]]:
        # Not from the schema of the operator: a kernel's form may declare some of its tensors, to check these alone.
        return _C.read(self.declaration)

    @property
    def operator(self) -> str:
        """The operator that this is a form of: what its declaration begins with."""
        return self._read[0]

    @cached_property
    def kinds(self) -> dict[str, str]:
        """What each argument is, but ``out``: a Tensor, Tensor?, float, int or bool."""
        return {x: kind for x, kind, _ in self._read[1]}

    @cached_property
    def inputs(self) -> dict[str, int]:
        """The tensors whose elements it computes with, and their places among the arguments."""
        return self._places("Tensor", "Tensor?")

    @cached_property
    def required(self) -> dict[str, int]:
        """Those that must be there."""
        return self._places("Tensor")

    def given(self, args: Sequence[Any]) -> dict[str, Any]:
        """Return those of a call that are there, by their names; the last arguments may be left out."""
        return {x: args[i] for x, i in self.inputs.items() if i < len(args) and args[i] is not None}

    @cached_property
    def own(self) -> dict[str, torch.dtype]:
        """The tensors with a dtype of their own, and which."""
        return {x: dtype for x, dtype in zip(self.inputs, self.of_inputs, strict=False) if dtype is not None}

    @cached_property
    def first(self) -> str:
        """The first tensor that is always there of the dtype that the others share."""
        return next(x for x in self.required if x not in self.own)

    def result_dtypes(self, args: tuple[Any, ...]) -> list[torch.dtype]:
        """Return the dtype of each result of a call."""
        return [dtype or args[self.inputs[self.first]].dtype for dtype in self.of_results]

    @cached_property
    def of_c(self) -> list[int]:
        """The places of the results of the dtype that the tensors share."""
        return [i for i, dtype in enumerate(self.of_results) if dtype is None]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Its floats, and their places: tensors where it has ``tensor_numbers``."""
        return self._places("float")

    @cached_property
    def integers(self) -> dict[str, int]:
        """Its ints and bools, and their places."""
        return self._places("int", "bool")

    def _places(self, *kinds: str) -> dict[str, int]:
        return {name: place for place, (name, kind) in enumerate(self.kinds.items()) if kind in kinds}

    @cached_property
    def written(self) -> dict[str, int]:
        """The arguments that an ``updating`` form writes to, and their places."""
        return {x: place for place, (x, _, is_written) in enumerate(self._read[1]) if is_written}

    @cached_property
    def writes(self) -> list[int]:
        """The places of the arguments that its operator writes to, as the schema has them."""
        return [place for place, x in enumerate(private.arguments(self.op)) if x.alias_info and x.alias_info.is_write]

    def with_written(self, returned: Any, written: list[Any]) -> Any:
        """Return what the operator returns, and then what it writes, as a list: without None, and without ``out``."""
        if self.kind == "out" or returned is None:
            return written
        return (*returned, written) if isinstance(returned, (list, tuple)) else (returned, written)

    def targets(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tensors that a call writes to, in the order of the results, by their names."""
        if self.kind in ("writing", "out"):
            return {"out": kwargs.get("out", args[-1])}
        return {x: args[place] for x, place in self.written.items()}


@cache
def _defaults(op: Any) -> dict[str, Any]:
    return {x.name: x.default_value for x in private.arguments(op)}


def complete(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return all arguments of a call by their places: the dispatcher leaves out those that equal their defaults."""
    defaults = _defaults(op)
    return tuple({**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}.values())


def by_position(call: Callable[..., Any], op: Any, leading: int = 0) -> Callable[..., Any]:
    """Return what takes all arguments of an operator by position, ``leading`` others first, for one that does not."""
    names = [x.name for x in private.arguments(op)]
    count = sum(not x.kwarg_only for x in private.arguments(op))
    if count == len(names):
        return call
    first_keyword = leading + count

    def called(*args: Any, **kwargs: Any) -> Any:
        return call(*args[:first_keyword], **dict(zip(names[count:], args[first_keyword:], strict=False)), **kwargs)

    return called


_OF_A_DERIVATIVE = Elementwise(autocast="leave")


def declared(operators: Sequence[Mapping[str, Any]], table: Mapping[str, Elementwise]) -> list[Form]:
    """Return the forms of the operators that C++ declared, with what ``table`` has of each."""
    sides = {
        "src/operators.h": {x["declaration"] for x in operators if not x["of"]},
        TABLE: set(table),
    }
    lacking = [
        f'{here} has "{declaration}", and {there} has not: add it there'
        for here, there in (tuple(sides), tuple(sides)[::-1])
        for declaration in sorted(sides[here] - sides[there])
    ]
    if lacking:
        raise ImportError(f"{namespace}: {'; '.join(lacking)}")
    ops = {}
    for x in operators:
        packet, _, overload = x["name"].partition(".")
        ops[x["declaration"], x["kind"], x["tensor_numbers"]] = getattr(
            getattr(getattr(torch.ops, namespace), packet), overload or "default"
        )
    families: dict[tuple[str, str, bool], dict[tuple[str, ...], Form]] = {}
    forms = []
    for x in operators:
        declaration, kind, tensor_numbers, of = x["declaration"], x["kind"], x["tensor_numbers"], x["of"]
        family = families.setdefault((of or declaration, kind, tensor_numbers), {})
        form = Form(
            declaration,
            kind,
            ops[declaration, kind, tensor_numbers],
            tuple(getattr(torch, dtype) for dtype in x["dtypes"]),
            _OF_A_DERIVATIVE if of else _promises(table[declaration], over_rows=x["of_row"] is not None),
            functional=ops.get((declaration, "functional", tensor_numbers)),
            tensor_numbers=tensor_numbers,
            of_results=_own(x["of_results"]),
            of_inputs=_own(x["of_inputs"]),
            broadcasts=x["broadcasts"],
            by=tuple(x["by"]),
            reads=tuple(x["reads"]),
            constant=x["constant"],
            family=family,
            of_row=x["of_row"],
        )
        family[form.by] = form
        forms.append(form)
    return forms


def _promises(row: Elementwise, *, over_rows: bool) -> Elementwise:
    # As torch has it of norms, softmaxes and losses.
    return dataclasses.replace(row, autocast=row.autocast or ("float32" if over_rows else "cast"))


def _own(dtypes: list[str]) -> tuple[torch.dtype | None, ...]:
    return tuple(getattr(torch, dtype) if dtype else None for dtype in dtypes)
