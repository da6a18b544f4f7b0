"""The private names of torch that the layer uses, in one table, with what is lost if a torch lacks one.

A name is here only if some supported torch has no public API with the same effect at an acceptable cost. If a name
is missing, importing the package warns once. Then the layer does without it, or raises an error in calls that would be
wrong. To use another name, add a line to the table.
"""

from __future__ import annotations

import dataclasses
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import reduce, wraps
from operator import attrgetter, or_
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar
from unittest import mock

import torch
from torch import Tensor
from torch.autograd import forward_ad, profiler
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from .. import _C
from .system import IS_TESTED

_Callable = TypeVar("_Callable", bound=Callable[..., Any])
names: dict[str, tuple[Capability, ...]] = {}  # every name that is looked up, as `module:name.name`
_missing: list[str] = []
_package = __name__.partition(".")[0]
_version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
NEWEST = (2, 15)  # the newest torch that the tests ran on
_asks_cpp = _version <= NEWEST and IS_TESTED and _C.wants_fast_path()  # outside of the stable ABI


@dataclasses.dataclass(frozen=True)
class Capability:
    """A feature that needs private names of torch (``what``), and what happens to it without them (``becomes``)."""

    what: str
    becomes: str

    def lacking(self) -> str:
        """Return why the feature is lost, for an error message, or an empty string if it is not."""
        lost = ", ".join(_dotted(path) for path in _missing if self in names[path])
        return f"{self.what} needs {lost}, which torch {torch.__version__} lacks" if lost else ""

    def refusal(self, operator: str) -> Callable[..., NoReturn] | None:
        """Return a function that raises ``RuntimeError`` for an operator, or None if the feature is not lost."""
        reason = self.lacking()

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise RuntimeError(f"{operator}: {reason}; use another torch, or a newer {_package}")

        return refuse if reason else None


def _find(path: str, *needed_for: Capability, otherwise: Any = None, field: bool = False) -> Any:
    """Return the object at ``module:name.name``. If there is none, record that, and return ``otherwise``.

    A ``field`` is looked up in the annotations of its class, because only the objects of the class have it.
    """
    names[path] = needed_for
    of, _, last = path.rpartition(".")
    try:
        return pkgutil.resolve_name(of).__annotations__[last] if field else pkgutil.resolve_name(path)
    except (ImportError, AttributeError, KeyError):
        if not any(path.startswith(f"{other}.") for other in _missing):
            _missing.append(path)
        return otherwise


def _getter(of: str, attribute: str, *needed_for: Capability, otherwise: Any = None, field: bool = False) -> Any:
    """Return a function that gets an attribute of objects such as the one at ``of``, or of the class at ``of``."""
    found = _find(f"{of}.{attribute}", *needed_for, field=field)
    return otherwise if found is None else attrgetter(attribute)


def _address(symbol: str, *needed_for: Capability) -> int:
    """Return the address of a function of torch's C++, or 0.

    It is 0 if the fast path is turned off, or on a torch or a system that the tests did not run on. There, the
    function may exist and still not work: it takes the address of a C++ tensor, and the stable ABI does not promise
    that a handle is one.
    """
    if not _asks_cpp:
        return 0
    names[path := f"libtorch:{symbol}"] = needed_for
    address = _C.address(symbol)
    if not address:
        _missing.append(path)
    return address


def missing() -> list[str]:
    """Return the names that this torch lacks, each with the features that are lost."""
    return [f"{_dotted(path)} ({'; '.join(f'{x.what} {x.becomes}' for x in names[path])})" for path in _missing]


def _dotted(path: str) -> str:
    return path.replace(":", ".")


# ---- The table: each capability with its names

# These tell whether anything observes a call. If one is missing, we assume that something does, and take the slow path.
# torch.jit.is_tracing is public, but takes 60 ns longer, a twenty-fifth of a small call.
CALLS = Capability("a call", "takes longer")
_is_tracing = _find("torch._C:_is_tracing", CALLS, otherwise=lambda: torch.jit.is_tracing())  # type: ignore[attr-defined]
transforms_active = _find(  # is a torch.func transform (grad, jvp, vmap ...) running?
    "torch._C:_are_functorch_transforms_active", CALLS, otherwise=lambda: not _is_tracing() and _Function.is_refused()
)
dispatch_modes = _find("torch._C:_len_torch_dispatch_stack", CALLS, otherwise=lambda: 1)
_function_modes = _find("torch._C:_len_torch_function_stack", CALLS, otherwise=lambda: 1)
autocasts = _find("torch._C:_is_any_autocast_enabled", CALLS, otherwise=lambda: True)  # for any device
is_inference_mode_enabled = torch.is_inference_mode_enabled  # public, but C++ looks for it here
_profiler: Any = profiler
if _find("torch.autograd.profiler:_is_profiler_enabled", CALLS) is None:
    _profiler = SimpleNamespace(_is_profiler_enabled=True)
_forward_ad: Any = forward_ad  # its _current_level is the innermost level of forward-mode AD
if _find("torch.autograd.forward_ad:_current_level", CALLS) is None:
    _forward_ad = SimpleNamespace(_current_level=0)

# Functions of torch's C++ for the same checks and others: calling Python's would take half of a small call (measured).
requires_grad = _address("_ZNK3c1010TensorImpl13requires_gradEv", CALLS)  # c10::TensorImpl::requires_grad()
function_modes = _address("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", CALLS)  # the number of active modes
has_callbacks = _address("_ZN2at12hasCallbacksEv", CALLS)  # whether a profiler or another observer is active
bump_version = _address("_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", CALLS)  # counts a write
wrap = _address("_Z16THPVariable_WrapON2at10TensorBaseE", CALLS)  # THPVariable_Wrap(TensorBase&&): makes an object
# The thread-local variable c10::impl::raw_local_dispatch_key_set: the dispatch keys that a thread includes and
# excludes.
_KEYS = "_ZN3c104impl26raw_local_dispatch_key_setE"
dispatch_keys = _KEYS if _address(_KEYS, CALLS) else ""
# c10::impl::OperatorEntry::hasKernelForDispatchKey(DispatchKey) and kernelForDispatchKey(DispatchKey)
has_kernel = _address("_ZNK3c104impl13OperatorEntry23hasKernelForDispatchKeyENS_11DispatchKeyE", CALLS)
kernel = _address("_ZNK3c104impl13OperatorEntry20kernelForDispatchKeyENS_11DispatchKeyE", CALLS)
# torch::translate_exception_to_python(const std::exception_ptr&): sets the Python error for an exception of C++
set_error = _address("_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE", CALLS)
# A tensor in which C++ looks for the address of its C++ tensor. From torch 2.14 on, the stable ABI converts both ways.
example = torch.empty(0) if _asks_cpp else None
from_object, to_object = map(_C.address, ("torch_tensor_from_pyobject", "torch_tensor_to_pyobject"))
# `op.redispatch` is a Python function that calls this. Calling it directly saves 0.3 us.
redispatch = _getter("torch:ops.aten.mul.Tensor", "_handle.redispatch_boxed", CALLS, otherwise=attrgetter("redispatch"))
# The public function for a schema takes 60 us, and drops defaults of arguments that stand before one without a default.
_schema = _getter("torch:ops.aten.mul.Tensor", "_schema", CALLS, otherwise=lambda op: _schema_of_fx(op))
# The public functions look for a mode of torch.export before they call these, which takes four times as long.
make_dual = _find("torch:_make_dual", CALLS, otherwise=forward_ad.make_dual)
unpack_dual = _find("torch:_unpack_dual", CALLS, otherwise=forward_ad.unpack_dual)

# The version counter of a tensor. Without it, a write may be counted once more, which is harmless.
WRITES = Capability("a write", "may be counted twice")
version = _getter("torch._C:TensorBase", "_version", WRITES, otherwise=lambda tensor: None)

# Whether two tensors are views of one memory, also while writes are traced.
VIEWS = Capability("a compiled write to two views of one memory", "is not refused")
is_alias = _find("torch._C:_is_alias_of", VIEWS, otherwise=lambda x, y: x is y)

# An autograd.Function of the kind that torch.func makes for one level, and the switch that lets it run there.
# torch.func refuses the public kind here, because that kind knows no levels.
TRANSFORMS = Capability("a derivative under torch.func", "is refused")
FORWARD_MODE = Capability("a tensor with a tangent", "is refused")
SingleLevelFunction = _find(
    "torch.autograd.function:_SingleLevelFunction", TRANSFORMS, otherwise=torch.autograd.Function
)
_node_of = _getter("torch.autograd.function:Function", "_backward_cls", CALLS)
record_at_this_level = _find("torch._functorch.utils:enable_single_level_autograd_function", TRANSFORMS)
_is_fwd_grad_enabled = _find("torch._C:_is_fwd_grad_enabled", TRANSFORMS)
# A context that turns forward-mode AD on or off.
record_tangents = _find("torch.autograd.forward_ad:_set_fwd_grad_enabled", TRANSFORMS, FORWARD_MODE)

# The dispatch keys of a tensor, which tell whether it is plain.
dispatch_keys_of = _find("torch._C:_dispatch_keys", CALLS, FORWARD_MODE)
keys_of_example = dispatch_keys_of(example).raw_repr() if dispatch_keys_of and example is not None else 0
_DispatchKeySet = _find("torch._C:DispatchKeySet", CALLS)
_dump = _find("torch._C:_dispatch_dump", CALLS)
_key = _find("torch._C:_dispatch_key_parse", CALLS)
_PRE_DISPATCH = _key and _key("PreDispatch")
_is_included = _find("torch._C:_dispatch_tls_is_dispatch_key_included", CALLS, otherwise=lambda key: True)
_has_kernel_at = _find("torch._C:_dispatch_has_kernel_for_dispatch_key", CALLS)
handle_of = _getter("torch:ops.aten.mul.Tensor", "_handle", CALLS)

# Compiled autograd calls this on every function, but single-level functions do not have it.
COMPILED_AUTOGRAD = Capability("a backward under compiled autograd", "is refused")
compiled_autograd_key = _find("torch.autograd.function:Function._compiled_autograd_key", COMPILED_AUTOGRAD)

# The schemas of all operators, which become a part of the keys of cached programs.
CACHES = Capability("a cached program", "is not compiled again when a schema has changed")
_operator_names = _find("torch._C:_dispatch_get_all_op_names", CACHES, otherwise=list)
_schemas_of = _find("torch._C:_jit_get_schemas_for_operator", CACHES, otherwise=lambda name: [])

# How Dynamo is told what not to compile.
COMPILED_IN_PART = Capability("an eager part of a compiled program", "takes longer")
_set_strategy = _find("torch._C._dynamo.eval_frame:set_code_exec_strategy", COMPILED_IN_PART)
_Strategy = _find("torch._C._dynamo.eval_frame:_FrameExecStrategy", COMPILED_IN_PART)
_Action = _find("torch._C._dynamo.eval_frame:_FrameAction", COMPILED_IN_PART)

JAGGED = Capability("a jagged nested tensor", "is refused")
COMPILED_LENGTHS = Capability("a compiled jagged tensor with lengths", "is refused")
_JAGGED = "torch.nested._internal.nested_tensor:NestedTensor"
NestedTensor = _find(_JAGGED, JAGGED, COMPILED_LENGTHS)
# The elements of a jagged tensor, packed in one tensor that shares its memory.
jagged_values = _getter(_JAGGED, "_values", JAGGED, COMPILED_LENGTHS, field=True)
ragged_dim = _getter(_JAGGED, "_ragged_idx", JAGGED, COMPILED_LENGTHS, field=True)
_metadata_cache = _getter(_JAGGED, "_metadata_cache", JAGGED, COMPILED_LENGTHS, field=True)
# Raises an error when the program runs, not when it is compiled.
assert_later = _find("torch:_assert_async", COMPILED_LENGTHS)

# Whether a tensor is a view of another. A tangent that may be one is copied.
is_view_of_tensor = _find("torch._C:TensorBase._is_view", CALLS, otherwise=lambda tensor: True)

# Makes a kernel from a batching rule. torch.library.register_vmap does the same, but not for an out variant.
VMAP_OF_OUT = Capability("an out variant under vmap", "is refused")
_interpreter = _find("torch._functorch.pyfunctorch:retrieve_current_functorch_interpreter", VMAP_OF_OUT)
_vmap_helper = _find("torch._functorch.autograd_function:custom_function_call_vmap_helper", VMAP_OF_OUT)

BATCHED_NUMBERS = Capability("a number that vmap batches", "raises an error of torch's")
is_batched = _find("torch._C._functorch:is_batchedtensor", BATCHED_NUMBERS, otherwise=lambda x: False)

if _missing:
    warnings.warn(
        f"{_package}: torch {torch.__version__} lacks {', '.join(missing())}; everything else works. "
        f"A newer {_package} may know this torch.",
        RuntimeWarning,
        stacklevel=2,
    )

# ---- Helpers that use these names

OpOverload = type(torch.ops.aten.mul.Tensor)


def _below(key: str) -> Callable[[Any], Any]:
    """Return a function that removes dispatch keys from a set, down to and including those whose names contain ``key``.

    A kernel at such a key dispatches to the rest.
    """
    known: dict[int, Any] = {}

    def below(keyset: Any) -> Any:
        keys: int = keyset.raw_repr()
        if keys not in known:
            reached = False
            while key in str(highest := keyset.highestPriorityTypeId()) or not reached:
                reached = reached or key in str(highest)
                keyset = keyset.remove(highest)
            known[keys] = keyset
        return known[keys]

    return below


below_autograd = _below("Autograd")
below_version_counter = _below("ADInplaceOrView")  # where writes are counted


class _Function(torch.autograd.Function):
    """An ordinary autograd function. torch refuses it while a transform is running. (Tracing would record it.)"""

    @staticmethod
    def forward(ctx: Any) -> None:
        pass

    @classmethod
    def is_refused(cls) -> bool:
        try:
            cls.apply()
        except RuntimeError:
            return True
        return False


def _is_pre_dispatch() -> bool:
    """Return whether make_fx(pre_dispatch=True) runs, also in a backward pass. True if torch cannot tell."""
    return _PRE_DISPATCH is None or _is_included(_PRE_DISPATCH)


# If all these functions and attributes have these values, nothing observes which operators are called: there is no
# transform, level of forward-mode AD, mode, profiler or torch.jit.trace. A thread's `dispatch_keys` tell what the
# functions of UNOBSERVED_KEYS do, so these are called only if the keys cannot be read.
UNOBSERVED_KEYS = [
    (transforms_active, None, False),
    (dispatch_modes, None, 0),
    (_is_pre_dispatch, None, False),
    (_is_tracing, None, False),
]
UNOBSERVED = [
    *([] if function_modes else [(_function_modes, None, 0)]),
    *([] if has_callbacks else [(_profiler, "_is_profiler_enabled", False)]),
    (_forward_ad, "_current_level", -1),
]


def dispatch(op: str, device: str) -> tuple[int, int, Any, dict[str, int]] | None:
    """Return how the dispatcher calls an operator on plain tensors of a type of device.

    The result has the dispatch keys of a plain tensor, those of one that was made in inference mode, the operator's
    handle, and the keys whose kernels may be called. It is None if that is not known, or if another kernel for the
    device was registered before this package was imported.
    """
    if None in (dispatch_keys_of, _DispatchKeySet, _key, _dump, handle_of):
        return None
    if f"{device} (inactive)" in _dump(f"{_package}::{op}"):
        return None
    inference = bits_of(device, f"Autocast{device}")
    normal = inference | bits_of(f"Autograd{device}", "ADInplaceOrView")
    keys = "BackendSelect", "ADInplaceOrView", "Autograd", f"Autograd{device}", device
    return normal, inference, handle_of(overload(_package, op)), numbers_of(*keys)


def redispatch_in_cpp(op: Any) -> int:
    """Return the address of ``at::_ops::*::redispatch`` for an operator of ATen whose arguments are tensors, or 0."""
    qualified = op.name().removeprefix("aten::").replace(".", "_")
    more = "S6_" * (len(arguments(op)) - 1)
    symbol = f"_ZN2at4_ops{len(qualified)}{qualified}10redispatchEN3c1014DispatchKeySetERKNS_6TensorE{more}"
    return _C.address(symbol) if _asks_cpp and None not in (_DispatchKeySet, _key, handle_of) else 0


def has_kernel_for(op: Any, key: str) -> bool | None:
    """Return whether an operator has a kernel for a dispatch key, or None if this torch cannot tell."""
    return bool(_has_kernel_at(op.name(), key)) if _has_kernel_at else None


def numbers_of(*keys: str) -> dict[str, int]:
    """Return the numbers of dispatch keys, by their names."""
    return {key: int(_key(key)) for key in keys}


def bits_of(*keys: str) -> int:
    """Return a set of dispatch keys as C++ represents it."""
    return reduce(or_, (_DispatchKeySet(_key(key)).raw_repr() for key in keys))


def differentiating() -> bool:
    """Return whether a torch.func transform is running, or a level of ``torch.autograd.forward_ad`` is open."""
    return transforms_active() or _forward_ad._current_level >= 0


def may_be_dual() -> bool:
    """Return whether a tensor may be a dual one.

    A graph that torch.compile captured opens its level of forward-mode AD in C++, where Python cannot see it. But such
    a graph runs under a dispatch mode.
    """
    return differentiating() or dispatch_modes() > 0


def traces() -> bool:
    """Return whether calls are being traced into a program that is compiled."""
    return torch.compiler.is_dynamo_compiling() or (dispatch_modes() > 0 and get_proxy_mode() is not None)


def is_traced(args: tuple[Any, ...]) -> bool:
    """Return whether a call on ``args`` is traced into a compiled program unchanged."""
    return (
        traces()
        and not transforms_active()
        and not any(isinstance(x, Tensor) and hasattr(x, "__tensor_flatten__") for x in args)  # contains other tensors
    )


def decomposes(op: Any) -> bool:
    """Return whether the current tracing replaces an operator, as Inductor replaces one by its formula."""
    mode: Any = get_proxy_mode()
    if hasattr(mode, "decomposition_table"):  # since torch 2.13
        return op in mode.decomposition_table
    table = getattr(proxy_tensor, "CURRENT_DECOMPOSITION_TABLE", ())
    return mode is not None and op in (table.get({}) if isinstance(table, ContextVar) else table)


def skip_in_dynamo(function: _Callable) -> _Callable:
    """Tell Dynamo not to compile a function that the dispatcher or autograd calls, nor the functions that it calls.

    Otherwise Dynamo would compile it when a partly compiled program calls it, and warn of what it cannot compile.
    """
    if hasattr(function, "__code__") and not COMPILED_IN_PART.lacking():  # Dynamo does not trace functions in C
        _set_strategy(function.__code__, _Strategy(_Action.SKIP, _Action.SKIP))
    return function


def call_directly(function: Any) -> None:
    """Let autograd call the ``backward`` of a function directly. A Python method that looks it up would take 0.3 us."""
    if _node_of:
        _node_of(function).apply = function.backward


def is_recorded(args: tuple[Any, ...]) -> bool:
    """Return whether autograd records an operator on ``args``."""
    if torch.is_grad_enabled():
        for x in args:
            if isinstance(x, Tensor) and x.requires_grad:
                return True
    return False


def primal(tensor: Tensor) -> Tensor:
    """Return ``tensor`` without its tangent of this level of forward-mode AD."""
    # See has_tangent.
    value: Tensor = tensor if tensor.is_inference() else unpack_dual(tensor, level=0)[0]
    return value


def has_tangent(x: Any) -> bool:
    """Return whether ``x`` is a tensor that is dual at this level of forward-mode AD. Tracing records this call."""
    # torch has no dual jagged tensors, and unpack_dual does not accept them. An inference tensor has no tangent, and
    # outside of inference mode unpack_dual raises an error for it under a dispatch mode or torch.func.linearize.
    if not isinstance(x, Tensor) or x.layout is torch.jagged or x.is_inference():
        return False
    return unpack_dual(x, level=0)[1] is not None


def dispatch_alike(tensors: Iterable[Tensor]) -> bool:
    """Return whether calls on these tensors go to the same kernels."""
    return transforms_active() or len({dispatch_keys_of(x).raw_repr() for x in tensors}) == 1


def with_current_grad_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, wrapped so that it runs under the grad modes that are active now.

    In the forward of an ``autograd.Function`` torch turns recording off. The levels below must record as they did
    before.
    """
    modes = torch.is_grad_enabled(), _is_fwd_grad_enabled()

    def call(*args: Any) -> Any:
        with torch.set_grad_enabled(modes[0]), record_tangents(modes[1]):
            return function(*args)

    return call


def is_of_torch_func(error: Exception) -> bool:
    """Return whether an error was raised in a call of ``torch.func`` that began inside of the ``try``."""
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_globals.get("__name__") in ("torch._functorch.apis", "torch._functorch.eager_transforms"):
            return True
        trace = trace.tb_next
    return False


def overload(namespace: str, name: str) -> Any:
    """Return the overload with a name such as ``f`` or ``f.tag``."""
    packet, _, tag = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), tag or "default")


def arguments(op: Any) -> Any:
    """Return the arguments of an operator, in the order of its schema."""
    return _schema(op).arguments


def results(op: Any) -> Any:
    """Return the results of an operator, in the order of its schema."""
    return _schema(op).returns


def is_view(op: Any) -> bool:
    """Return whether an operator returns a view of an argument and does not write to it."""
    aliases = [result.alias_info for result in results(op)] if isinstance(op, OpOverload) else []
    return any(alias is not None and not alias.is_write for alias in aliases)


def is_mutable(op: Any) -> bool:
    """Return whether ``op`` is an operator that writes to an argument."""
    return isinstance(op, OpOverload) and any(x.alias_info and x.alias_info.is_write for x in arguments(op))


def schema(op: Any) -> str:
    """Return the schema of an operator as text."""
    return str(_schema(op))


def schemas(namespace: str) -> list[str]:
    """Return the schema of every operator of a namespace."""
    packets = {name.partition(".")[0] for name in _operator_names() if name.startswith(f"{namespace}::")}
    return sorted(str(schema) for packet in packets for schema in _schemas_of(packet))


def argument_names(op: Any) -> list[str]:
    """Return the names of the arguments of an operator, in the order of its schema."""
    return [argument.name for argument in arguments(op)]


def positional_names(op: Any) -> list[str]:
    """Return the names of the arguments that may be given by position."""
    return [argument.name for argument in arguments(op) if not argument.kwarg_only]


def _schema_of_fx(op: Any) -> Any:
    from torch.fx.operator_schemas import get_signature_for_torch_op

    _, schemas = get_signature_for_torch_op(op, return_schemas=True)
    return schemas[0] if schemas else None


# The parts of Inductor that lowerings use. Inductor takes seconds to import, so we do not import it for them.
_INDUCTOR = {
    "TensorBox": "torch._inductor.ir:TensorBox",
    "as_traced": "torch._inductor.lowering:constrain_to_fake_tensor",
    "broadcast": "torch._inductor.lowering:broadcast_tensors",
    "config": "torch._inductor:config",
    "decompositions": "torch._inductor.decomposition:decompositions",
    "decompositions_in_use": "torch._inductor.decomposition:select_decomp_table",
    "kernel": "torch._inductor.lowering:fallback_handler",
    "layout": "torch._inductor.lowering:tag_to_layout_constraint",
    "layout_tag": "torch._library.utils:get_layout_constraint_tag",
    "lowerings": "torch._inductor.lowering:lowerings",
    "make_fallback": "torch._inductor.lowering:make_fallback",
    "now": "torch._inductor.virtualized:V",
    "ops": "torch._inductor.virtualized:ops",
    "mark_written": "torch._inductor.graph:GraphLowering.mark_buffer_mutated",
    "pointwise": "torch._inductor.ir:Pointwise.create",
    "realized": "torch._inductor.ir:ExternKernel.realize_input",
    "storage": "torch._inductor.fx_utils:get_node_storage",
    "subgraph": "torch._inductor.subgraph_lowering:PointwiseSubgraphLowering",
    "branch": "torch._inductor.graph:SubgraphLowering",
}


def inductor() -> Any:
    """Return the parts of Inductor that lowerings use, or None if Inductor was not imported, or lacks one of them."""
    if "torch._inductor.lowering" not in sys.modules:
        return None
    try:
        return SimpleNamespace(**{name: pkgutil.resolve_name(path) for name, path in _INDUCTOR.items()})
    except (ImportError, AttributeError):
        return None


def lowering_of_write(inductor: Any, op: Any) -> Callable[..., Any]:
    """Return Inductor's lowering that calls an operator that writes to its arguments."""
    if _version < (2, 14):
        _keep_renamed()
    call: Callable[..., Any] = inductor.kernel(op, add_to_fallback_set=False)
    if _version > (2, 10):
        return call

    def call_in_2_10(*args: Any, **kwargs: Any) -> Any:
        # torch 2.10 calls no operator that has a kernel of its own at Functionalize.
        with mock.patch("torch._inductor.ir.can_auto_functionalize", return_value=True):
            return call(*args, **kwargs)

    return call_in_2_10


def _keep_renamed() -> None:
    """Keep Inductor from reading a tensor before an operator writes to it, if the program reads it afterwards.

    Inductor renames a tensor that is written, so a loop that reads it afterwards depends on the write. But torch 2.13
    and older lose the new name if they change the ranges of that loop to fuse it with another (pytorch/pytorch#185509).
    """
    try:
        node = pkgutil.resolve_name("torch._inductor.scheduler:SchedulerNode")
        recompute = node.recompute_size_and_body
    except (ImportError, AttributeError):
        return
    if hasattr(recompute, "__wrapped__"):
        return

    @wraps(recompute)
    def recompute_size_and_body(self: Any, *args: Any, **kwargs: Any) -> None:
        recompute(self, *args, **kwargs)
        self.set_read_writes(self.read_writes.rename(getattr(self, "mutation_renames", {})))

    node.recompute_size_and_body = recompute_size_and_body


def key_of_shardings(op: Any) -> Any:
    """Return the object that says which arguments of an operator are in the key of DTensor's cache of shardings."""
    propagator = "torch.distributed.tensor:DTensor._op_dispatcher.sharding_propagator"  # takes a second to import
    return pkgutil.resolve_name(f"{propagator}.op_to_schema_info")[op]


def jagged_like(nested: Any, values: Tensor) -> Tensor:
    """Return a nested tensor with the structure of ``nested`` and the elements ``values``."""
    nested_tensor: Tensor = NestedTensor(
        values,
        offsets=nested.offsets(),
        lengths=nested.lengths(),
        _ragged_idx=ragged_dim(nested),
        _metadata_cache=dict(_metadata_cache(nested)),
    )
    return nested_tensor


def vmap_kernel(name: str, rule: Callable[..., Any], op: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel that ``torch.library.register_vmap`` would register for the batching rule ``rule`` of ``op``.

    If no transform is running, it raises an error that explains why; torch's kernel would fail in an assertion.
    """

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            interpreter = _interpreter()
        except AssertionError:
            raise RuntimeError(
                f"{name}: a tensor of torch.vmap is used outside of it; return it from the function that made it"
            ) from None
        return _vmap_helper(interpreter, rule, op, *args, **kwargs)

    return kernel
