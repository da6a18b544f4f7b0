"""The table of calls that the tests share: one for each form of each operator, and for each public function.

It is made from the forms that the package registers. So a new operator is in the table, and in all tests that use it,
as soon as it has its entries.
"""

import functools
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch

import muladd_nb
from muladd_nb._layer.operator import Form
from muladd_nb._operators import FORMS

NUMBERS = {"float": 0.5, "int": 2, "bool": True}


@dataclass(frozen=True, eq=False, repr=False)
class Call:
    """A form of an operator, called by ``torch.ops`` or by the public function.

    It takes any number of tensors. If the operator has more arguments, it gets the first tensors again. Its floats are
    ``c``.
    """

    name: str
    form: Form
    function: Callable

    def __post_init__(self):
        _ = self.form.numbers  # now: until Python 3.12 Dynamo cannot trace the first read of a cached_property
        if unknown := {*self.form.kinds.values()} - {"Tensor", *NUMBERS}:
            raise NotImplementedError(f"{self.name}: tests/calls.py has to be told how a call gets {unknown}")
        if self.form.promises.formula is None:
            raise ValueError(f"{self.name}: its entry in muladd_nb/_operators.py has no formula, which says what it is")

    def __call__(self, *tensors, out=None, c=0.5):
        """Call it, and return the result."""
        args, kwargs = self.arguments(*tensors, out=out, c=c)
        return self.function(*args, **kwargs)

    def arguments(self, *tensors, out=None, c=0.5):
        """Return the positional and the keyword arguments."""
        given = self._as_taken(tensors, c)
        if not self.writes:
            return tuple(given.values()), {}
        by_name = self.is_public or self.returns_out
        return (tuple(given.values()), {"out": out}) if by_name else ((*given.values(), out), {})

    def expected(self, *tensors, c=0.5):
        """Return the result of the formula for the same call, in ATen or another library."""
        formula, given = self.form.promises.formula, self._by_name(tensors, c)
        return formula(**{x: given[x] for x in _parameters(formula)})

    def result(self, *tensors, c=0.5):
        """Return the result of the form that returns a result, bit for bit; without one, that of the formula."""
        functional = self.form.functional
        return functional(*self._as_taken(tensors, c).values()) if functional else self.expected(*tensors, c=c)

    def _as_taken(self, tensors, c):
        given = self._by_name(tensors, c)
        if self.form.tensor_numbers:  # a new tensor for each call, because a fake mode needs one
            given |= {x: torch.tensor(given[x], dtype=torch.float64) for x in self.form.numbers}
        return given

    def _by_name(self, tensors, c):
        tensors, numbers = itertools.cycle(tensors), NUMBERS | {"float": c}
        return {x: next(tensors) if kind == "Tensor" else numbers[kind] for x, kind in self.form.kinds.items()}

    @property
    def is_public(self):
        return self.function in PUBLIC.values()

    @property
    def writes(self):
        return self.form.kind in ("writing", "out")

    @property
    def returns_out(self):
        return self.form.kind == "out"

    @property
    def names(self):
        """The names of its tensors, without ``out``."""
        return [*self.form.inputs]

    def __repr__(self):
        return self.name

    def _repr_pretty_(self, printer, cycle):  # Hypothesis calls it
        printer.text(self.name)


@functools.cache
def _parameters(function):
    return [*inspect.signature(function).parameters]


PUBLIC = {name: getattr(muladd_nb, name) for name in muladd_nb.ops.__all__}


def _calls():
    functions = {}  # for each operator, by the name of its first form
    for form in FORMS:
        if form.role:
            continue  # a derivative, which the tests of other operators call
        name = form.op.name().removeprefix("muladd_nb::")
        packet = getattr(torch.ops.muladd_nb, form.op.overloadpacket.__name__)
        yield Call(name, form, packet if form.op._overloadname == "default" else form.op)
        function = functions.setdefault(form.declaration, PUBLIC.get(form.name))
        if function is not None and not (form.kind == "out" or form.tensor_numbers):
            yield Call(f"public {name}", form, function)


CALLS = [*_calls()]
RETURNING = [call for call in CALLS if not call.writes]
WRITES = [call for call in CALLS if call.writes]
OPERATORS = [call for call in CALLS if not call.is_public]
WRITING = [call for call in OPERATORS if call.writes]
FIRST_FORMS = [*{call.form.declaration: call for call in reversed(OPERATORS)}.values()]  # one for each operator
MOST = max(len(call.names) for call in CALLS)  # the largest number of tensors of a call
FUNCTIONS = [call for call in FIRST_FORMS if not call.writes]
