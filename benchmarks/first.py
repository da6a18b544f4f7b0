"""Measures what a program pays once: its import, its first calls, eager and compiled, and its peak of memory.

The sides take turns, and each run is a new process. It prints how many seconds its work takes, or by how many GiB its
resident memory grows at most. The caches of torch.compile are off.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import SourceFileLoader
from typing import Any

from harness import Sides, run

BEGIN = "import resource, time, torch\n"
OURS, EAGER = "muladd_nb.mymuladd(a, b, 0.5)", "a * b + 0.5"
TENSORS = "import muladd_nb\na, b = (torch.randn({}, requires_grad={}) for _ in range(2))\n"
TIMED = "start = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"
PEAK = (
    "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20\n"
    "before = peak()\n({}).sum().backward()\nprint(peak() - before)"
)
ROUNDS = 9


def in_new_process(program: str) -> float:
    """Return the number that a program prints."""
    environment = os.environ | {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    return float(ran.stdout)


def measure(sides: Sides, *, seconds: float) -> dict[str, Any]:
    """Run rounds of new processes, one process for each side in a round."""
    rounds = [{name: side() for name, side in sides.items()} for _ in range(ROUNDS if seconds > 1 else 2)]
    mine, *others = sides
    ratios = {}
    for other in others:
        low, median, high = statistics.quantiles((one[other] / one[mine] for one in rounds), n=4, method="inclusive")
        ratios[other] = {"low": low, "median": median, "high": high}
    return {
        "seconds": {name: statistics.median(one[name] for one in rounds) for name in sides},
        "ratios": ratios,
        "busy": False,
    }


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    def side(*parts: str) -> Callable[[], float]:
        return partial(in_new_process, BEGIN + "".join(parts))

    if type(importlib.util.find_spec("muladd_nb").loader) is not SourceFileLoader:
        sys.exit("an editable install compiles all Python files at each import: install the package without -e")
    importing = TIMED.format("import muladd_nb")
    yield {"work": "import"}, {"mymuladd": side(importing)}
    small, large = TENSORS.format(16, False), TENSORS.format(1 << 24, True)
    works = {
        "first call": (small, TIMED, "{}"),
        "first compiled call": (small, TIMED, "torch.compile(lambda a, b: {})(a, b)"),
        "peak memory, forward and backward": (large, PEAK, "{}"),
    }
    for work, (tensors, template, call) in works.items():
        sides = {
            name: side(tensors, template.format(call.format(it))) for name, it in (("mymuladd", OURS), ("eager", EAGER))
        }
        yield {"work": work}, sides


if __name__ == "__main__":
    run("first", cases, measure)
