"""Lowerings, with which Inductor fuses an operator with its neighbours if its entry has ``fused``.

The operator stays a call of its kernel if it has no neighbours, because the kernel writes large results past the
cache. It also stays a call if the bits would differ: on processors for which Inductor has no fused multiply-add in
vectors, on GPUs, and if the C++ compiler may contract a product and a sum. In 16-bit dtypes, a fused operator rounds
its arguments and its result, while Inductor rounds only what a loop stores; before torch 2.13 it stays a call in these
dtypes.

With ``fused="formula"`` the bits may differ, and Inductor compiles the formula in place of the operator.

An operator that writes arrives here as one that returns the new values (functional.py). If it is not fused, Inductor
calls the operator that writes: in place if nobody reads the old values, or else into a copy (in_place.py).
"""

from __future__ import annotations

import hashlib
import importlib
import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import getitem
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.fx import Node

from . import contract, in_place
from . import torch_private as private
from ._library import namespace
from .formula import Formula
from .operator import SIXTEEN_BITS, TABLE, Form, complete

_DTYPES = {"int": torch.int64, "bool": torch.bool}
_LOOPS = {torch.Tag.pointwise, torch.Tag.reduction}

_waiting: list[tuple[Any, Form]] = []  # operators that return their results, until Inductor is imported
_lowered_ops: set[Any] = set()


def register(form: Form, functional: Any = None) -> None:
    """Remember to lower an operator. Pass one that returns the new values if ``form`` writes."""
    if functional is not None or not form.writes:
        _waiting.append((functional or form.op, form))


def register_waiting() -> None:
    """Register the lowerings, if Inductor was imported. Fake kernels call this, and Inductor needs them first."""
    if torch.compiler.is_compiling() and any(form.promises.fused == "formula" for _, form in _waiting):
        # Import Inductor now, because it copies its decompositions when it gets a program. It is imported in a new
        # thread, where the modes of tracing are not active.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(importlib.import_module, "torch._inductor.lowering").result()
    inductor = private.inductor() if _waiting else None
    if inductor is None:
        return
    for of_form, form in _waiting:
        # Operators that write have no copy that autocast ignores.
        for op in filter(None, (of_form, form.without_autocast)):
            if form.writes:
                call = in_place.lowered(inductor, op, form)
            elif form.promises.fused is not None:
                call = inductor.kernel(op, add_to_fallback_set=False)
            else:
                call = inductor.lowerings.get(op) or _called(inductor, op, form)
            if form.promises.fused == "formula":
                # Inductor copies the first table when it first compiles a program. A program that it compiled before,
                # or that was exported elsewhere, calls the kernel.
                for table in (inductor.decompositions, inductor.decompositions_in_use()):
                    table[op] = _decomposed(op, form)
            elif form.promises.fused is not None:
                call = _lowered(inductor, op, form, call)
                _lowered_ops.add(op)
            inductor.lowerings[op] = call
    _waiting.clear()  # last, because another thread may be in this function


def tag_caches(package: Path, operators: Any, schemas: Sequence[str]) -> None:
    """Add a hash to the keys of cached programs: of the package's Python files, C++'s declarations and all schemas.

    Otherwise the caches know an operator only by its name. C++ also declares the derivatives, and the value of each
    that is a constant.
    """
    python = [file.read_bytes() for file in sorted(package.rglob("*.py"))]
    digest = hashlib.sha256(b"".join([*python, repr((operators, schemas)).encode()])).hexdigest()
    torch.compiler.config.cache_key_tag += f" {namespace}-{digest[:16]}"


def _decomposed(op: Any, form: Form) -> Callable[..., Any]:
    function: Any = form.promises.formula
    formula, names = Formula(form.op, function, len(form.of_results)), private.argument_names(op)

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        shape = contract.check(form, args)
        likes = [(shape, dtype) for dtype in form.result_dtypes(args)]
        given = dict(zip(names, complete(op, args, kwargs), strict=True))
        return _returned(form, formula.compute(likes, given))

    return decomposed


def _returned(form: Form, results: Sequence[Any]) -> Any:
    return [*results] if form.writes else results[0] if len(results) == 1 else results


def _called(inductor: Any, op: Any, form: Form) -> Callable[..., Any]:
    """Return Inductor's default lowering, which calls the operator; in flex_attention it is an error."""
    layout = inductor.layout(inductor.layout_tag(op, with_default=True))
    inductor.make_fallback(op, layout_constraint=layout, warn=False, override_decomp=True)
    call_kernel: Any = inductor.lowerings[op]

    def lowered(*args: Any, **kwargs: Any) -> Any:
        if isinstance(inductor.now.graph, inductor.subgraph):
            raise RuntimeError(
                f"{form.name}: flex_attention compiles score_mod and mask_mod into its own loop, which cannot call a "
                f'kernel: give the operator a formula and fused="formula" in {TABLE}, or, where it is not '
                "element-wise, write it there in PyTorch's operators"
            )
        return call_kernel(*args, **kwargs)

    return lowered


def _lowered(inductor: Any, op: Any, form: Form, call_kernel: Callable[..., Any]) -> Callable[..., Any]:
    ops = inductor.ops
    compute: Any = form.promises.fused
    numbers = form.numbers.values()
    own = {form.inputs[x]: dtype for x, dtype in form.own.items()}
    own_dtypes = {*own.values(), *form.of_results} - {None}

    def lowered(*args: Any, **kwargs: Any) -> Any:
        first = args[form.inputs[form.first]]
        device, dtype = first.get_device(), first.get_dtype()
        # flex_attention compiles its functions into its own loop, which cannot call a kernel.
        if not isinstance(inductor.now.graph, inductor.subgraph):
            call = inductor.now.graph.current_node
            if not (_keeps_bits(inductor.config, device, {dtype, *own_dtypes}) and _is_near_a_loop(call)):
                return call_kernel(*args, **kwargs)
        given = complete(op, args, kwargs)
        read = inductor.broadcast(*form.given(args).values())
        load = {form.inputs[x]: y.make_loader() for x, y in zip(form.given(args), read, strict=True)}
        of_number = torch.float32 if dtype in SIXTEEN_BITS else dtype if dtype.is_floating_point else torch.float64
        of = dict.fromkeys(load, dtype) | own
        if form.tensor_numbers:
            load |= {place: partial(lambda load, _: load([]), args[place].make_loader()) for place in numbers}
        result_dtypes = [own_dtype or dtype for own_dtype in form.of_results]

        def element(place_of_result: int, index: Any) -> Any:
            values = [
                _rounded(ops, load[place](index), of.get(place, of_number))
                if place in load
                else None
                if kind == "Tensor?"
                else _constant(ops, given[place], _DTYPES.get(kind, of_number))
                for place, kind in enumerate(form.kinds.values())
            ]
            dtypes = {int: of_number if dtype.is_floating_point else dtype, float: of_number}
            operations = _Operations(ops, dtypes, form.name)
            elements = [None if value is None else _Element(operations, value) for value in values]
            computed = compute(operations, *elements)
            one = operations.unwrapped(computed[place_of_result] if len(result_dtypes) > 1 else computed)
            return _rounded(ops, one, result_dtypes[place_of_result])

        results = tuple(
            inductor.pointwise(
                device=device, dtype=result_dtype, inner_fn=partial(element, place), ranges=read[0].get_size()
            )
            for place, result_dtype in enumerate(result_dtypes)
        )
        return _returned(form, results)

    return lowered


def _constant(ops: Any, number: Any, dtype: torch.dtype) -> Any:
    """Return a number as copysign(x, x). Inductor would fold sums and products of plain constants in float64."""
    made = ops.constant(number, dtype)
    return ops.copysign(made, made) if dtype.is_floating_point else made


class _Operations:
    """Inductor's operations on elements. They also accept Python numbers; ``dtypes`` has a dtype for each type."""

    def __init__(self, ops: Any, dtypes: Mapping[type, torch.dtype], operator: str) -> None:
        self._ops, self._dtypes, self._operator = ops, dtypes, operator

    def __getattr__(self, name: str) -> Callable[..., _Element]:
        operation = getattr(self._ops, name)
        return lambda *args, **kwargs: _Element(self, operation(*map(self.unwrapped, args), **kwargs))

    def constant(self, number: Any, dtype: torch.dtype) -> _Element:
        return _Element(self, _constant(self._ops, number, dtype))  # __getattr__ would pass an element for the number

    def unwrapped(self, x: Any) -> Any:
        dtype = self._dtypes.get(type(x))
        return x.value if isinstance(x, _Element) else _constant(self._ops, x, dtype) if dtype else x

    def refuse_condition(self) -> NoReturn:
        raise TypeError(
            f"{self._operator}: fused runs once for all elements, so Python cannot choose by one, as in `if`, `and`, "
            "`not` and max; write ops.where(condition, yes, no), also for a bool or an int of the call"
        )


class _Element:
    """An element in a loop: an argument or result of these operations. It also has Python's operators."""

    def __init__(self, operations: _Operations, value: Any) -> None:
        self.operations, self.value = operations, value

    def __bool__(self) -> bool:
        self.operations.refuse_condition()


_OPERATORS = {
    "neg": "neg", "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "mod": "mod", "pow": "pow",
    "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne", "invert": "bitwise_not",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
for _python, _name in _OPERATORS.items():
    setattr(_Element, f"__{_python}__", lambda *args, _name=_name: getattr(args[0].operations, _name)(*args))
    setattr(_Element, f"__r{_python}__", lambda x, y, _name=_name: getattr(x.operations, _name)(y, x))


def _rounded(ops: Any, x: Any, dtype: torch.dtype) -> Any:
    """Return an element rounded to a dtype. A 16-bit element is returned as float32, which loops compute with."""
    if dtype not in SIXTEEN_BITS:
        return ops.to_dtype(x, dtype)
    # Without use_compute_types=False, which torch 2.13 and later heed, Inductor would drop the rounding.
    return ops.to_dtype(ops.to_dtype(x, dtype, use_compute_types=False), torch.float32)


def _keeps_bits(config: Any, device: torch.device, dtypes: set[Any]) -> bool:
    return (
        device.type == "cpu"
        and platform.machine() == "x86_64"
        and (torch.__version__ >= "2.13" or dtypes.isdisjoint(SIXTEEN_BITS))
        and config.cpu_backend == "cpp"
        and config.cpp.enable_floating_point_contract_flag == "off"
    )


def _is_near_a_loop(call: Node) -> bool:
    """Return whether a call takes its arguments from a loop, or a loop takes its result; views are skipped."""
    near, seen = [*call.all_input_nodes, *call.users], {call}
    for node in near:
        if node in seen or node.op != "call_function":
            continue
        seen.add(node)
        if node.target is getitem or private.is_view(node.target):
            near += [*node.all_input_nodes, *node.users]
        elif node.target in _lowered_ops or not _LOOPS.isdisjoint(getattr(node.target, "tags", ())):
            return True
    return False
