"""A layer `x * gamma + beta`, forward and backward, and a training step of a network that contains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from harness import Sides, device, run
from torch import Tensor, nn

import muladd_nb


def fused(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return muladd_nb.mymuladd(x, gamma, beta)


def eager(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return x * gamma + beta


class Network(nn.Module):
    def __init__(self, width: int, modulate: Callable[..., Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, 10)
        self.gamma, self.beta = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.modulate = modulate

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.modulate(self.first(x), self.gamma, self.beta).relu())


def layer(modulate: Callable[..., Tensor], x: Tensor, gamma: Tensor, beta: Tensor, grad: Tensor) -> None:
    x.grad = gamma.grad = beta.grad = None
    modulate(x, gamma, beta).backward(grad)


def training_step(network: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(x), y).backward()
    optimizer.step()


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    functions = {"mymuladd": fused, "eager": eager, "compile": torch.compile(eager)}
    for rows, width in ((64, 64),) if quick else ((64, 64), (1024, 256), (8192, 512)):
        shape = f"{rows} x {width}"
        x = torch.randn(rows, width, device=device(), requires_grad=True)
        gamma, beta = (torch.randn(width, device=device(), requires_grad=True) for _ in range(2))
        grad = torch.randn(rows, width, device=device())
        yield (
            {"work": "the layer, forward and backward", "shape": shape},
            {name: partial(layer, function, x, gamma, beta, grad) for name, function in functions.items()},
        )
        y = torch.randint(10, (rows,), device=device())
        networks = {name: Network(width, functions[name]).to(device()) for name in ("mymuladd", "eager")}
        yield (
            {"work": "a training step", "shape": shape},
            {
                name: partial(training_step, network, torch.optim.SGD(network.parameters(), 0.01), x.detach(), y)
                for name, network in networks.items()
            },
        )


if __name__ == "__main__":
    run("model", cases)
