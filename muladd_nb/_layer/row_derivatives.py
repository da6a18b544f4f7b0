"""Derivatives of operators over rows, computed by kernels that are made from the functor.

``src/elementwise/rows/family.h`` says which kernels there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import derivative, recording
from ._library import refusing
from .fast_path import direct_caller
from .operator import Form, as_tuple
from .partials import zeros_of
from .recording import Cache, Rule, picker


def register(form: Form) -> None:
    """Register the derivative of an operator over rows that returns its results, or register that it has none."""
    operator, role = form.family[()], "".join(form.role)
    if ("gradients",) not in form.family or ("tangent",) not in form.family or not operator.promises.differentiable:
        derivative.none(form.op)
        return
    rules = _Rules(form)
    vjp, jvp = rules.choose(role)
    count = len(form.kinds)
    is_forward = role in ("", "recorded")
    read = rules.read_results if is_forward else ()
    # Autograd keeps the tensors, and the node keeps the other arguments.
    arguments_at = sorted([*form.inputs.values(), *(form.numbers.values() if form.tensor_numbers else ())])
    tensors_at = arguments_at + [count + i for i in read]
    others_at = [place for place in range(count) if place not in arguments_at]
    kept_at = tensors_at + others_at
    to_tensors, to_others = picker(tensors_at), picker(others_at)
    given_at = [kept_at.index(place) for place in sorted(kept_at)]

    def save(needs: Sequence[bool], inputs: Sequence[Any], results: Sequence[Tensor]) -> tuple[Sequence[Tensor], Any]:
        both = (*inputs, *results)
        return to_tensors(both), (needs, to_others(both))

    def given(tensors: Sequence[Tensor], kept: Any) -> list[Any]:
        """Return the arguments, and then the results, that were saved."""
        _, others = kept
        both = (*tensors, *others)
        return [both[i] for i in given_at]  # a picker, in C, cannot be traced by compiled autograd

    rule = Rule(
        save,
        lambda tensors, kept, *grads: vjp(kept[0], given(tensors, kept), *grads),
        lambda tensors, kept, _, *tangents: jvp(given(tensors, kept)[:count], *tangents),
        vjp_by_fast_path=_by_fast_path(rules, given_at) if is_forward else None,
        without=[x for x, dtype in operator.own.items() if dtype.is_floating_point],
        constants=[i for i in range(len(form.of_results)) if i not in form.of_c] if is_forward else (),
        node=operator.promises.node if is_forward else None,
        materialize=True,
    )
    recording.register(form.op, rule, form)


def _by_fast_path(rules: _Rules, given_at: Sequence[int]) -> Callable[..., Any]:
    """Return the function that computes the gradients of a small call, or returns None.

    ``given_at`` has, for each argument and then for each result that is saved, its index among the values that a node
    keeps. In a small call each step takes noticeable time, so the function puts the arguments together in C.
    """
    compute = direct_caller(rules.gradients, lambda *_: None)
    args, read = given_at[: rules.count], given_at[rules.count :]
    to_kernel = picker([*args, *(len(given_at) + i for i in rules.form.of_c), *read])

    def wanted(*needs: bool) -> tuple[int, Callable[[Any], Any]]:
        """Return which gradients are asked for, and a function that picks them from None and all gradients."""
        order = [1 + rules.places.index(place) if need else 0 for place, need in enumerate(needs)]
        return rules.wanted(needs), picker([0, *order])

    all_wanted = Cache(wanted)

    def vjp_by_fast_path(tensors: Sequence[Tensor], kept: Any, grads: Sequence[Tensor]) -> Any:
        needs, others = kept
        bits, to_gradients = all_wanted[needs]
        made = compute(*to_kernel((*tensors, *others, *grads)), bits)
        return None if made is None else to_gradients((None, *as_tuple(made)))

    return vjp_by_fast_path


class _Rules:
    """The derivative of a form, which is an operator or one of its derivatives.

    A rule for reverse mode takes which gradients are needed, what was saved, and the gradient of each result. A rule
    for forward mode takes the arguments, and the tangent of each.
    """

    def __init__(self, form: Form) -> None:
        self.form, self.operator = form, form.family[()]
        self.gradients, self.tangents = form.family["gradients",], form.family["tangent",]
        self.tensors = self.gradients.gradients_of
        self.count = len(self.operator.kinds)
        self.end = self.count + len(self.operator.of_c)  # the arguments from `count` to `end` are gradients
        self.places = [[*self.operator.kinds].index(x) for x in self.tensors]
        # The results of a recorded call that the kernel of the gradients reads. The reductions follow the results.
        first = {"softmax__": 0, "reduced__": len(self.operator.of_results)}
        names = [(x[: len("softmax__")], x) for x in self.gradients.kinds]
        self.read_results = [first[kind] + int(x.removeprefix(kind)) for kind, x in names if kind in first]

    def choose(self, role: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the rules for reverse mode and forward mode."""
        no_tangent = "an operator over rows has no tangent of a tangent: take reverse mode for one of the two"
        no_third = "the functor gives derivatives up to order 2, and one of order 3 is asked for"
        return {
            "gradients": (self.vjp_of_gradients, self.jvp_of_gradients),
            "tangent": (self.vjp_of_tangent, refusing(self.operator.name, no_tangent)),
            "second": (refusing(self.operator.name, no_third),) * 2,
        }.get(role, (self.vjp, self.jvp))

    def vjp(self, needs: Any, saved: Sequence[Any], *grads: Tensor) -> Any:
        args, read = saved[: self.count], saved[self.count :]
        if torch.is_grad_enabled():
            read = [y.detach() for y in read]  # gradients are differentiated with respect to the arguments only
        # An embedding of the result, for example, has a sparse gradient.
        given = [grads[i] if grads[i].layout is torch.strided else grads[i].to_dense() for i in self.form.of_c]
        made = self.gradients.op(*args, *given, *read, self.wanted(needs))
        return self.of_arguments(args, as_tuple(made))

    def jvp(self, args: Sequence[Any], *tangents: Any) -> Any:
        made = dict(zip(self.form.of_c, self.tangent(args, self.of_tensors(tangents)), strict=True))
        results = tuple(made.get(i) for i in range(len(self.form.of_results)))
        return results if len(results) > 1 else results[0]

    def vjp_of_gradients(self, needs: Any, saved: Sequence[Any], *cotangents: Tensor) -> Any:
        args, grads, by = saved[: self.count], saved[self.count : self.end], self.asked_for(saved, cotangents)
        by_arguments = self.of_arguments(args, self.second(args, grads, by, [None] * len(grads)))
        return *by_arguments, *self.tangent(args, by), *(None for _ in saved[self.end :])

    def jvp_of_gradients(self, saved: Sequence[Any], *tangents: Any) -> Any:
        args, grads, grad_tangents = saved[: self.count], saved[self.count : self.end], tangents[self.count : self.end]
        made = self.second(args, grads, self.of_tensors(tangents), grad_tangents)
        pairs = zip(self.asked_for(saved, made), made, strict=True)
        made = tuple(y.new_zeros(0) if x is None else x for x, y in pairs)
        return made if len(made) > 1 else made[0]

    def vjp_of_tangent(self, needs: Any, saved: Sequence[Any], *grads: Tensor) -> Any:
        args, tangents = saved[: self.count], saved[self.count :]
        by_arguments = self.of_arguments(args, self.second(args, grads, tangents, [None] * len(grads)))
        read: Sequence[Tensor] = ()
        if self.read_results:
            results = as_tuple(self.form.family.get(("recorded",), self.operator).op(*args))
            read = [results[i] for i in self.read_results]
        made = self.gradients.op(*args, *grads, *read, self.wanted([True] * self.count))
        return *by_arguments, *as_tuple(made)

    def wanted(self, needs: Sequence[bool]) -> int:
        """Return which gradients are asked for, a bit for each, as the operator that computes them takes it."""
        return sum(1 << i for i, place in enumerate(self.places) if needs[place])

    def asked_for(self, saved: Sequence[Any], of_each: Sequence[Tensor]) -> list[Tensor | None]:
        """Return what belongs to the gradients that a call of the operator ``gradients`` asks for."""
        return [x if saved[-1] >> i & 1 else None for i, x in enumerate(of_each)]

    def tangent(self, args: Sequence[Any], tangents: Sequence[Any]) -> tuple[Tensor, ...]:
        return as_tuple(self.tangents.op(*args, *self.with_zeros(args, tangents)))

    def second(
        self, args: Sequence[Any], grads: Sequence[Tensor], tangents: Sequence[Any], grad_tangents: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        second = self.form.family.get(("second",))
        if second is None:
            # The limits are kMaxInputs and kMaxOperands of operator.h.
            results = len(self.tensors)
            taken = len(self.operator.inputs) + results + 2 * len(self.operator.of_c)
            raise RuntimeError(
                f"{self.operator.name}: a derivative of the second order is asked for, and there is none: its kernel "
                f"would take {taken} tensors and return {results}, and it may take at most 16, or 17 with those that "
                "it returns"
            )
        given = [zeros_of(grad, grad.shape) if x is None else x for grad, x in zip(grads, grad_tangents, strict=True)]
        return as_tuple(second.op(*args, *grads, *self.with_zeros(args, tangents), *given))

    def with_zeros(self, args: Sequence[Any], tangents: Sequence[Any]) -> list[Tensor]:
        """Return a tangent for each tensor, with zeros in place of those that are missing."""
        zero = args[self.operator.inputs[self.operator.first]].new_zeros(())
        each = zip(self.places, tangents, strict=True)
        return [zero if x is None or args[place] is None else x for place, x in each]

    def of_arguments(self, args: Sequence[Any], gradients: Sequence[Tensor]) -> list[Tensor | None]:
        """Return a gradient or None for each argument of the operator."""
        of_each: list[Tensor | None] = [None] * self.count
        for place, gradient in zip(self.places, gradients, strict=True):
            if args[place] is not None:
                of_each[place] = gradient
        return of_each

    def of_tensors(self, tangents: Sequence[Any]) -> list[Any]:
        return [tangents[place] for place in self.places]
