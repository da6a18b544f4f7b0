"""An operator that `muladd-nb new` wrote and an author edited, softclip, against eager and the compiler."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import DTYPES, HERE, Sides, device, run

from muladd_nb import _new

SCHEMA = "softclip(Tensor x, float limit) -> Tensor"
LIMIT = 1.5


def softclip() -> Any:
    """Write the project of the documentation's tour, install it in a folder of its own, and return the package."""
    folder = Path(tempfile.mkdtemp())
    project = _new.create("tour_ops", [SCHEMA], folder)
    edit = (HERE.parent / "docs/ship/diffs/softclip.diff").read_text().replace("my_ops", "tour_ops")
    subprocess.run(["git", "apply", "-p0"], input=edit, text=True, cwd=project, check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"]
    cuda = f"--config-settings=setup-args=-Dcuda={'enabled' if device() == 'cuda' else 'disabled'}"
    subprocess.run([*pip, f"--target={folder / 'site'}", cuda, "."], cwd=project, check=True)
    sys.path.insert(0, str(folder / "site"))
    return importlib.import_module("tour_ops").softclip


def eager(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs() / LIMIT)


def into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(eager(x))


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    ours = softclip()
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
