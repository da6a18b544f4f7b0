"""Compare generated operators whose functors call exp and similar functions with eager and compiled PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import DTYPES, Sides, device, installed, run
from torch.nn import functional

Eager = Callable[..., torch.Tensor]
ROOT_HALF, ROOT_2_OVER_PI = "C(0.70710678118654752440)", "C(0.79788456080286535588)"
# For each operator: the functor's expression, and the same in PyTorch.
FUNCTIONS: dict[str, tuple[str, Eager]] = {
    "exp": ("elementwise::exp(x)", torch.exp),
    "log": ("elementwise::log(x)", torch.log),
    "sin": ("elementwise::sin(x)", torch.sin),
    "tanh": ("elementwise::tanh(x)", torch.tanh),
    "sigmoid": ("elementwise::sigmoid(x)", torch.sigmoid),
    "silu": ("x * elementwise::sigmoid(x)", functional.silu),
    "gelu": (f"x / 2 * (1 + elementwise::erf(x * {ROOT_HALF}))", functional.gelu),
    "gelu_tanh": (
        f"x / 2 * (1 + elementwise::tanh({ROOT_2_OVER_PI} * (x + C(0.044715) * x * x * x)))",
        partial(functional.gelu, approximate="tanh"),
    ),
    "softplus": ("x > 20 ? x : elementwise::log1p(elementwise::exp(x))", functional.softplus),
    "mish": ("x * elementwise::tanh(elementwise::log1p(elementwise::exp(x)))", functional.mish),
}


def edit(project: Path) -> None:
    """Write the expression of each operator into its functor."""
    functors = project / "src/functors.h"
    text = functors.read_text()
    for expression, _ in FUNCTIONS.values():
        text = text.replace("return x;", f"return {expression};", 1)
    functors.write_text(text)


def into(function: Eager, x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(function(x))


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    ours = installed((f"{name}(Tensor x) -> Tensor" for name in FUNCTIONS), edit)
    for name in ("float32",) if quick else DTYPES:
        for function, (_, eager) in FUNCTIONS.items():
            if quick and function not in ("exp", "gelu"):
                continue
            torch.compiler.reset()
            compiled, compiled_into = torch.compile(eager), torch.compile(partial(into, eager))
            mine = getattr(ours, function)
            has_out = hasattr(torch, function)  # if so, eager also writes into out=
            for exponent in (12, 20) if quick else (12, 16, 20, 24):
                x = torch.randn(1 << exponent, device=device()).abs().to(DTYPES[name])
                if function != "log":
                    x.mul_(torch.randn_like(x).sign())
                out = torch.empty_like(x)
                case = {"function": function, "dtype": name, "numel": 1 << exponent}
                fresh: Sides = {"functor": partial(mine, x), "eager": partial(eager, x)}
                yield {**case, "result": "fresh"}, {**fresh, "compile": partial(compiled, x)}
                with_out = partial(eager, x, out=out) if has_out else partial(into, eager, x, out)
                written: Sides = {"functor": partial(mine, x, out=out), "eager": with_out}
                yield {**case, "result": "out="}, {**written, "compile": partial(compiled_into, x, out)}


if __name__ == "__main__":
    with torch.inference_mode():
        run("functions", cases, seconds=0.6)  # for each of 320 cases
