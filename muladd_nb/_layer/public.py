"""Makes the public functions of operators: they check arguments, take ``out=``, and choose the form to call.

A public function calls a function in C (fast_path.py), which takes the fast path or else calls the Python here. The
outer function is in Python, which costs 0.1 us (measured), because torch.compile cannot trace a function in C, and
because such a function has no annotations and no source.

``torch.compile`` makes a ``float`` argument a constant, and compiles again for the next value. So in compiled
programs, a number that changes is passed as a tensor, to the form that takes one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import wraps
from numbers import Complex, Real
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.fx import Proxy

from .. import _C
from . import contract
from . import torch_private as private
from .kernel import Kernel
from .operator import Form, tensors_in
from .recording import THROUGH_OUT, refuse_gradients, refuse_gradients_of_numbers

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_INFINITE = 2**1024 - 2**970  # the first int whose nearest float is infinite

_Function = TypeVar("_Function", bound=Callable[..., Any])


def public(forms: Sequence[Form]) -> Callable[[_Function], _Function]:
    """Return a decorator that makes a public function from a function with a signature, a docstring and no body.

    The function has the name of the operator. If the operator has overloads, a call goes to the first one that takes
    tensors where tensors are passed.

    Parameters
    ----------
    forms
        All registered forms.

    Raises
    ------
    ValueError
        If there is no operator of that name, or it has no form for the ``out`` of the signature.
    """

    def decorate(declared: _Function) -> _Function:
        name = declared.__name__
        of_name = [form for form in forms if form.name == name and not form.role and form.kind != "out"]
        declarations = dict.fromkeys(form.declaration for form in of_name)
        if not declarations:
            known = sorted({form.name for form in forms if not form.role})
            raise ValueError(f"{name}: there is no operator of this name, only {known}")
        kernels = [form for form in of_name if isinstance(form, Kernel)]
        if kernels:
            return _made(declared, kernels, _caller_of_kernel(kernels[0], declared), has_out=False)
        callers = [
            _Caller(name, [form for form in forms if form.declaration == declaration], len(declarations) > 1)
            for declaration in declarations
        ]
        # An argument that an operator updates may be called out, too.
        out = inspect.signature(declared).parameters.get("out")
        has_out = out is not None and not any("updating" in caller.by_kind for caller in callers)
        _check_out(callers, out if has_out else None)

        def otherwise(*args: Any) -> Any:
            *inputs, out = args if has_out else (*args, None)
            for caller in callers:
                numbers = [args[place] for place in caller.numbers.values()]
                if len(callers) > 1 and not is_compiling():
                    for x in numbers:
                        if isinstance(x, Proxy):  # torch.fx records this function, which chooses a form later
                            into = {} if out is None else {"out": out}
                            return x.tracer.create_proxy("call_function", public_function, tuple(inputs), into)
                if not any(isinstance(x, Tensor) for x in numbers):
                    return caller(inputs, out)
            return callers[0](inputs, out)

        public_function = _made(declared, [caller.form for caller in callers], otherwise, has_out=has_out)
        return public_function

    return decorate


def _made(
    declared: _Function,
    forms: Sequence[Form],
    otherwise: Callable[..., Any],
    *,
    has_out: bool,
) -> _Function:
    """Return the public function with the signature of ``declared``. It has one of ``forms`` for each declaration.

    ``otherwise`` takes all arguments by position, for calls that the shorter paths decline. A compiled program checks
    at each call that the values that Dynamo read have not changed, which takes 1.4 us for all that ``otherwise`` reads.
    So if numbers are constants and there is no ``out``, compiled programs call an operator that returns directly.
    """
    parameters = inspect.signature(declared).parameters.values()
    names = [x.name for x in parameters]
    most = sum(x.kind is not x.KEYWORD_ONLY for x in parameters)  # so many arguments may be given by position
    presets = {x.name: x.default for x in parameters if x.default is not x.empty}
    returning = [x for x in forms if x.kind in ("functional", "kernel") and (not has_out or "out" in presets)]
    plain = tuple(
        (x.op, tuple(x.kinds), tuple(private.positional_names(x.op)), tuple(x.numbers), tuple(x.required))
        for x in returning
    )
    defaults = [
        {x.name: x.default_value for x in private.arguments(form.op) if x.has_default_value()} for form in returning
    ]
    lacking = {x: preset for x, preset in presets.items() if not all(x in of and of[x] == preset for of in defaults)}
    in_c = _C.fast_path(
        [(x.name, x.name in presets, presets.get(x.name), x.kind is x.KEYWORD_ONLY) for x in parameters],
        forms,
        otherwise,
        declared,
        has_out=has_out,
    )

    # A default that a call leaves out is left to the operator, if the operator has the same. Otherwise a compiled
    # program with dynamic=True reads it as a number that may change, which torch refuses in a branch of torch.cond.
    def while_compiling(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = {**lacking, **dict(zip(names, args, strict=False)), **kwargs}
        too_many = len(args) > most or any(x in kwargs for x in names[: len(args)])
        if too_many or any(x not in names for x in kwargs) or any(x not in given and x not in presets for x in names):
            declared(*args, **kwargs)  # raises a TypeError
        if not has_out or given.get("out") is None:
            for op, op_names, positional, numbers, tensors in plain:
                passed = {own: given[x] for own, x in zip(op_names, names, strict=False) if x in given}
                is_plain = all(_is_plain(passed[x]) for x in numbers if x in passed)
                if is_plain and all(isinstance(passed[x], Tensor) for x in tensors):
                    # By position where possible, because the policy of a checkpoint gets these arguments as they are.
                    by_place = []
                    for x in positional:
                        if x not in passed:
                            break
                        by_place.append(passed.pop(x))
                    return op(*by_place, **passed)
        return otherwise(*(given[x] if x in given else presets[x] for x in names))

    @wraps(declared)
    def public_function(*args: Any, **kwargs: Any) -> Any:
        return while_compiling(args, kwargs) if is_dynamo_compiling() else in_c(*args, **kwargs)

    made: Any = public_function
    # A code object of its own: torch.compile limits how many programs one code object has.
    made.__code__ = made.__code__.replace(co_name=made.__name__)
    return made


def _caller_of_kernel(kernel: Kernel, declared: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls an operator with a kernel of its own, with all arguments by position."""
    parameters = inspect.signature(declared).parameters
    if [*parameters] != [*kernel.kinds]:
        raise ValueError(f"{kernel.name}: its arguments are {[*kernel.kinds]}, got {[*parameters]}")
    call = kernel.call

    def checked(*args: Any) -> Any:
        if any(args[place] is None for place in kernel.required.values()):
            kernel.tensors(args)
        if not (kernel.required or tensors_in(args)):
            kernel.check(*args)  # refuses an empty list; the dispatcher's error would not name the argument
        refuse_gradients_of_numbers(kernel, args)
        return call(*args)

    return checked


def _check_out(callers: Sequence[_Caller], out: inspect.Parameter | None) -> None:
    """Raise ``ValueError`` unless each overload has the forms that a signature with this ``out`` needs."""
    for caller in callers:
        declaration, writes = caller.form.declaration, "writing" in caller.by_kind
        if out is not None and not writes:
            raise ValueError(f"{caller.name}: out needs a form of {declaration} that writes, but its entry has none")
        if (out is None or out.default is None) and writes and "functional" not in caller.by_kind:
            raise ValueError(f"{caller.name}: {declaration} only writes, so out must not have a default")


class _Caller:
    """Calls the forms of one declaration. In compiled programs, those of ``changing`` take numbers as tensors."""

    def __init__(self, name: str, forms: Sequence[Form], is_one_of_several: bool) -> None:
        self.name = name
        self.by_kind: dict[str, Form] = {form.kind: form for form in forms if not form.tensor_numbers}
        self.calls = {kind: form.call for kind, form in self.by_kind.items()}
        self.changing = {form.kind: form.call for form in forms if form.tensor_numbers}
        self.form = form = forms[0]  # C++ lists the functional form before the one that writes
        self.inputs, self.numbers, self.integers, self.sizes = form.inputs, form.numbers, form.integers, form.sizes
        # We read these now, because before Python 3.12 Dynamo cannot trace the first read of a cached_property.
        _ = self.form.required, self.form.name
        self.expected = "a real number or a tensor" if is_one_of_several else "a real number"

    def __call__(self, args: list[Any], out: Any) -> Any:
        contract.check_defined(self.form, tuple(args), {"out": out} if self.form.kind == "writing" else {})
        for argument, place in self.numbers.items():
            x = args[place]
            if not isinstance(x, (*_NUMBERS, Tensor)) and isinstance(x, Complex) and not isinstance(x, Real):
                raise TypeError(f"{self.name}: {argument} must be {self.expected}, got {x!r}")
            if not (isinstance(x, (*_NUMBERS, Tensor)) or is_compiling() or _stands_for_a_number(x)):
                raise TypeError(f"{self.name}: {argument} {_must_be(self.expected, x)}")
            is_exact = isinstance(x, (int, Fraction)) and (not is_compiling() or is_constant(x))
            if is_exact and not -_INFINITE < x < _INFINITE:
                got = f"{type(x).__name__} of {int(x).bit_length()} bits"
                expected = f"{self.expected}, within a float's range"
                raise OverflowError(f"{self.name}: {argument} must be {expected}, got {got}")
        for argument, place in self.integers.items():
            if not is_compiling():
                self._check_integer(argument, args[place])
        for argument, place in self.sizes.items():
            sizes = args[place]
            is_list = isinstance(sizes, (list, tuple)) and all(hasattr(type(x), "__index__") for x in sizes)
            is_traced = is_compiling() or (_stands_for_a_tensor(sizes) and not isinstance(sizes, Tensor))
            if not (is_list or is_traced):
                got = f"a tensor of shape {[*sizes.shape]}" if isinstance(sizes, Tensor) else repr(sizes)
                raise TypeError(f"{self.name}: {argument} must be a list of ints, got {got}")
        for argument, x in (*((argument, args[place]) for argument, place in self.inputs.items()), ("out", out)):
            if not (isinstance(x, Tensor) or x is None or is_compiling() or _stands_for_a_tensor(x)):
                expected = "a tensor or None" if self.form.kinds.get(argument) == "Tensor?" else "a tensor"
                cure = "; make one with torch.full_like" if isinstance(x, _NUMBERS) else ""
                raise TypeError(f"{self.name}: {argument} {_must_be(expected, x)}{cure}")
        if out is None and self.form.kind != "writing":
            return self._call(self.form.kind, args)
        # This ignores objects that torch.fx traces or that duck-type a tensor: the operator checks them.
        tensors = {argument: args[place] for argument, place in self.inputs.items()} | {"out": out}
        refuse_gradients(self.name, tensors, *THROUGH_OUT, may_be_dual=False)
        self._call("writing", [*args, out])
        return out if "functional" in self.by_kind else None

    def _call(self, kind: str, args: list[Any]) -> Any:
        form, call = self.by_kind[kind], self.calls[kind]
        places = self.numbers.values()
        if not is_compiling() and not any(isinstance(args[place], _SYMBOLIC) for place in places):
            refuse_gradients_of_numbers(form, args)
            return call(*args)
        if kind in self.changing and not all(is_constant(args[place]) for place in places):
            call = self.changing[kind]
            args = [as_tensor(x) if place in places else x for place, x in enumerate(args)]
            for argument, place in self.numbers.items():
                if args[place].is_complex():
                    raise TypeError(f"{self.name}: {argument} must be {self.expected}, got a complex one")
        return call(*args)

    def _check_integer(self, argument: str, x: Any) -> None:
        kind = self.form.kinds[argument]
        if not isinstance(x, Tensor) and _stands_for_a_tensor(x):
            return  # torch.fx traces it
        is_one = isinstance(x, bool) if kind == "bool" else hasattr(type(x), "__index__") and not isinstance(x, Tensor)
        if not is_one:
            raise TypeError(f"{self.name}: {argument} {_must_be('a bool' if kind == 'bool' else 'an int', x)}")
        if isinstance(x, int) and not -(2**63) <= x < 2**63:
            raise OverflowError(f"{self.name}: {argument} must be an int of 64 bits, got one of {x.bit_length()}")


def _stands_for_a_tensor(x: Any) -> bool:
    return hasattr(type(x), "__torch_function__")  # torch.fx's Proxy, and classes that duck-type a tensor


def _stands_for_a_number(x: Any) -> bool:
    # A NumPy array has these methods too, but is a number only if it has no dimensions.
    is_number = hasattr(type(x), "__float__") or hasattr(type(x), "__index__")
    return (is_number and getattr(x, "ndim", 0) == 0) or _stands_for_a_tensor(x)


def _must_be(expected: str, x: Any) -> str:
    """Write the end of an error message, with advice if a tensor is expected and can be made from the object."""
    of = type(x)
    if isinstance(x, (list, tuple)) or hasattr(of, "__array__"):
        cure = "; make a tensor of it with torch.as_tensor" if "a tensor" in expected else ""
        kind = of.__name__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__name__}"
        return f"must be {expected}, got a {kind}{cure}"
    return f"must be {expected}, got {'None' if x is None else f'{x!r}, of type {of.__name__}'}"


def _is_plain(number: Any) -> bool:
    """Return whether a number is a constant of the traced program, and within the range of float."""
    from torch.fx.experimental.symbolic_shapes import has_static_value

    is_real = isinstance(number, (int, float)) and has_static_value(number)
    return is_real and (isinstance(number, float) or -_INFINITE < number < _INFINITE)


def is_constant(number: Any) -> bool:
    """Return whether a number is a constant of the traced program, and not a value that changes between calls."""
    from torch.fx.experimental.symbolic_shapes import has_static_value

    # The operator refuses a complex number.
    return isinstance(number, complex) or (isinstance(number, _NUMBERS) and has_static_value(number))


def as_tensor(number: Any) -> Tensor:
    """Return a number as the tensor that a form with ``tensor_numbers`` takes. A complex one stays complex."""
    if not isinstance(number, _NUMBERS):  # a NumPy scalar, which Dynamo traces as an array
        tensor = torch.as_tensor(number)
        return tensor if tensor.is_complex() else tensor.to("cpu", torch.float64)
    # The compiler would make torch.tensor(number) a constant. An addition is among the few operations for which it
    # keeps a float as an input. Adding -0.0 changes no bit.
    zero: Any = torch.full((), -0.0, dtype=torch.float64, device="cpu")
    return zero + number
