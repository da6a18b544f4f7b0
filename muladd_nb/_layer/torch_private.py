"""Every private name of torch that this package uses, in one table, and what is lost where a torch lacks one.

None has a public counterpart in every torch of the supported range. One that is missing does not stop the import: there
is one warning, another way where there is one, and an error message where a call would be wrong. To need another name
is a line of the table.
"""

from __future__ import annotations

import dataclasses
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import reduce
from operator import attrgetter, or_
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

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
NEWEST = (2, 15)  # that the tests ran on
_asks_cpp = _version <= NEWEST and IS_TESTED and _C.wants_fast_path()  # outside of the stable ABI


@dataclasses.dataclass(frozen=True)
class Capability:
    """Something that needs private names of torch, and what becomes of it on a torch that lacks one of them."""

    what: str
    becomes: str

    def lacking(self) -> str:
        """Return why it is lost, as an error message ends, or nothing if it is not."""
        lost = ", ".join(_dotted(path) for path in _missing if self in names[path])
        return f"{self.what} needs {lost}, which torch {torch.__version__} lacks" if lost else ""

    def refusal(self, operator: str) -> Callable[..., NoReturn] | None:
        """Return what raises ``RuntimeError`` for an operator that needs it, or None if it is not lost."""
        reason = self.lacking()

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise RuntimeError(f"{operator}: {reason}; use another torch, or a newer {_package}")

        return refuse if reason else None


def _find(path: str, *needed_for: Capability, otherwise: Any = None, field: bool = False) -> Any:
    """Return what stands at ``module:name.name``; where nothing does, note that, and return ``otherwise``.

    A field is what a class announces, and gives to each of its objects.
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
    """Return what gets an attribute of everything like the object, or of the class, that stands at ``of``."""
    found = _find(f"{of}.{attribute}", *needed_for, field=field)
    return otherwise if found is None else attrgetter(attribute)


def _address(symbol: str, *needed_for: Capability) -> int:
    """Return where a function of torch's C++ is, or 0, also where the fast path is off.

    It is 0 on a torch or a system that the tests did not run on. Such a function takes the address of a tensor. The
    stable ABI does not promise that its handle is one, and a name that is still there proves nothing.
    """
    if not _asks_cpp:
        return 0
    names[path := f"libtorch:{symbol}"] = needed_for
    address = _C.address(symbol)
    if not address:
        _missing.append(path)
    return address


def missing() -> list[str]:
    """Return the names that this torch lacks, each with what is lost."""
    return [f"{_dotted(path)} ({'; '.join(f'{x.what} {x.becomes}' for x in names[path])})" for path in _missing]


def _dotted(path: str) -> str:
    return path.replace(":", ".")


# ---- The table: of each capability its names

# What asks whether anyone observes a call. Where it is not known, someone may: the call is the slow one. Of tracing
# torch.jit.is_tracing says the same, in 60 ns more: a twenty-fifth of a small call.
CALLS = Capability("a call", "takes longer")
_is_tracing = _find("torch._C:_is_tracing", CALLS, otherwise=lambda: torch.jit.is_tracing())  # type: ignore[attr-defined]
transforms_active = _find(  # is a torch.func transform (grad, jvp, vmap ...) running?
    "torch._C:_are_functorch_transforms_active", CALLS, otherwise=lambda: not _is_tracing() and _Function.is_refused()
)
_dispatch_modes = _find("torch._C:_len_torch_dispatch_stack", CALLS, otherwise=lambda: 1)
_function_modes = _find("torch._C:_len_torch_function_stack", CALLS, otherwise=lambda: 1)
autocasts = _find("torch._C:_is_any_autocast_enabled", CALLS, otherwise=lambda: True)  # for any device
is_inference_mode_enabled = torch.is_inference_mode_enabled  # is public
_profiler: Any = profiler
if _find("torch.autograd.profiler:_is_profiler_enabled", CALLS) is None:
    _profiler = SimpleNamespace(_is_profiler_enabled=True)
_forward_ad: Any = forward_ad  # where the innermost level of forward-mode AD stands, which changes
if _find("torch.autograd.forward_ad:_current_level", CALLS) is None:
    _forward_ad = SimpleNamespace(_current_level=0)

# The same, and more, by functions of torch's C++: Python takes half of a small call to ask (measured).
requires_grad = _address("_ZNK3c1010TensorImpl13requires_gradEv", CALLS)  # c10::TensorImpl::requires_grad()
function_modes = _address("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", CALLS)  # how many there are
has_callbacks = _address("_ZN2at12hasCallbacksEv", CALLS)  # of profilers, and all else that observes
bump_version = _address("_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", CALLS)  # counts a write
set_data = _address("_ZNK2at10TensorBase8set_dataERKS0_", CALLS)  # at::TensorBase::set_data(const TensorBase&)
wrap = _address("_Z16THPVariable_WrapON2at10TensorBaseE", CALLS)  # THPVariable_Wrap(TensorBase&&): makes it an object
# A variable of each thread, c10::impl::raw_local_dispatch_key_set: its changes to what it dispatches to.
_KEYS = "_ZN3c104impl26raw_local_dispatch_key_setE"
dispatch_keys = _KEYS if _address(_KEYS, CALLS) else ""
# c10::impl::OperatorEntry::hasKernelForDispatchKey(DispatchKey) and kernelForDispatchKey(DispatchKey)
has_kernel = _address("_ZNK3c104impl13OperatorEntry23hasKernelForDispatchKeyENS_11DispatchKeyE", CALLS)
kernel = _address("_ZNK3c104impl13OperatorEntry20kernelForDispatchKeyENS_11DispatchKeyE", CALLS)
# For who looks where an object has its tensor. On a newer torch the stable ABI has functions for both ways.
example = torch.empty(0) if _asks_cpp else None
from_object, to_object = map(_C.address, ("torch_tensor_from_pyobject", "torch_tensor_to_pyobject"))
# What `op.redispatch` calls: without that step through Python, 0.3 us a call.
redispatch = _getter("torch:ops.aten.mul.Tensor", "_handle.redispatch_boxed", CALLS, otherwise=attrgetter("redispatch"))
# The public way to a schema takes 60 us, and knows no default before an argument that has none.
_schema = _getter("torch:ops.aten.mul.Tensor", "_schema", CALLS, otherwise=lambda op: _schema_of_fx(op))

# How many writes into a tensor were counted. If it is not known, one more is counted, which changes nothing.
WRITES = Capability("a write", "may be counted twice")
version = _getter("torch._C:TensorBase", "_version", WRITES, otherwise=lambda tensor: None)

# An autograd.Function of the kind that torch.func makes for one level, and the switch that lets it run there. The
# public one knows no levels; torch.func refuses it.
TRANSFORMS = Capability("a derivative under torch.func", "is refused")
FORWARD_MODE = Capability("a tensor with a tangent", "is refused")
SingleLevelFunction = _find(
    "torch.autograd.function:_SingleLevelFunction", TRANSFORMS, otherwise=torch.autograd.Function
)
_node_of = _getter("torch.autograd.function:Function", "_backward_cls", CALLS)
record_at_this_level = _find("torch._functorch.utils:enable_single_level_autograd_function", TRANSFORMS)
_is_fwd_grad_enabled = _find("torch._C:_is_fwd_grad_enabled", TRANSFORMS)
_set_fwd_grad_enabled = _find("torch.autograd.forward_ad:_set_fwd_grad_enabled", TRANSFORMS, FORWARD_MODE)

# What a tensor dispatches to, from which is known whether it is nothing but memory.
dispatch_keys_of = _find("torch._C:_dispatch_keys", CALLS, FORWARD_MODE)
keys_of_example = dispatch_keys_of(example).raw_repr() if dispatch_keys_of and example is not None else 0
_DispatchKeySet = _find("torch._C:DispatchKeySet", CALLS)
_DispatchKey = _find("torch._C:DispatchKey", CALLS)
_dump = _find("torch._C:_dispatch_dump", CALLS)
_handle = _getter("torch:ops.aten.mul.Tensor", "_handle", CALLS)

# What compiled autograd asks of every function, which those for a single level do not answer.
COMPILED_AUTOGRAD = Capability("a backward under compiled autograd", "is refused")
compiled_autograd_key = _find("torch.autograd.function:Function._compiled_autograd_key", COMPILED_AUTOGRAD)

# Compiled programs are cached by the names of their operators.
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
# The elements, packed in one tensor, which is the memory itself.
jagged_values = _getter(_JAGGED, "_values", JAGGED, COMPILED_LENGTHS, field=True)
ragged_dim = _getter(_JAGGED, "_ragged_idx", JAGGED, COMPILED_LENGTHS, field=True)
_metadata_cache = _getter(_JAGGED, "_metadata_cache", JAGGED, COMPILED_LENGTHS, field=True)
# Raises where a program runs, not where it is compiled.
assert_later = _find("torch:_assert_async", COMPILED_LENGTHS)

# What makes a kernel of a batching rule, as torch.library.register_vmap does, which takes no out variant.
VMAP_OF_OUT = Capability("an out variant under vmap", "is refused")
_interpreter = _find("torch._functorch.pyfunctorch:retrieve_current_functorch_interpreter", VMAP_OF_OUT)
_vmap_helper = _find("torch._functorch.autograd_function:custom_function_call_vmap_helper", VMAP_OF_OUT)

if _missing:
    warnings.warn(
        f"{_package}: torch {torch.__version__} lacks {', '.join(missing())}; everything else works. "
        f"A newer {_package} may know this torch.",
        RuntimeWarning,
        stacklevel=2,
    )

# ---- What is made of them

OpOverload = type(torch.ops.aten.mul.Tensor)


def _below(key: str) -> Callable[[Any], Any]:
    """Return what gives the keys of a set that come after those of a kind: what a kernel there dispatches to."""
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
    """An ordinary function of autograd, which torch refuses while a transform is running; tracing would record it."""

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


# No one sees which operators are called where each of these functions, or attributes, gives this answer: there is no
# transform, level of forward-mode AD, mode or profiler; nor torch.jit.trace, which compares where calls come from.
# The first three need not be asked where `dispatch_keys` are as they are without any of that.
QUIET_KEYS = [(transforms_active, None, False), (_dispatch_modes, None, 0), (_is_tracing, None, False)]
QUIET = [
    *([] if function_modes else [(_function_modes, None, 0)]),
    *([] if has_callbacks else [(_profiler, "_is_profiler_enabled", False)]),
    (_forward_ad, "_current_level", -1),
]


def dispatch(op: str, device: str) -> tuple[int, int, Any, dict[str, int]] | None:
    """Return what an operator dispatches to, given tensors that are nothing but memory on a kind of device.

    These are the keys of such a tensor, those of one that was made in inference mode, the operator's handle, and the
    keys whose kernels may be called. None if that is not known, or another kernel for the device was registered before
    this package was imported.
    """
    if None in (dispatch_keys_of, _DispatchKeySet, _DispatchKey, _dump, _handle):
        return None
    if f"{device} (inactive)" in _dump(f"{_package}::{op}"):
        return None

    def together(*keys: str) -> int:
        return reduce(or_, (_DispatchKeySet(getattr(_DispatchKey, key)).raw_repr() for key in keys))

    inference = together(device, f"Autocast{device}")
    normal = inference | together(f"Autograd{device}", "ADInplaceOrView")
    packet, _, overload = op.partition(".")
    handle = _handle(getattr(getattr(getattr(torch.ops, _package), packet), overload or "default"))
    keys = "BackendSelect", "ADInplaceOrView", "Autograd", f"Autograd{device}", device
    return normal, inference, handle, {key: int(getattr(_DispatchKey, key)) for key in keys}


def differentiating() -> bool:
    """Return whether a torch.func transform is running, or a level of ``torch.autograd.forward_ad`` is open."""
    return transforms_active() or _forward_ad._current_level >= 0


def may_be_dual() -> bool:
    """Return whether a tensor can be a dual one.

    A graph that torch.compile captured opens its level of forward-mode AD in C++, which Python cannot ask;
    but it runs under a dispatch mode then.
    """
    return differentiating() or _dispatch_modes() > 0


def traces() -> bool:
    """Return whether what is called becomes a part of a program that is compiled."""
    return _dispatch_modes() > 0 and get_proxy_mode() is not None


def is_traced(args: tuple[Any, ...]) -> bool:
    """Return whether a call on ``args`` is recorded as it is, into such a program."""
    return (
        traces()
        and not transforms_active()
        and not any(isinstance(x, Tensor) and hasattr(x, "__tensor_flatten__") for x in args)  # has others in it
    )


def decomposes(op: Any) -> bool:
    """Return whether what traces now puts something else in the place of an operator, as Inductor does its formula."""
    mode: Any = get_proxy_mode()
    # Before torch 2.13 there was one table for all.
    return mode is not None and op in getattr(
        mode, "decomposition_table", getattr(proxy_tensor, "CURRENT_DECOMPOSITION_TABLE", ())
    )


def skip_in_dynamo(function: _Callable) -> _Callable:
    """Tell Dynamo to compile neither a function that the dispatcher, or autograd, calls, nor what it calls.

    It would, where a program that is compiled in part comes to it, and warn of what it cannot compile.
    """
    if hasattr(function, "__code__") and not COMPILED_IN_PART.lacking():  # Dynamo looks into none in C
        _set_strategy(function.__code__, _Strategy(_Action.SKIP, _Action.SKIP))
    return function


def call_directly(function: Any) -> None:
    """Have the engine call the ``backward`` of a function, and not a method in Python that looks for it: 0.3 us."""
    if _node_of:
        _node_of(function).apply = function.backward


def needs_recording(args: tuple[Any, ...]) -> bool:
    """Return whether autograd, or a transform, may have something to record for an operator on ``args``."""
    return is_recorded(args) or may_be_dual()


def is_recorded(args: tuple[Any, ...]) -> bool:
    """Return whether autograd records an operator on ``args``."""
    if torch.is_grad_enabled():
        for x in args:
            if isinstance(x, Tensor) and x.requires_grad:
                return True
    return False


def primal(tensor: Tensor) -> Tensor:
    """Return ``tensor`` without its tangent of this level of forward-mode AD."""
    # A tensor of inference mode has none; taken apart outside of it, while torch.func.linearize traces, it is an error.
    value: Tensor = tensor if tensor.is_inference() else forward_ad.unpack_dual(tensor, level=0).primal
    return value


def has_tangent(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is dual at this level of forward-mode AD. Tracing records this call."""
    # torch takes no jagged tensor apart, and makes no dual one.
    return tensor.layout is not torch.jagged and forward_ad.unpack_dual(tensor, level=0).tangent is not None


def dispatch_alike(tensors: Iterable[Tensor]) -> bool:
    """Return whether a call on one of these tensors goes to the kernels that it would go to on the others."""
    return transforms_active() or len({dispatch_keys_of(x).raw_repr() for x in tensors}) == 1


def with_current_grad_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` such that what it calls is recorded as it would be now.

    The forward of an ``autograd.Function`` records nothing. The levels below it must record what they did, and no more.
    """
    modes = torch.is_grad_enabled(), _is_fwd_grad_enabled()

    def call(*args: Any) -> Any:
        with torch.set_grad_enabled(modes[0]), _set_fwd_grad_enabled(modes[1]):
            return function(*args)

    return call


def record_tangents() -> Any:
    """Turn forward-mode AD on, as it was where the ``jvp`` of an ``autograd.Function`` is called for."""
    return _set_fwd_grad_enabled(True)


def without_tangents() -> Any:
    """Turn forward-mode AD off."""
    return _set_fwd_grad_enabled(False)


def arguments(op: Any) -> Any:
    """Return the arguments of an operator, in the order of its schema."""
    return _schema(op).arguments


def results(op: Any) -> Any:
    """Return the results of an operator, in the order of its schema."""
    return _schema(op).returns


def is_view(op: Any) -> bool:
    """Return whether the result of an operator is a view of an argument that it does not write into."""
    aliases = [result.alias_info for result in results(op)] if isinstance(op, OpOverload) else []
    return any(alias is not None and not alias.is_write for alias in aliases)


def is_mutable(op: Any) -> bool:
    """Return whether what a program calls is an operator that writes to an argument."""
    return isinstance(op, OpOverload) and any(x.alias_info and x.alias_info.is_write for x in arguments(op))


def schema(op: Any) -> str:
    """Return the schema of an operator as text."""
    return str(_schema(op))


def schemas(namespace: str) -> list[str]:
    """Return the schema of every operator of a namespace."""
    names = {name.partition(".")[0] for name in _operator_names() if name.startswith(f"{namespace}::")}
    return sorted(str(schema) for name in names for schema in _schemas_of(name))


def argument_names(op: Any) -> list[str]:
    """Return the names of the arguments of an operator, in the order of its schema."""
    return [argument.name for argument in arguments(op)]


def _schema_of_fx(op: Any) -> Any:
    from torch.fx.operator_schemas import get_signature_for_torch_op

    _, schemas = get_signature_for_torch_op(op, return_schemas=True)
    return schemas[0] if schemas else None


# What operators are lowered with. Inductor takes seconds to import, and is not imported for them.
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
    """Return what operators are lowered with, or None if Inductor was not imported, or lacks any of it."""
    if "torch._inductor.lowering" not in sys.modules:
        return None
    try:
        return SimpleNamespace(**{name: pkgutil.resolve_name(path) for name, path in _INDUCTOR.items()})
    except (ImportError, AttributeError):
        return None


def jagged_like(nested: Any, values: Tensor) -> Tensor:
    """Return a nested tensor of the structure of ``nested`` with the elements ``values``."""
    nested_tensor: Tensor = NestedTensor(
        values,
        offsets=nested.offsets(),
        lengths=nested.lengths(),
        _ragged_idx=ragged_dim(nested),
        _metadata_cache=dict(_metadata_cache(nested)),
    )
    return nested_tensor


def vmap_kernel(name: str, rule: Callable[..., Any], op: Callable[..., Any]) -> Callable[..., Any]:
    """Return what ``torch.library.register_vmap`` registers for the batching rule ``rule`` of ``op``.

    It explains what went wrong where no transform is running, which torch's kernel asserts.
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
