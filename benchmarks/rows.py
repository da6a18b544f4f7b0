"""Compare rms_norm, the tour's operator over rows, and its derivative with eager and compiled PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from harness import DTYPES, Sides, as_in_the_tour, device, installed, run

SCHEMA = "rms_norm(Tensor x, Tensor weight, float eps) -> Tensor"
EPS = 1e-5

Norm = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def eager(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, EPS)


def forward_and_backward(norm: Norm, x: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor) -> Any:
    return torch.autograd.grad(norm(x, weight), (x, weight), gradient)


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    package = installed([SCHEMA], as_in_the_tour("rms_norm"), rows=True)

    def ours(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return package.rms_norm(x, weight, EPS)

    for name in ("float32",) if quick else DTYPES:
        for rows, columns in ((4096, 1024), (64, 4096)):
            torch.compiler.reset()
            norms: dict[str, Norm] = {"rms_norm": ours, "eager": eager, "compile": torch.compile(eager, dynamic=False)}
            x, gradient = (torch.randn(rows, columns, device=device()).to(DTYPES[name]) for _ in range(2))
            weight = torch.randn(columns, device=device()).to(DTYPES[name])
            case = {"dtype": name, "rows": rows, "columns": columns}
            yield {**case, "work": "forward"}, {side: partial(norm, x, weight) for side, norm in norms.items()}
            learned = [y.clone().requires_grad_() for y in (x, weight)]
            sides: Sides = {
                side: partial(forward_and_backward, norm, *learned, gradient) for side, norm in norms.items()
            }
            yield {**case, "work": "forward and backward"}, sides


if __name__ == "__main__":
    run("rows", cases)
