"""In what Inductor compiles, an operator whose row has ``fused`` is a part of the loop that its neighbours are in.

It stays a call of its kernel where it has no neighbours, because Inductor stores large results through the cache, and
where the bits would be others: on processors whose vectors Inductor knows no fused multiply-add of, on GPUs, and where
the compiler of C++ may contract a product and a sum. In 16 bits it rounds what it reads and what it returns, where
Inductor by itself rounds only what a loop stores; before torch 2.13 it stays a call there.

With ``fused="formula"`` the bits may be others, and Inductor has the formula in place of the operator everywhere.

An operator that writes comes here as one that returns what the tensors become (functional.py). Where it is not a part
of a loop, Inductor has a call of the one that writes in its place: in place, if nobody reads the memory that it
overwrites, or else into a copy (in_place.py).
"""

from __future__ import annotations

import hashlib
import importlib
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import getitem
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Node

from . import contract, in_place
from . import torch_private as private
from ._library import namespace
from .formula import checked_formula
from .operator import TABLE, Form, complete

_DTYPES = {"int": torch.int64, "bool": torch.bool}
_LOOPS = {torch.Tag.pointwise, torch.Tag.reduction}

_waiting: list[tuple[Any, Form]] = []  # operators that return their results, until Inductor is imported
_lowered_ops: set[Any] = set()


def register(form: Form) -> None:
    """Remember that an operator is to be lowered."""
    if form.kind == "functional" and not form.writes:
        _waiting.append((form.op, form))


def register_functional(op: Any, form: Form) -> None:
    """Remember that an operator which returns what ``form`` writes is to be lowered."""
    _waiting.append((op, form))


def register_waiting() -> None:
    """Register lowerings, if Inductor was imported; each fake kernel calls this, and so whatever Inductor compiles."""
    if torch.compiler.is_compiling() and any(form.promises.fused == "formula" for _, form in _waiting):
        # Once Inductor has a program it copies its decompositions. A new thread has none of the modes of the tracing.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(importlib.import_module, "torch._inductor.lowering").result()
    inductor = private.inductor() if _waiting else None
    if inductor is None:
        return
    for of_form, form in _waiting:
        for op in {of_form} if form.writes else {of_form, form.made.without_autocast or of_form}:
            if form.writes:
                call = in_place.lowered(inductor, op, form)
            elif form.promises.fused is not None:
                call = inductor.kernel(op, add_to_fallback_set=False)
            else:
                call = inductor.lowerings.get(op) or _called(inductor, op, form)
            if form.promises.fused == "formula":
                # If Inductor has compiled before, it has copied the first table. A program that was compiled then, or
                # exported elsewhere, calls the kernel.
                for table in (inductor.decompositions, inductor.decompositions_in_use()):
                    table[op] = _decomposed(op, form)
            elif form.promises.fused is not None:
                call = _lowered(inductor, op, form, call)
                _lowered_ops.add(op)
            inductor.lowerings[op] = call
    _waiting.clear()  # now, for another thread may be here, too


def tag_caches(package: Path, operators: Any, schemas: Sequence[str]) -> None:
    """Let the caches of compiled programs know the Python of a package, what C++ declared, and all schemas.

    They know an operator by its name alone. A functor's derivative is declared where it is a number.
    """
    python = [file.read_bytes() for file in sorted(package.rglob("*.py"))]
    digest = hashlib.sha256(b"".join([*python, repr((operators, schemas)).encode()])).hexdigest()
    torch.compiler.config.cache_key_tag += f" {namespace}-{digest[:16]}"


def _decomposed(op: Any, form: Form) -> Callable[..., Any]:
    formula: Any = form.promises.formula
    compute, reads = checked_formula(form.op, formula, len(form.of_results))
    names = private.argument_names(op)

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        shape = contract.check(form, args)
        likes = [SimpleNamespace(shape=shape, dtype=dtype) for dtype in form.result_dtypes(args)]
        given = dict(zip(names, complete(op, args, kwargs), strict=True))
        return _returned(form, compute(likes, *(given[x] for x in reads)))

    return decomposed


def _returned(form: Form, results: Sequence[Any]) -> Any:
    return [*results] if form.writes else results[0] if len(results) == 1 else results


def _called(inductor: Any, op: Any, form: Form) -> Callable[..., Any]:
    """Return the call that Inductor makes by itself where an operator has no lowering; in flex_attention, an error."""
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
        # The functions that flex_attention is given are compiled into its loop, where nothing can be called.
        if not isinstance(inductor.now.graph, inductor.subgraph):
            call = inductor.now.graph.current_node
            if not (_keeps_bits(inductor.config, device, {dtype, *own_dtypes}) and _is_near_a_loop(call)):
                return call_kernel(*args, **kwargs)
        given = complete(op, args, kwargs)
        read = inductor.broadcast(*form.given(args).values())
        load = {form.inputs[x]: y.make_loader() for x, y in zip(form.given(args), read, strict=True)}
        of_number = torch.float32 if _has_16_bits(dtype) else dtype
        of = dict.fromkeys(load, dtype) | own
        if form.tensor_numbers:
            load |= {place: _everywhere(args[place].make_loader()) for place in numbers}
        result_dtypes = [own_dtype or dtype for own_dtype in form.of_results]

        def element(place_of_result: int, index: Any) -> Any:
            values = [
                _rounded(ops, load[place](index), of.get(place, of_number))
                if place in load
                else None
                if kind == "Tensor?"
                else ops.constant(given[place], _DTYPES.get(kind, of_number))
                for place, kind in enumerate(form.kinds.values())
            ]
            operations = _Operations(ops, of_number)
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


class _Operations:
    """Inductor's operations on elements of a dtype. A number of Python is one, too, which Inductor has no rule for."""

    def __init__(self, ops: Any, dtype: torch.dtype) -> None:
        self._ops, self._dtype = ops, dtype

    def __getattr__(self, name: str) -> Callable[..., _Element]:
        operation = getattr(self._ops, name)
        return lambda *args, **kwargs: _Element(self, operation(*map(self.unwrapped, args), **kwargs))

    def unwrapped(self, x: Any) -> Any:
        is_number = type(x) in (int, float)
        return x.value if isinstance(x, _Element) else self._ops.constant(x, self._dtype) if is_number else x


class _Element:
    """What these operations take, and make. Python's operators are among them."""

    def __init__(self, operations: _Operations, value: Any) -> None:
        self.operations, self.value = operations, value


_OPERATORS = {
    "neg": "neg", "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "mod": "mod", "pow": "pow",
    "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne", "invert": "bitwise_not",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
for _python, _name in _OPERATORS.items():
    setattr(_Element, f"__{_python}__", lambda *args, _name=_name: getattr(args[0].operations, _name)(*args))
    setattr(_Element, f"__r{_python}__", lambda x, y, _name=_name: getattr(x.operations, _name)(y, x))


def _has_16_bits(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize == 2


def _rounded(ops: Any, x: Any, dtype: torch.dtype) -> Any:
    """Return an element with the values of a dtype; those of 16 bits as float32, in which they are computed with."""
    if not _has_16_bits(dtype):
        return ops.to_dtype(x, dtype)
    # Without the argument, which torch 2.13 and later heed, Inductor takes what was rounded for what it was before.
    return ops.to_dtype(ops.to_dtype(x, dtype, use_compute_types=False), torch.float32)


def _everywhere(load: Callable[..., Any]) -> Callable[..., Any]:
    return lambda index: load([])


def _keeps_bits(config: Any, device: torch.device, dtypes: set[Any]) -> bool:
    return (
        device.type == "cpu"
        and platform.machine() == "x86_64"
        and (torch.__version__ >= "2.13" or not any(map(_has_16_bits, dtypes)))
        and config.cpu_backend == "cpp"
        and config.cpp.enable_floating_point_contract_flag == "off"
    )


def _is_near_a_loop(call: Node) -> bool:
    """Return whether Inductor makes a loop of what gives the arguments of a call, or takes its result, past views."""
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
