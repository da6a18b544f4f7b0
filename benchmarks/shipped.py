"""Compare operators that other projects ship (tests/shipped), forward and backward, with eager and compiled PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import HERE, Sides, device, installed, run
from torch import Tensor
from torch.nn import functional as f

SHIPPED = HERE.parent / "tests/shipped"


def swiglu(gate: Tensor, up: Tensor, alpha: float, limit: float) -> Tensor:
    x = gate.clamp(max=limit)
    return (up.clamp(-limit, limit) + 1) * (x * torch.sigmoid(x * alpha))


def gelu_fast(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))


def rope(x1: Tensor, x2: Tensor, cos1: Tensor, cos2: Tensor, sin1: Tensor, sin2: Tensor) -> tuple[Tensor, Tensor]:
    return x1 * cos1 - x2 * sin1, x2 * cos2 + x1 * sin2


def bias_act(x: Tensor, b: Tensor, act: int, alpha: float, gain: float, clamp: float) -> Tensor:
    return (f.leaky_relu(x + b, alpha) * gain).clamp(-clamp, clamp)


def focal_loss(x: Tensor, target: Tensor, column: Tensor, weight: None, gamma: float, alpha: float) -> Tensor:
    p = torch.sigmoid(x)
    of_target = -alpha * (1 - p) ** gamma * p.clamp(min=1.2e-38).log()
    of_others = (alpha - 1) * p**gamma * (1 - p).clamp(min=1.2e-38).log()
    return torch.where(target == column, of_target, of_others)


def normalized(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    norm = (x - mean) * (var + eps).rsqrt()
    return norm, norm * weight + bias


Function = Callable[..., Any]
# For each operator: the reference in PyTorch, and arguments for n elements. A shape means a tensor with a gradient.
OPERATORS: dict[str, tuple[Function, Callable[[int], list[Any]]]] = {
    "silu_and_mul(Tensor x, Tensor y) -> Tensor": (lambda x, y: f.silu(x) * y, lambda n: [(n,), (n,)]),
    "gelu_and_mul(Tensor x, Tensor y) -> Tensor": (lambda x, y: f.gelu(x) * y, lambda n: [(n,), (n,)]),
    "gelu_tanh_and_mul(Tensor x, Tensor y) -> Tensor": (
        lambda x, y: f.gelu(x, approximate="tanh") * y,
        lambda n: [(n,), (n,)],
    ),
    "fatrelu_and_mul(Tensor x, Tensor y, float threshold) -> Tensor": (
        lambda x, y, threshold: f.threshold(x, threshold, 0.0) * y,
        lambda n: [(n,), (n,), 0.5],
    ),
    "swigluoai_and_mul(Tensor gate, Tensor up, float alpha=1.702, float limit=7.0) -> Tensor": (
        swiglu,
        lambda n: [(n,), (n,), 1.702, 7.0],
    ),
    "gelu_fast(Tensor x) -> Tensor": (gelu_fast, lambda n: [(n,)]),
    "gelu_quick(Tensor x) -> Tensor": (lambda x: x * torch.sigmoid(1.702 * x), lambda n: [(n,)]),
    "fused_rope_cached(Tensor x1, Tensor x2, Tensor cos1, Tensor cos2, Tensor sin1, Tensor sin2) -> (Tensor, Tensor)": (
        rope,
        lambda n: [(n >> 11, 16, 128)] * 2 + [torch.rand(n >> 11, 1, 128) for _ in range(4)],
    ),
    "bias_act(Tensor x, Tensor? b=None, int act=3, float alpha=0.2, float gain=1.4142135623730951, "
    "float clamp=-1.0) -> Tensor": (bias_act, lambda n: [(n >> 14, 64, 256), (64, 1), 3, 0.2, 2**0.5, 256.0]),
    "fused_bias_leakyrelu(Tensor x, Tensor? bias=None, float alpha=0.2, float scale=1.4142135623730951) -> Tensor": (
        lambda x, b, alpha, scale: f.leaky_relu(x + b, alpha) * scale,
        lambda n: [(n >> 14, 64, 256), (64, 1), 0.2, 2**0.5],
    ),
    "sigmoid_focal_loss(Tensor x, Tensor target, Tensor of_column, Tensor? weight, float gamma, "
    "float alpha) -> Tensor": (
        focal_loss,
        lambda n: [(n >> 6, 64), torch.randint(64, (n >> 6, 1)), torch.arange(64), None, 2.0, 0.25],
    ),
    "sync_bn_forward_output(Tensor x, Tensor mean, Tensor var, Tensor weight, Tensor bias, float eps) -> "
    "(Tensor, Tensor)": (
        normalized,
        lambda n: [(n >> 14, 64, 256), torch.rand(64, 1), torch.rand(64, 1) + 0.5, (64, 1), (64, 1), 1e-5],
    ),
}


def edit(project: Path) -> None:
    """Copy the functors of tests/shipped into the project."""
    for header in (SHIPPED / "functors.h", SHIPPED.parent / "float8.h"):
        (project / "src" / header.name).write_text(header.read_text().replace("shipped_ops", "tour_ops"))


def forward(function: Function, args: list[Any]) -> Any:
    with torch.no_grad():
        return function(*args)


def forward_and_backward(function: Function, args: list[Any], learned: list[Tensor], grads: Any) -> Any:
    return torch.autograd.grad(function(*args), learned, grads)


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    project = installed(OPERATORS, edit)
    for schema, (eager, arguments) in OPERATORS.items():
        torch.compiler.reset()
        name = schema.partition("(")[0]
        functions = {"functor": getattr(project, name), "eager": eager, "compile": torch.compile(eager, dynamic=True)}
        for numel in (1 << 16, 1 << 22):
            args = [torch.randn(x, requires_grad=True) if isinstance(x, tuple) else x for x in arguments(numel)]
            args = [
                x.to(device()).detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in args
            ]
            learned = [x for x in args if isinstance(x, Tensor) and x.requires_grad]
            results = eager(*args)
            grads = tuple(map(torch.randn_like, results)) if isinstance(results, tuple) else torch.randn_like(results)
            case = {"function": name, "numel": numel}
            if not quick:
                yield {**case, "work": "forward"}, {x: partial(forward, of, args) for x, of in functions.items()}
            yield (
                {**case, "work": "forward and backward"},
                {x: partial(forward_and_backward, of, args, learned, grads) for x, of in functions.items()},
            )


if __name__ == "__main__":
    run("shipped", cases, seconds=0.3)  # for each of 48 cases
