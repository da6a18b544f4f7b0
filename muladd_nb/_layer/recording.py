"""The kernel at the key Autograd. It records an operator in reverse and forward mode, and under torch.func transforms.

``torch.library.register_autograd`` is not enough: its operators raise an error under ``torch.func.grad``, and their
forward-mode derivative is silently zero. Here an operator has one kernel at the dispatch key ``Autograd``. torch.func
runs that kernel once for each level of nested transforms, on the tensors of that level. So the kernel records one
level's derivative, with the single-level kind of ``autograd.Function`` that torch.func itself generates. The
function's forward redispatches to the next level, and finally to the backend's kernel, so values under a transform
have the same bits as outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from . import autocast
from . import torch_private as private
from ._library import implement, name
from .fast_path import with_fast_path
from .operator import Form, as_list, as_tuple, by_position, complete

TENSOR = ("Tensor", "Optional[Tensor]")
THROUGH_OUT = ("no gradient is recorded through out", "call it under torch.no_grad()")  # for refuse_gradients


@dataclass(frozen=True)
class Rule:
    """How one level records an operator, and computes its derivative.

    ``save(needs, inputs, results)`` returns tensors, which autograd keeps, and one object, which the node keeps.
    ``needs`` says which gradients are requested. ``vjp`` takes these tensors, the object and the gradient of each
    result. ``jvp`` takes the tensors, the object, the shape and dtype of each result, and the tangent of each argument.
    """

    save: Callable[..., tuple[Sequence[Tensor], Any]]
    vjp: Callable[..., Sequence[Tensor | None]]
    jvp: Callable[..., Any]
    vjp_by_fast_path: Callable[..., tuple[Tensor | None, ...] | None] | None = None  # if it can: None and the gradients
    in_forward_mode: Callable[..., Tensor | None] | None = None  # given the keys and all arguments: a dual, or None
    check_tangent: Callable[..., None] | None = None  # given an argument's index, all arguments and the results
    node: str | None = None  # the name of grad_fn, without Backward
    without: Sequence[str] = ()  # arguments that have no gradient: requesting one is an error
    instead: str | None = None  # the advice in that error
    materialize: bool = False  # whether missing gradients and tangents are replaced by zeros, unless all are missing
    constants: Sequence[int] = ()  # the indices of results that have no derivative


def register(op: Any, rule: Rule, form: Form | None = None) -> None:
    """Register the kernel, which applies an ``autograd.Function`` at each level that has something to record.

    Pass ``form`` for an operator that C++ declared: its calls then take the fast path if they can.
    """
    several = len(private.results(op)) > 1
    apply = _function(op, rule, form)
    refuse_transforms, refuse_tangents = private.TRANSFORMS.refusal(name(op)), private.FORWARD_MODE.refusal(name(op))
    at_this_level = refuse_transforms or private.record_at_this_level
    in_forward_mode = None if refuse_transforms or refuse_tangents else rule.in_forward_mode
    without_autocast = autocast.define_uncast(op)
    if form is not None:
        form.recorder, form.without_autocast = apply, without_autocast
    redispatch = by_position(private.redispatch(op), op, leading=1)
    uncast, compute = by_position(without_autocast, op), redispatch
    if form and (recorded := form.recorded) is not form:
        compute = by_position(private.redispatch(recorded.op), recorded.op, leading=1)
        # We look it up in each call, because this form is registered later than the operator whose calls it computes.
        uncast = by_position(lambda *args, **kwargs: recorded.without_autocast(*args, **kwargs), recorded.op)

    def kernel(keyset: Any, *args: Any) -> Any:
        dual = private.may_be_dual()
        if not dual and not private.is_recorded(args):
            return redispatch(private.below_autograd(keyset), *args)
        if dual and in_forward_mode and (made := in_forward_mode(keyset, args)) is not None:
            return made
        below: Callable[..., Any] = partial(compute, private.below_autograd(keyset))
        if autocast.in_backward() and private.is_traced(args):
            # A compiled backward pass may run in an autocast region in which the forward pass did not run.
            below = uncast
        if private.transforms_active():
            with at_this_level():
                returned = apply(private.with_current_grad_modes(below), *args)
        else:
            if refuse_tangents and dual and any(map(private.has_tangent, args)):
                refuse_tangents()
            returned = apply(below, *args)
        if dual and rule.check_tangent:
            for place in (place for place, x in enumerate(args) if private.has_tangent(x)):
                rule.check_tangent(place, args, returned if several else (returned,))
        return returned

    n = len(checked_arguments(op))

    def kernel_with_defaults(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        return kernel(keyset, *complete(op, args, kwargs)[:n])

    is_plain = not any(argument.kwarg_only or argument.has_default_value() for argument in private.arguments(op))
    implement(op, with_fast_path(kernel if is_plain else kernel_with_defaults, form), "Autograd", with_keyset=True)


def _function(op: Any, rule: Rule, form: Form | None) -> Callable[..., Any]:
    """Return a function that applies the ``autograd.Function``. It takes what ``forward`` does."""
    op_name, count = form.name if form else name(op), len(private.results(op))
    several = count > 1
    is_tuple = several or (form is not None and form.recorded is not form)  # whether the kernel returns a tuple
    names = checked_arguments(op)
    refused = [(names.index(argument), argument) for argument in rule.without]
    all_needed = tuple([str(argument.type) in TENSOR for argument in private.arguments(op)[: len(names)]])
    save, vjp, jvp, vjp_by_fast_path = rule.save, rule.vjp, rule.jvp, rule.vjp_by_fast_path
    materialize, constants = rule.materialize, rule.constants

    # The old style, without setup_context, is cheaper. The fast path passes a tuple of the results that it has
    # computed, and the kernel a function that computes them. Each step here counts in a small call.
    def forward(ctx: Any, results_or_compute: Any, *inputs: Any) -> Any:
        ctx.set_materialize_grads(False)  # torch's zeros may be of another class than the other gradients
        are_computed = type(results_or_compute) is tuple
        returned = results_or_compute if are_computed else results_or_compute(*inputs)
        results = returned if are_computed or is_tuple else (returned,)
        if constants:
            ctx.mark_non_differentiable(*(results[place] for place in constants))
        tensors, ctx.others = save(ctx.needs_input_grad[1:], inputs, results)
        if materialize and several:
            ctx.results = [(y.shape, y.dtype, y.device) for y in results[:count]]
        ctx.saves = bool(tensors)
        if tensors:
            ctx.save_for_backward(*tensors)
        if not are_computed and private.may_be_dual():
            tensors, others = save(all_needed, inputs, results)
            ctx.save_for_forward(*tensors)
            ctx.given_to_jvp = others, [(y.shape, y.dtype) for y in results[:count]]
            if materialize:
                ctx.tensors = [isinstance(x, Tensor) and (x.shape, x.dtype, x.device) for x in inputs]
        return results[:count] if several else results[0]

    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        # Reading saved tensors a second time is an error, even if there are none.
        saved = ctx.saved_tensors if ctx.saves else ()
        if materialize:
            there = [grad for grad in grads if grad is not None]
            if not there:
                return (None,) * (1 + len(names))
            if several:
                grads = _with_zeros(grads, there, ctx.results)
        gradients = None
        if vjp_by_fast_path and not is_dynamo_compiling():  # Dynamo cannot trace functions in C
            gradients = vjp_by_fast_path(saved, ctx.others, grads)
        if gradients is None:
            with autocast.AsInForward(backward=True):
                gradients = None, *vjp(saved, ctx.others, *grads)
        return gradients

    def forward_mode(ctx: Any, _: Any, *tangents: Tensor | None) -> Any:
        if materialize:
            tangents = _with_zeros(tangents, [x for x in tangents if x is not None], ctx.tensors)
        # torch has turned the recording of tangents off. We turn it on, or a derivative of this one (jvp of jvp) would
        # lack the terms computed here. private.primal removes this level's tangents, or they would be differentiated
        # twice.
        with private.record_tangents(True), autocast.AsInForward():
            saved = [x if x is None else private.primal(x) for x in ctx.saved_tensors]
            made = jvp(saved, *ctx.given_to_jvp, *tangents)
            # Writing to a result also writes to its tangent, which must share no memory with any other tensor.
            others, own = [*saved, *tangents], []
            for x in as_tuple(made):
                is_shared = x is not None and (private.is_view_of_tensor(x) or any(x is y for y in others))
                own.append(x.clone() if is_shared else x)
                others.append(x)
            return tuple(own) if isinstance(made, tuple) else own[0]

    key = private.COMPILED_AUTOGRAD.refusal(name(op)) or private.compiled_autograd_key
    methods = {"forward": forward, "backward": backward, "jvp": forward_mode, "_compiled_autograd_key": key}
    function: Any = type(
        rule.node or "".join(map(str.capitalize, op.overloadpacket.__name__.split("_"))),
        (private.SingleLevelFunction,),
        {attribute: staticmethod(private.skip_in_dynamo(method)) for attribute, method in methods.items()},
    )
    private.call_directly(function)
    if not refused:
        return function.apply

    def apply(results_or_compute: Any, *args: Any) -> Any:
        for place, argument in refused:
            x = args[place]
            recorded = x is not None and torch.is_grad_enabled() and x.requires_grad
            if recorded or (private.may_be_dual() and private.has_tangent(x)):
                raise no_gradient(op_name, argument, rule.instead)
        return function.apply(results_or_compute, *args)

    return private.skip_in_dynamo(apply)


def picker(places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function in C that takes a tuple, and returns the values at these indices."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


class Cache(dict[Any, Any]):
    """The values of a function, each computed once. functools.cache would make Dynamo warn."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __missing__(self, key: Any) -> Any:
        made = self[key] = self.make(*key)
        return made


def _with_zeros(given: tuple[Any, ...], there: Sequence[Tensor], likes: Sequence[Any]) -> tuple[Any, ...]:
    """Return gradients or tangents, with zeros in place of those that are None. ``there`` has the others.

    ``likes`` has the shape, dtype and device of each, or False for what is not a tensor. The zeros have the class of
    the others, which transforms and DTensors require.
    """
    if len(there) == len(given):
        return given
    some = next((x for x in there if type(x) is not Tensor), there[0])

    def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        made: Tensor = some.new_zeros(shape, dtype=dtype, device=device, layout=torch.strided)
        return made

    pairs = zip(given, likes, strict=True)
    return tuple([zeros(*like) if x is None and like else x for x, like in pairs])


def checked_arguments(op: Any) -> list[str]:
    """Return the names of the arguments of an operator, or raise an error if it cannot have a derivative."""
    if not isinstance(op, private.OpOverload):
        raise TypeError(f"a derivative belongs to an overload, such as torch.ops.my_ops.op.default, got {op!r}")
    for argument in private.arguments(op):
        if argument.alias_info is not None:
            raise ValueError(
                f"{name(op)}: {argument.name} is written to or returned; only new tensors have derivatives"
            )
        if "Tensor" in str(argument.type) and str(argument.type) not in TENSOR:
            raise ValueError(f"{name(op)}: {argument.name} is a list of tensors; pass them one by one")
    results = private.results(op)
    if not results or any(str(result.type) != "Tensor" for result in results):
        raise ValueError(f"{name(op)}: the results must be tensors, got {[str(r.type) for r in results]}")
    # An author's functions do not know `is_number`, which only distinguishes two overloads.
    return [x for x in private.argument_names(op) if x != "is_number"]


def no_gradient(
    op: str, argument: str, instead: str | None = None, what: str = "{} has no gradient, but requires one"
) -> RuntimeError:
    alternative = f", or {instead}" if instead else ""
    return RuntimeError(f"{op}: {what.format(argument)}; detach {argument}{alternative}")


def refuse_gradients(
    op: str, arguments: Mapping[str, Any], why: str, instead: str | None = None, *, may_be_dual: bool
) -> None:
    """Raise an error if a derivative by one of these arguments would be lost."""
    for argument, x in arguments.items():
        if isinstance(x, Tensor) and torch.is_grad_enabled() and x.requires_grad:
            raise no_gradient(op, argument, instead, f"{why}, but {{}} requires grad")
        if may_be_dual and private.has_tangent(x):
            raise no_gradient(op, argument, what=f"{why}, but {{}} has a tangent")


def refuse_gradients_of_numbers(form: Form, args: Sequence[Any]) -> None:
    """Raise an error if an argument that is a number, or one of a list, is a tensor whose derivative would be lost.

    torch converts a tensor with one element to a number.
    """
    may_be_dual = private.differentiating()
    for argument, x in ((argument, x) for argument, place in form.floats.items() for x in as_list(args[place])):
        if isinstance(x, Tensor) and private.is_batched(x):
            raise RuntimeError(f"{form.name}: {argument} must be the same for all samples of vmap, got one for each")
        if isinstance(x, Tensor) and (private.is_recorded((x,)) or (may_be_dual and private.has_tangent(x))):
            raise no_gradient(form.name, argument, form.promises.instead)
