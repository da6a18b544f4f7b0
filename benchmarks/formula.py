"""Compare an operator with fused="formula", for which Inductor compiles its formula, with the formula itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from generated import LIMIT, SCHEMA, eager
from harness import DTYPES, Sides, as_in_the_tour, device, installed, run
from torch import Tensor


def edit(project: Path) -> None:
    as_in_the_tour("softclip")(project)
    table = project / "python/tour_ops/_operators.py"
    row = 'Elementwise(formula=lambda x, limit: x / (1 + x.abs() / limit), fused="formula")'
    table.write_text(table.read_text().replace("Elementwise()", row))


def both_ways(function: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> None:
    torch.autograd.grad(function(x), x, grad)


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    public = installed([SCHEMA], edit).softclip
    ours = torch.ops.tour_ops.softclip
    for name in ("float32",) if quick else ("float32", "bfloat16"):
        for exponent in (12,) if quick else (12, 16, 20, 24):
            torch.compiler.reset()
            x, grad = (torch.randn(1 << exponent, device=device()).to(DTYPES[name]) for _ in range(2))
            functions = {
                "softclip, compiled": torch.compile(lambda x: ours(x, LIMIT), fullgraph=True),
                "its formula, compiled": torch.compile(lambda x: eager(x), fullgraph=True),
                "public function, compiled": torch.compile(lambda x: public(x, LIMIT), fullgraph=True),
                "softclip, eager": lambda x: public(x, LIMIT),
                "its formula, eager": eager,
            }
            case = {"dtype": name, "numel": 1 << exponent}
            yield {"work": "forward", **case}, {side: partial(f, x) for side, f in functions.items()}
            x = x.clone().requires_grad_()
            sides: Sides = {side: partial(both_ways, f, x, grad) for side, f in functions.items()}
            yield {"work": "forward and backward", **case}, sides


if __name__ == "__main__":
    run("formula", cases)
