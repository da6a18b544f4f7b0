"""Compiled chains of operators: with ours fused into one loop, with calls of our kernels, and without ours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from harness import DTYPES, C, Sides, device, run

ops = torch.ops.muladd_nb
# The same chain with PyTorch's operators, which round twice.
formulas = SimpleNamespace(mymuladd=lambda a, b, c: a * b + c, mymul=lambda a, b: a * b)


def two(op: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return op.mymuladd(a, b, C).relu()


def three(op: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return op.mymuladd(a.sin(), b, C).cos()


def eight(op: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = op.mymuladd(op.mymul(a + b, b).relu(), a, C).abs() - b
    return op.mymuladd(y, b, a).sigmoid()


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    chains = {"relu(op(a, b))": two, "cos(op(sin(a), b))": three, "eight steps": eight}
    sizes = (16,) if quick else (12, 16, 20, 24)
    for dtype, (name, chain), exponent in itertools.product(("float32", "bfloat16"), chains.items(), sizes):
        torch.compiler.reset()
        a, b = (torch.randn(1 << exponent, device=device()).to(DTYPES[dtype]) for _ in range(2))

        def compiled(op: Any, contract: str, a: Any = a, b: Any = b, chain: Any = chain) -> Callable[[], Any]:
            options: dict[str, Any] = {"cpp.enable_floating_point_contract_flag": contract}
            return partial(torch.compile(partial(chain, op), fullgraph=True, options=options), a, b)

        sides: Sides = {
            "fused": compiled(ops, "off"),
            "calls, compiled": compiled(ops, "on"),  # with contraction on, Inductor does not fuse ours
            "a * b + c, compiled": compiled(formulas, "off"),
            "operator, eager": partial(chain, ops, a, b),
        }
        yield {"work": name, "dtype": dtype, "numel": 1 << exponent}, sides


if __name__ == "__main__":
    run("fusion", cases)
