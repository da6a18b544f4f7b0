"""Non-contiguous float32 inputs, read in place; they have 2048 x 4096 elements unless a case says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from harness import C, Sides, constant, device, eager, run

import muladd_nb

ops = torch.ops.muladd_nb
ROWS, COLUMNS = 2048, 4096


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=device())


def columns(m: torch.Tensor, *parts: slice) -> tuple[torch.Tensor, ...]:
    return tuple(m[:, part] for part in parts)


def halves(rows: int) -> tuple[torch.Tensor, ...]:
    return columns(tensor(rows, 32), slice(16), slice(16, None))


def square(n: int) -> tuple[torch.Tensor, ...]:
    m = tensor(n, n)
    return m, m.t()


LAYOUTS = {
    "both transposed": lambda: (tensor(COLUMNS, ROWS).t(), tensor(COLUMNS, ROWS).t()),
    "one transposed": lambda: (tensor(ROWS, COLUMNS), tensor(COLUMNS, ROWS).t()),
    "row slices": lambda: (tensor(2 * ROWS, COLUMNS)[::2], tensor(2 * ROWS, COLUMNS)[::2]),
    "every other column": lambda: (tensor(ROWS, 2 * COLUMNS)[:, ::2], tensor(ROWS, 2 * COLUMNS)[:, ::2]),
    "even with odd columns": lambda: columns(tensor(ROWS, 2 * COLUMNS), slice(0, None, 2), slice(1, None, 2)),
    "rows of 16 of 32": lambda: halves(ROWS * COLUMNS // 16),
    "1,024 rows of 16 of 32": lambda: halves(1024),
    "64 rows of 16 of 32": lambda: halves(64),
    "expanded row": lambda: (tensor(ROWS, COLUMNS), tensor(1, COLUMNS).expand(ROWS, COLUMNS)),
    "expanded column": lambda: (tensor(ROWS, COLUMNS), tensor(ROWS, 1).expand(ROWS, COLUMNS)),
    "channels last": lambda: tuple(tensor(16, 64, 64, 128).to(memory_format=torch.channels_last) for _ in range(2)),
    "NCHW with NHWC": lambda: (
        tensor(16, 64, 64, 128),
        tensor(16, 64, 64, 128).to(memory_format=torch.channels_last),
    ),
    "100 x 100 with its transpose": lambda: square(100),
}


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    for layout, make in LAYOUTS.items():
        a, b = make()
        c, out = constant(a), torch.empty_like(a)
        fresh: Sides = {
            "mymuladd": partial(muladd_nb.mymuladd, a, b, C),
            "eager": partial(eager, a, b),
            "addcmul": partial(torch.addcmul, c, a, b),
        }
        yield {"result": "fresh", "layout": layout}, fresh
        with torch.inference_mode():
            into: Sides = {
                "mymuladd_out": partial(ops.mymuladd_out, a, b, C, out),
                "addcmul": partial(torch.addcmul, c, a, b, out=out),
            }
            yield {"result": "out=", "layout": layout}, into


if __name__ == "__main__":
    run("strided", cases)
