"""What muladd_nb.config.fuse_when_compiling gains in a chain of element-wise work that is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from harness import C, Sides, device, run

import muladd_nb

ops = torch.ops.muladd_nb


def short(op: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return op.mymuladd(a.sin(), b, C).cos()


def long(op: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return op.mymuladd(op.mymul(a + b, b).relu(), a, C).abs() - b


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    muladd_nb.config.fuse_when_compiling = True  # read by the public functions, not by torch.ops
    for name, chain in {"cos(op(sin(a), b))": short, "six steps": long}.items():
        for exponent in (16,) if quick else (12, 16, 20, 24):
            torch.compiler.reset()
            a, b = (torch.randn(1 << exponent, device=device()) for _ in range(2))
            sides: Sides = {
                "fused": partial(torch.compile(partial(chain, muladd_nb), fullgraph=True), a, b),
                "operator, compiled": partial(torch.compile(partial(chain, ops), fullgraph=True), a, b),
                "operator, eager": partial(chain, ops, a, b),
            }
            yield {"work": name, "numel": 1 << exponent}, sides


if __name__ == "__main__":
    run("fusion", cases)
