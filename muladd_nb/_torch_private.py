"""Every private name of torch that this package uses, in one place.

None has a public counterpart in every torch of the supported range. A torch that drops one fails here, at
import, with its name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import _C, Tensor
from torch._functorch.autograd_function import custom_function_call_vmap_helper
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch._functorch.utils import enable_single_level_autograd_function as record_at_this_level
from torch._ops import OpOverload, _OpNamespace
from torch.autograd import forward_ad, profiler
from torch.autograd.function import _SingleLevelFunction as SingleLevelFunction
from torch.nested._internal.nested_tensor import NestedTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_wrapper_subclass

__all__ = [
    "BelowAutograd",
    "NestedTensor",
    "OpOverload",
    "SingleLevelFunction",
    "after_autograd",
    "argument_names",
    "arguments",
    "autocasts",
    "differentiating",
    "entry_point",
    "has_kernel",
    "has_tangent",
    "in_modes_of_now",
    "is_tracing",
    "is_wrapper_subclass",
    "jagged_like",
    "jagged_values",
    "may_be_dual",
    "names_in_every_namespace",
    "namespaces",
    "needs_recording",
    "parse_schema",
    "primal",
    "record_at_this_level",
    "record_tangents",
    "redispatch",
    "results",
    "transforms_active",
    "unobserved",
    "vmap_kernel",
    "without_autocast",
]

# The dispatch keys below autograd.
after_autograd = _C._after_autograd_keyset

# A context in which operators are dispatched below autograd.
BelowAutograd = _C._AutoDispatchBelowAutograd

# Is a torch.func transform (grad, jvp, vmap ...) running?
transforms_active = _C._are_functorch_transforms_active

# Is torch.jit.trace running?
is_tracing = _C._is_tracing

# Is autocast enabled for any device?
autocasts = _C._is_any_autocast_enabled

# torch's own parser of schemas.
parse_schema = _C.parse_schema

_is_grad_enabled = torch.is_grad_enabled
_any_requires_grad = _C._any_requires_grad
_dispatch_modes = _C._len_torch_dispatch_stack
_function_modes = _C._len_torch_function_stack
_unpack_dual = torch._VF._unpack_dual  # type: ignore[attr-defined]


def differentiating() -> bool:
    """Return whether a torch.func transform is running, or a level of ``torch.autograd.forward_ad`` is open."""
    return transforms_active() or forward_ad._current_level >= 0


def may_be_dual() -> bool:
    """Return whether a tensor can be a dual one.

    A graph that torch.compile captured opens its level of forward-mode AD in C++, which Python cannot ask;
    but it runs under a dispatch mode then.
    """
    return transforms_active() or forward_ad._current_level >= 0 or _dispatch_modes() > 0


def unobserved() -> bool:
    """Return whether no one sees which operators are called: no transform, level of forward-mode AD, mode or profiler.

    Nor ``torch.jit.trace``, which compares where calls come from.
    """
    return not (
        transforms_active()
        or forward_ad._current_level >= 0
        or _dispatch_modes()
        or _function_modes()
        or is_tracing()
        or profiler._is_profiler_enabled
    )


def needs_recording(args: tuple[Any, ...]) -> bool:
    """Return whether autograd, or a transform, may have something to record for an operator on ``args``."""
    return (
        (_is_grad_enabled() and _any_requires_grad(*args))
        or transforms_active()
        or forward_ad._current_level >= 0
        or _dispatch_modes() > 0
    )


def entry_point(op: Any) -> Any:
    """Return what ``op.__call__`` calls: without the step through Python, 0.2 us a call."""
    return op._op


def primal(tensor: Tensor) -> Tensor:
    """Return ``tensor`` without its tangent of this level of forward-mode AD."""
    # A tensor of inference mode has none; taken apart outside of it, while torch.func.linearize traces, it is an error.
    value: Tensor = tensor if tensor.is_inference() else _unpack_dual(tensor, level=0)[0]
    return value


def has_tangent(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is dual at this level of forward-mode AD. Tracing records this call."""
    return _unpack_dual(tensor, level=0)[1] is not None


def in_modes_of_now(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` such that what it calls is recorded as it would be now.

    The forward of an ``autograd.Function`` records nothing. The levels below it must record what they did, and no more.
    """
    modes = _is_grad_enabled(), _C._is_fwd_grad_enabled()

    def call(*args: Any) -> Any:
        with torch.set_grad_enabled(modes[0]), forward_ad._set_fwd_grad_enabled(modes[1]):
            return function(*args)

    return call


def record_tangents() -> AbstractContextManager[None]:
    """Turn forward-mode AD on, as it was where the ``jvp`` of an ``autograd.Function`` is called for."""
    return forward_ad._set_fwd_grad_enabled(True)


def without_autocast() -> AbstractContextManager[object]:
    """Dispatch below autocast."""
    keys = _C.DispatchKeySet(_C.DispatchKey.AutocastCPU) | _C.DispatchKeySet(_C.DispatchKey.AutocastCUDA)
    guard: AbstractContextManager[object] = _C._ExcludeDispatchKeyGuard(keys)
    return guard


def redispatch(op: Any) -> Any:
    """Return what ``op.redispatch`` calls: without the step through Python, 0.3 us a call."""
    return op._handle.redispatch_boxed


def has_kernel(op: Any, dispatch_key: str) -> bool:
    """Return whether an operator has a kernel for a dispatch key."""
    return _C._dispatch_has_kernel_for_dispatch_key(op.name(), dispatch_key)


def arguments(op: Any) -> Any:
    """Return the arguments of an operator, in the order of its schema."""
    return op._schema.arguments


def results(op: Any) -> Any:
    """Return the results of an operator, in the order of its schema."""
    return op._schema.returns


def argument_names(op: Any) -> list[str]:
    """Return the names of the arguments of an operator, in the order of its schema."""
    return [argument.name for argument in arguments(op)]


def jagged_values(nested: Any) -> Tensor:
    """Return the elements of a nested tensor, packed in one tensor, which is the memory itself."""
    return nested._values


def jagged_like(nested: Any, values: Tensor) -> Tensor:
    """Return a nested tensor of the structure of ``nested`` with the elements ``values``."""
    return NestedTensor(
        values,
        offsets=nested.offsets(),
        lengths=nested.lengths(),
        _ragged_idx=nested._ragged_idx,
        _metadata_cache=dict(nested._metadata_cache),
    )


def vmap_kernel(rule: Callable[..., Any], op: Callable[..., Any]) -> Callable[..., Any]:
    """Return what ``torch.library.register_vmap`` registers for the batching rule ``rule`` of ``op``."""

    def kernel(*args: Any) -> Any:
        interpreter: Any = retrieve_current_functorch_interpreter()
        return custom_function_call_vmap_helper(interpreter, rule, op, *args)

    return kernel


def namespaces() -> set[str]:
    """Return the namespaces that have operators, and what ``torch.ops`` itself has by name."""
    return {name.partition("::")[0] for name in _C._dispatch_get_all_op_names()} | _attributes(type(torch.ops)())


def names_in_every_namespace() -> set[str]:
    """Return what every namespace of ``torch.ops`` has by name."""
    return _attributes(_OpNamespace(""))


def _attributes(module: Any) -> set[str]:
    return {*dir(type(module)), *vars(module)}  # dir() of a module is its own only
