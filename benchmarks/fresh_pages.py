"""Fresh results in new processes, with huge pages and without; in fragmented memory, where fragment.py runs this.

What a fresh result costs depends on the pages that the kernel has ready, and that differs from process to process. So
each side runs in a process of its own, in turns with the others, and that in many rounds. Low, median and high are the
10th, 50th and 90th percentile over the rounds, of which each counts with the median of its calls, or with the first.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from harness import DTYPES, C, Sides, constant, run

import muladd_nb

THREADS = torch.get_num_threads()
CALLS = 11
ROUNDS_A_SECOND = 5
CASES = [("float32", 22), ("float32", 24), ("float32", 26), ("float16", 24)]

forks = multiprocessing.get_context("fork")


def without_huge_pages(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    os.environ["MULADD_NB_HUGEPAGES"] = "0"  # read once, at the first large result of a process
    return muladd_nb.mymuladd(a, b, C)


class Process:
    """One that has just begun, calls a side when it is asked to, and answers how long that took."""

    def __init__(self, side: Callable[[], Any]) -> None:
        self._pipe, other = forks.Pipe()
        self._process = forks.Process(target=self._serve, args=(side, other), daemon=True)
        self._process.start()

    @staticmethod
    def _serve(side: Callable[[], Any], pipe: Any) -> None:
        torch.set_num_threads(THREADS)
        torch.ones(1 << 20).add_(1)  # starts them
        while pipe.recv():
            start = time.perf_counter()
            side()
            pipe.send(time.perf_counter() - start)

    def seconds(self) -> float:
        self._pipe.send(True)
        return float(self._pipe.recv())

    def end(self) -> None:
        self._pipe.send(False)
        self._process.join()


def measure(sides: Sides, *, seconds: float) -> dict[str, Any]:
    """Run rounds of new processes, one for each side."""
    firsts, medians = [], []
    for _ in range(max(3, round(ROUNDS_A_SECOND * seconds))):
        running = {name: Process(side) for name, side in sides.items()}
        calls = [{name: process.seconds() for name, process in running.items()} for _ in range(CALLS)]
        for process in running.values():
            process.end()
        firsts.append(calls[0])
        medians.append({name: statistics.median(call[name] for call in calls) for name in sides})
    return {
        "seconds": {name: statistics.median(times[name] for times in medians) for name in sides},
        "ratios": percentiles(medians) | {f"{name}, first call": of for name, of in percentiles(firsts).items()},
        "busy": False,
    }


def percentiles(rounds: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    mine, *others = rounds[0]
    ratios = {name: [times[name] / times[mine] for times in rounds] for name in others}
    deciles = {name: statistics.quantiles(of, n=10, method="inclusive") for name, of in ratios.items()}
    return {name: {"low": of[0], "median": of[4], "high": of[8]} for name, of in deciles.items()}


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    torch.set_num_threads(1)  # threads do not live on in a fork, so here are none
    for name, exponent in CASES:
        a, b = (torch.randn(1 << exponent).to(DTYPES[name]) for _ in range(2))
        sides: Sides = {
            "mymuladd": partial(muladd_nb.mymuladd, a, b, C),
            "without huge pages": partial(without_huge_pages, a, b),
            "addcmul": partial(torch.addcmul, constant(a), a, b),
        }
        yield {"dtype": name, "numel": 1 << exponent}, sides
    torch.set_num_threads(THREADS)  # what the processes had, for the report


if __name__ == "__main__":
    run("fresh_pages", cases, measure)
