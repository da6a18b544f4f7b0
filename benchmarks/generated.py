"""Compare softclip, which `muladd-nb new` generates and the tour edits, with eager and compiled PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from harness import DTYPES, Sides, as_in_the_tour, device, installed, run

SCHEMA = "softclip(Tensor x, float limit) -> Tensor"
LIMIT = 1.5


def eager(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs() / LIMIT)


def into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(eager(x))


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    ours = installed([SCHEMA], as_in_the_tour("softclip")).softclip
    for name in ("float32",) if quick else ("float32", "float16", "bfloat16"):
        for exponent in (12, 20) if quick else (12, 16, 20, 24):
            torch.compiler.reset()
            x = torch.randn(1 << exponent, device=device()).to(DTYPES[name])
            out = torch.empty_like(x)
            case = {"dtype": name, "numel": 1 << exponent}
            fresh: Sides = {"softclip": partial(ours, x, LIMIT), "eager": partial(eager, x)}
            yield {**case, "result": "fresh"}, {**fresh, "compile": partial(torch.compile(eager), x)}
            written: Sides = {"softclip": partial(ours, x, LIMIT, out=out), "eager": partial(into, x, out)}
            yield {**case, "result": "out="}, {**written, "compile": partial(torch.compile(into), x, out)}


if __name__ == "__main__":
    with torch.inference_mode():
        run("generated", cases)
