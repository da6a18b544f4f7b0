"""Fresh results in new processes, with huge pages and without. fragment.py runs this in fragmented memory.

The time of a fresh result depends on the pages that the kernel has ready, which differs from process to process. So
each side runs in many new processes, one after another, in random order. For each process we take the median of its
calls, the first call, and all calls together, and compare with the median process without huge pages. Low, median and
high are the 10th, 50th and 90th percentiles of the processes.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import torch
from harness import DTYPES, C, Sides, run

import muladd_nb

THREADS = torch.get_num_threads()
CALLS = 11
ROUNDS_A_SECOND = 7
CASES = [("float32", 22), ("float32", 24), ("float32", 26), ("float16", 24)]

COUNTED: dict[str, Callable[[list[float]], float]] = {
    "median call": statistics.median,
    "first call": lambda calls: calls[0],
    "all calls": sum,
}

forks = multiprocessing.get_context("fork")


def without_huge_pages(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    os.environ["MULADD_NB_HUGEPAGES"] = "0"  # read once, at the first large result of a process
    return muladd_nb.mymuladd(a, b, C)


def calls_in_new_process(side: Callable[[], Any]) -> list[float]:
    """Return how long each call of `side` takes in a new process."""
    receiver, sender = forks.Pipe(duplex=False)

    def call() -> None:
        torch.set_num_threads(THREADS)
        torch.ones(1 << 20).add_(1)  # starts the threads
        times = []
        for _ in range(CALLS):
            start = time.perf_counter()
            side()
            times.append(time.perf_counter() - start)
        sender.send(times)

    process = forks.Process(target=call)
    process.start()
    sender.close()  # only the child holds the other end, so we do not wait if it fails
    times: list[float] = receiver.recv()
    process.join()
    return times


def measure(sides: Sides, *, seconds: float) -> dict[str, Any]:
    """Run rounds of new processes, one process for each side in a round."""
    mine, without = sides
    processes: dict[str, list[list[float]]] = {name: [] for name in sides}
    order, lot = list(sides), Random(0)
    for _ in range(max(3, round(ROUNDS_A_SECOND * seconds))):
        lot.shuffle(order)
        for name in order:
            processes[name].append(calls_in_new_process(sides[name]))
    ratios = {}
    for counted, count in COUNTED.items():
        usual = statistics.median(map(count, processes[without]))
        deciles = statistics.quantiles((usual / count(calls) for calls in processes[mine]), n=10, method="inclusive")
        ratios[counted] = {"low": deciles[0], "median": deciles[4], "high": deciles[8]}
    seconds_of = {name: statistics.median(map(statistics.median, calls)) for name, calls in processes.items()}
    return {"seconds": seconds_of, "ratios": ratios, "busy": False}


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    torch.set_num_threads(1)  # threads do not survive a fork, so start none here
    for name, exponent in CASES:
        a, b = (torch.randn(1 << exponent).to(DTYPES[name]) for _ in range(2))
        sides: Sides = {
            "mymuladd": partial(muladd_nb.mymuladd, a, b, C),
            "without huge pages": partial(without_huge_pages, a, b),
        }
        yield {"dtype": name, "numel": 1 << exponent}, sides
    torch.set_num_threads(THREADS)  # the report shows the threads of the processes


if __name__ == "__main__":
    run("fresh_pages", cases, measure)
