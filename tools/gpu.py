"""Run everything that needs a GPU, and write the results into docs/gpu/report.md, which the site shows.

    python tools/gpu.py [--quick] [--dry-run]

`nox -s gpu` runs this after everything that needs no GPU. Without a GPU, or with --dry-run, it only prints the
commands.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

import muladd_nb

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs/gpu/report.md"
WORK = Path(tempfile.mkdtemp())
PYTEST = str(Path(sys.executable).with_name("pytest"))  # `python -m pytest` would import the sources in this folder
PROJECTS = ["over_rows", "shipped", "new_ten"]
SANITIZED = ["tests/test_layout.py", "tests/test_out.py", "tests/test_rounding.py"]


@dataclass
class Step:
    """A command, and its text in the report."""

    name: str
    command: list[str]
    result: Callable[[str], str]
    devices: int = 1


def pytest(name: str, *arguments: str, devices: int = 1) -> Step:
    """Return a step that runs tests in one process, because they share the device."""
    results = WORK / f"{abs(hash(name))}.xml"

    def counts(_: str) -> str:
        suite = ET.parse(results).find("testsuite")
        counted = {key: int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")}  # type: ignore[union-attr]
        failed = counted["failures"] + counted["errors"]
        return (
            f"{counted['tests'] - failed - counted['skipped']:,} passed, {failed} failed, {counted['skipped']} skipped"
        )

    command = [PYTEST, "-q", "-n0", f"--junitxml={results}", *arguments]
    return Step(name, command, counts, devices)


def sanitizer(tool: str) -> Step:
    """Return the step that runs the tests of layouts, `out` and rounding under a tool of compute-sanitizer."""
    program = shutil.which("compute-sanitizer") or packaged("compute-sanitizer") or "false"  # false: the step fails
    options = ["--tool", tool, "--error-exitcode", "1", "--target-processes", "all"]
    tests = [PYTEST, "-q", "-n0", "-k", "cuda and not 2_to_the_31", *SANITIZED]

    def summary(output: str) -> str:
        found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", output)
        return found[-1] if found else "no summary"

    return Step(f"compute-sanitizer, {tool}", [program, *options, *tests], summary)


def packaged(program: str) -> str | None:
    """Return the path of a program in the package nvidia-cuda-sanitizer-api, or None if that is not installed."""
    try:
        files = importlib.metadata.files("nvidia-cuda-sanitizer-api") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == program), None)


def benchmark(name: str, *, quick: bool) -> Step:
    """Return a step that runs a benchmark; benchmarks/report.py draws its results."""
    output = ROOT / f"benchmarks/results/{name}-cuda.json"
    command = [sys.executable, f"benchmarks/{name}.py", "--output", str(output), *(["--quick"] if quick else [])]
    return Step(f"benchmarks/{name}.py", command, lambda _: f"{len(json.loads(output.read_text())['rows'])} cases")


def steps(*, quick: bool) -> list[Step]:
    """Return all steps, the most useful ones first."""
    return [
        pytest("all tests on CUDA: bits, graphs, streams, 2^31 elements", "-m", "", "-k", "cuda"),
        pytest("projects: rows, what others ship, the tour", "-m", "slow", *(f"tests/test_{x}.py" for x in PROJECTS)),
        pytest("two devices: the tensors' own, and NCCL", "-m", "", "-k", "second_device or cuda-2", devices=2),
        sanitizer("memcheck"),
        sanitizer("racecheck"),
        *(benchmark(name, quick=quick) for name in ("throughput", "strided", "per_call", "generated", "rows")),
    ]


def machine() -> dict[str, str]:
    """Return the machine and the versions with which the numbers were measured."""
    driver = Path("/sys/module/nvidia/version")
    info = muladd_nb.build_info()
    return {
        "GPU": " and ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())),
        "driver": driver.read_text().strip() if driver.exists() else "unknown",
        "torch": torch.__version__,
        "kernels compiled by": f"CUDA {info['cuda_version']}, for {', '.join(info['cuda_architectures'] or [])}",
    }


def bandwidth() -> Iterable[str]:
    """Yield a table of each case's share of the bandwidth of a copy, and its ratios to the other sides."""
    file = ROOT / "benchmarks/results/throughput-cuda.json"
    if not file.exists():
        return
    rows = json.loads(file.read_text())["rows"]
    sides = ["eager", "addcmul", "compile", "Triton"]
    yield "| dtype | elements | GB/s | of a copy's bandwidth | " + " | ".join(sides) + " |"
    yield "|---|--:|--:|--:|" + "--:|" * len(sides)
    fresh = {(row["dtype"], row["numel"]): row for row in rows if row["result"] == "fresh"}
    size = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
    for row in rows:
        if row["result"] != "out=":
            continue
        key = row["dtype"], row["numel"]
        seconds = row["seconds"]
        moved = 3 * row["numel"] * size[row["dtype"]]  # we read two arrays and write one; a copy moves two
        times = {name: ratio["median"] for of in (fresh[key], row) for name, ratio in of["ratios"].items()}
        share = 1.5 * seconds["copy"] / seconds["mymuladd_out"]
        cells = [f"{times[side]:.2f}x" if side in times else "" for side in sides]
        yield (
            f"| {row['dtype']} | {row['numel']:,} | {moved / seconds['mymuladd_out'] / 1e9:,.0f} | {share:.2f} | "
            + " | ".join(cells)
            + " |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cases of each benchmark")
    parser.add_argument("--dry-run", action="store_true", help="only print the commands")
    arguments = parser.parse_args()
    devices = torch.cuda.device_count() if muladd_nb.build_info()["cuda_version"] else 0
    if arguments.dry_run or devices == 0:
        for step in steps(quick=arguments.quick):
            print(f"needs {step.devices} GPU{'s' * (step.devices > 1)}: {step.name}\n    {shlex.join(step.command)}")
        print(f"{devices} GPUs for kernels that are built: nothing of this was run, and {REPORT} is as it was")
        return 0
    done = ["| what | result | seconds |", "|---|---|--:|"]
    failed = 0
    for step in steps(quick=arguments.quick):
        if devices < step.devices:
            done.append(f"| {step.name} | not run: needs {step.devices} devices | |")
            continue
        print(f"=== {step.name}", flush=True)
        start = time.perf_counter()
        run = subprocess.run(
            step.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env=os.environ | ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if "sanitizer" in step.name else {}),
        )  # fmt: skip
        print(run.stdout)
        try:
            result = step.result(run.stdout)
        except (OSError, KeyError, ET.ParseError):  # the step ended before it wrote its results
            result = "no result"
        if run.returncode != 0:
            failed += 1
            result = f"**failed**: {result}"
        done.append(f"| {step.name} | {result} | {time.perf_counter() - start:,.0f} |")
        about = "".join(f"{key}\n: {value}\n\n" for key, value in machine().items())
        tables = [about.rstrip(), "\n".join(done), "\n".join(bandwidth())]
        REPORT.write_text("\n\n".join(table for table in tables if table) + "\n")  # after each step, in case of a crash
    print(REPORT.read_text())
    return failed


if __name__ == "__main__":
    sys.exit(main())
