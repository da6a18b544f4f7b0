"""Compare operators over rows (tests/over_rows), forward and backward, with eager and compiled PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from harness import DTYPES, HERE, Sides, device, install, run
from torch import Tensor
from torch.nn import functional as f

sys.path.insert(0, str(HERE.parent / "tests/over_rows"))
from project import write_project

EPS = 1e-5
SHAPES = ((64, 4096), (4096, 1024), (16384, 64), (256, 1000), (1, 1 << 22))

Function = Callable[..., Any]


def int8_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, True).float() / 127
    return (x / scale).round().clamp(-127, 127).to(torch.int8), scale[..., 0]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return f.cross_entropy(logits, labels, reduction="none")


# For each operator: the reference in PyTorch, and its tensors for a shape and a dtype. All but labels have a gradient.
OPERATORS: dict[str, tuple[Function, Callable[..., list[Tensor]]]] = {
    "softmax": (lambda x: f.softmax(x, -1), lambda x, w: [x]),
    "log_softmax": (lambda x: f.log_softmax(x, -1), lambda x, w: [x]),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), lambda x, w: [x]),
    "layer_norm": (lambda x, w, b: f.layer_norm(x, w.shape, w, b, EPS), lambda x, w: [x, w, w]),
    "rms_norm": (lambda x, w: f.rms_norm(x, w.shape, w, EPS), lambda x, w: [x, w]),
    "cross_entropy": (cross_entropy, lambda x, w: [x, torch.randint(x.shape[1], x.shape[:1], device=x.device)]),
    "int8_quant": (int8_quant, lambda x, w: [x]),
}


def forward_and_backward(function: Function, tensors: list[Tensor], learned: list[Tensor], gradient: Tensor) -> Any:
    return torch.autograd.grad(function(*tensors), learned, gradient)


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    operators = install("row_ops", lambda parent: write_project(parent, *OPERATORS))
    for dtype in ("float32",) if quick else ("float32", "bfloat16"):
        for rows, columns in SHAPES[:1] if quick else SHAPES:
            for name, (eager, tensors_of) in OPERATORS.items():
                torch.compiler.reset()
                ours: Function = getattr(operators, name)
                functions = {name: ours, "eager": eager, "compile": torch.compile(eager, dynamic=False)}
                x, weight = (torch.randn(of, device=device()).to(DTYPES[dtype]) for of in ((rows, columns), columns))
                tensors = tensors_of(x, weight)
                case = {"function": name, "dtype": dtype, "rows": rows, "columns": columns}
                yield {**case, "work": "forward"}, {side: partial(g, *tensors) for side, g in functions.items()}
                if name == "int8_quant":
                    continue
                tensors = [y.clone().requires_grad_(y.is_floating_point()) for y in tensors]
                learned = [y for y in tensors if y.requires_grad]
                gradient = torch.randn_like(ours(*tensors))
                sides: Sides = {
                    side: partial(forward_and_backward, g, tensors, learned, gradient) for side, g in functions.items()
                }
                yield {**case, "work": "forward and backward"}, sides


if __name__ == "__main__":
    run("rows", cases)
