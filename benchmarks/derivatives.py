"""Compare forward and backward of generated operators with eager, compiled, and a handwritten autograd.Function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import Sides, device, installed, run
from torch import Tensor
from torch.nn import functional as f

LIMIT = 1.5
Function = Callable[..., Tensor]
# For each operator: its functor's expression, the same in PyTorch, and the shapes of its tensors for n elements.
OPERATORS: dict[str, tuple[str, Function, Callable[[int], list[tuple[int, ...]]]]] = {
    "softclip(Tensor x, float limit) -> Tensor": (
        "x / (1 + elementwise::abs(x) / limit)",
        lambda x: x / (1 + x.abs() / LIMIT),
        lambda n: [(n,)],
    ),
    "silu_mul(Tensor x, Tensor y) -> Tensor": (
        "x * elementwise::sigmoid(x) * y",
        lambda x, y: f.silu(x) * y,
        lambda n: [(n,), (n,)],
    ),
    "gelu(Tensor x) -> Tensor": (
        "x / 2 * (1 + elementwise::erf(x * C(0.70710678118654752440)))",
        f.gelu,
        lambda n: [(n,)],
    ),
    "bias_act(Tensor x, Tensor b) -> Tensor": (
        "(x + b > 0 ? x + b : (x + b) * C(0.2)) * C(1.4142135623730950488)",
        lambda x, b: f.leaky_relu(x + b, 0.2) * 2**0.5,
        lambda n: [(max(1, n >> 14), 64, min(256, n >> 6)), (64, 1)] if n > 64 else [(n,), (1,)],
    ),
}


def edit(project: Path) -> None:
    """Write the expression of each operator into its functor."""
    functors = project / "src/functors.h"
    text = functors.read_text()
    for returned in ("x * limit", "x * y", "x", "x * b"):
        expression = next(e for e, *_ in OPERATORS.values() if e not in text)
        text = text.replace(f"return {returned};", f"return {expression};", 1)
    functors.write_text(text)


def by_hand(ours: Any) -> dict[str, Function]:
    """Return handwritten autograd functions for an operator with one gradient and for one with two."""
    ops = torch.ops.tour_ops

    class Softclip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            ctx.save_for_backward(x)
            return ours.softclip(x, LIMIT)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return ops._softclip_by_x(*ctx.saved_tensors, LIMIT, grad)

    class SiluMul(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Any:
            ctx.save_for_backward(x, y)
            return ours.silu_mul(x, y)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return ops._silu_mul_gradients(*ctx.saved_tensors, grad, 0b11)

    return {"softclip": Softclip.apply, "silu_mul": SiluMul.apply}


def both_ways(function: Function, inputs: list[Tensor], grad: Tensor) -> None:
    torch.autograd.grad(function(*inputs), inputs, grad)


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    ours = installed(OPERATORS, edit)
    hand = by_hand(ours)
    for schema, (_, eager, shapes) in OPERATORS.items():
        torch.compiler.reset()
        name = schema.partition("(")[0]
        mine = getattr(ours, name)
        functions = {"functor": partial(mine, limit=LIMIT) if name == "softclip" else mine, "eager": eager}
        compiled = torch.compile(eager, dynamic=True)
        for exponent in (4, 16) if quick else (4, 12, 16, 20, 24):
            inputs = [torch.randn(shape, device=device(), requires_grad=True) for shape in shapes(1 << exponent)]
            grad = torch.randn_like(inputs[0])
            sides = dict(functions)
            if exponent > 12:
                sides["compile"] = compiled
            elif name in hand:
                sides["by hand"] = hand[name]
            case = {"function": name, "numel": 1 << exponent, "work": "forward and backward"}
            yield case, {side: partial(both_ways, of, inputs, grad) for side, of in sides.items()}


if __name__ == "__main__":
    run("derivatives", cases, seconds=2)  # for each of 20 cases
