"""The time of one call in each mode; forward and backward by size; and each question that a small call asks torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from harness import C, Sides, constant, device, eager, run

import muladd_nb
from muladd_nb._layer import torch_private as private

ops = torch.ops.muladd_nb


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    a, b = (torch.randn(16, device=device()) for _ in range(2))
    c, out = constant(a), torch.empty_like(a)
    calls: Sides = {
        "mymuladd": partial(muladd_nb.mymuladd, a, b, C),
        "torch.ops": partial(ops.mymuladd, a, b, C),
        "eager": partial(eager, a, b),
        "addcmul": partial(torch.addcmul, c, a, b),
    }
    into: Sides = {
        "mymuladd": partial(muladd_nb.mymuladd, a, b, C, out=out),
        "torch.ops": partial(ops.mymuladd_out, a, b, C, out),
        "addcmul": partial(torch.addcmul, c, a, b, out=out),
    }
    yield {"mode": "nothing requires grad", "numel": 16}, calls
    yield {"mode": "out=", "numel": 16}, into
    with torch.inference_mode():
        yield {"mode": "inference mode", "numel": 16}, calls
        yield {"mode": "inference mode, out=", "numel": 16}, into

    for numel in (16,) if quick else (16, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 24):
        x, y = (torch.randn(numel, device=device(), requires_grad=True) for _ in range(2))
        grad = torch.ones(numel, device=device())

        def step(function: Callable[[], torch.Tensor], x: Any = x, y: Any = y, grad: Any = grad) -> None:
            x.grad = y.grad = None
            function().backward(grad)

        functions: Sides = {
            "mymuladd": partial(muladd_nb.mymuladd, x, y, C),
            "torch.ops": partial(ops.mymuladd, x, y, C),
            "eager": partial(eager, x, y),
            "addcmul": partial(torch.addcmul, constant(x.detach()), x, y),
        }
        yield {"mode": "forward with grad", "numel": numel}, functions
        yield {"mode": "forward and backward", "numel": numel}, {k: partial(step, f) for k, f in functions.items()}

    # A public function calls these before it bypasses the dispatcher, if it cannot call torch's C++ functions instead.
    asked = {
        attribute or of.__name__: partial(getattr, of, attribute) if attribute else of
        for of, attribute, _ in (*private.UNOBSERVED_KEYS, *private.UNOBSERVED)
    }
    asked |= {
        "_is_any_autocast_enabled": private.autocasts,
        "requires_grad, of each tensor": partial(getattr, a, "requires_grad"),
        "dispatch keys, of each tensor": partial(private.dispatch_keys_of, a),
    }
    yield {"mode": "questions", "numel": 16}, {"mymuladd": calls["mymuladd"], "no question": int} | asked


if __name__ == "__main__":
    run("per_call", cases)
