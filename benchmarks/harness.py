"""Shared code of the benchmarks: build peers and projects, measure each side, print a table, write the JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.cpp_extension import load

import muladd_nb
from muladd_nb import _new
from muladd_nb._bench import BUSY, measure, text

HERE = Path(__file__).parent
C = 0.5
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}

Sides = dict[str, Callable[[], Any]]


def device() -> str:
    return "cuda" if torch.cuda.is_available() and muladd_nb.build_info()["cuda_version"] else "cpu"


def peers() -> Any:
    """Compile peers.cpp once, and return its operators."""
    flags = ["-O3", "-march=native", "-fopenmp"]
    load("muladd_nb_peers", [str(HERE / "peers.cpp")], extra_cflags=flags, is_python_module=False)
    return torch.ops.muladd_nb_peers


def installed(schemas: Iterable[str], edit: Callable[[Path], Any], **kind: bool) -> Any:
    """Generate a project with these operators, edit and install it in a temporary folder, and return the package."""

    def write(parent: Path) -> Path:
        project = _new.create("tour_ops", list(schemas), parent, **kind)
        edit(project)
        return project

    return install("tour_ops", write)


def install(name: str, write: Callable[[Path], Path]) -> Any:
    """Install the project that ``write`` writes into a temporary folder and returns, and return its package."""
    folder = Path(tempfile.mkdtemp())
    project = write(folder)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"]
    cuda = f"--config-settings=setup-args=-Dcuda={'enabled' if device() == 'cuda' else 'disabled'}"
    subprocess.run([*pip, f"--target={folder / 'site'}", cuda, "."], cwd=project, check=True)
    sys.path.insert(0, str(folder / "site"))
    return importlib.import_module(name)


def as_in_the_tour(diff: str) -> Callable[[Path], None]:
    """Return a function that edits a project as the tour in the documentation does, except for the tests."""
    text = (HERE.parent / f"docs/ship/diffs/{diff}.diff").read_text().replace("my_ops", "tour_ops")

    def edit(project: Path) -> None:
        subprocess.run(["git", "apply", "-p0", "--exclude=tests/*"], input=text, text=True, cwd=project, check=True)

    return edit


def eager(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a * b + C


def mul_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.add(torch.mul(a, b), C)


def constant(like: torch.Tensor) -> torch.Tensor:
    """Return the third argument of addcmul: one element, broadcast."""
    return torch.full((1,), C, dtype=like.dtype, device=like.device)


def _processor() -> str:
    if device() == "cuda":
        return torch.cuda.get_device_name()
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]  # noqa: PTH123, SIM115
    return names[0] if names else platform.processor()


def run(
    name: str,
    cases: Callable[[bool], Iterable[tuple[dict[str, Any], Sides]]],
    measure: Callable[..., dict[str, Any]] = measure,
    seconds: float = 3.0,
) -> None:
    """Measure each case, print its ratios, and write all of them to results/NAME.json.

    A case is its description and its sides. Ratios are the times of the other sides divided by that of the first. The
    sides whose quartiles are all below those of the record are printed too, because something may have become slower.
    """
    record = HERE / "results" / f"{name}-{device()}.json"
    recorded = json.loads(record.read_text())["rows"] if record.exists() else []
    parser = argparse.ArgumentParser(description=name)
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds")
    parser.add_argument("--output", type=Path, default=record)
    arguments = parser.parse_args()
    rows = []
    for case, sides in cases(arguments.quick):
        measured = measure(sides, seconds=0.1 if arguments.quick else seconds)
        ratios = "  ".join(f"{side} {text(ratio)}" for side, ratio in measured["ratios"].items())
        mine = next(iter(measured["seconds"].values()))
        note = f"   {BUSY}" if measured["busy"] else ""
        before = next((row["ratios"] for row in recorded if case.items() <= row.items()), {})
        for side, ratio in measured["ratios"].items():
            if side in before and ratio["high"] < before[side]["low"]:
                note += f"   {side} was {text(before[side])}"
        print(f"{' '.join(map(str, case.values())):44} {mine * 1e6:>12.2f} us   {ratios}{note}", flush=True)
        rows.append({**case, **measured})
    report = {
        "machine": {
            "processor": _processor(),
            "threads": torch.get_num_threads(),
            "simd": muladd_nb.build_info()["simd"],
            "python": platform.python_version(),
            "torch": torch.__version__,
            "muladd_nb": muladd_nb.__version__,
        },
        "rows": rows,
    }
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {arguments.output}")
