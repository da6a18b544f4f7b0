"""Timing two or more ways to do one thing, so that their ratio means something on a noisy machine.

The sides run alternately in one process, each for the same short time, and the medians are compared.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

import muladd_nb

from ._check import cxx_compiler, devices

_C = 0.5


def measure(sides: Mapping[str, Callable[[], Any]], *, rounds: int = 9, seconds: float = 0.02) -> dict[str, float]:
    """Return the median time of one call of each side, in seconds; `seconds` is a side's share of a round."""
    timers = {
        name: Timer("f()", globals={"f": side}, num_threads=torch.get_num_threads()) for name, side in sides.items()
    }
    calls = {name: max(1, round(seconds / timer.timeit(3).median)) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, timer in timers.items():
            times[name].append(timer.timeit(calls[name]).median)
    return {name: statistics.median(values) for name, values in times.items()}


def run(*, brief: bool = False) -> Iterator[dict[str, Any]]:
    """Yield a row for each size: the time of ``mymuladd`` and of each alternative."""
    device = devices()[-1]

    compiled = torch.compile(_eager, dynamic=True) if device == "cuda" or cxx_compiler() else None
    c = torch.full((1,), _C, device=device)
    for numel in (16, 1 << 14, 1 << 20, 1 << 24):
        a, b = torch.randn(numel, device=device), torch.randn(numel, device=device)
        sides: dict[str, Callable[[], Any]] = {
            "mymuladd": functools.partial(muladd_nb.mymuladd, a, b, _C),
            "eager": functools.partial(_eager, a, b),
            "addcmul": functools.partial(torch.addcmul, c, a, b),
        }
        if compiled is not None:
            sides["compile"] = functools.partial(compiled, a, b)
        times = measure(sides, rounds=5 if brief else 15)
        yield {"device": device, "dtype": "float32", "numel": numel, "seconds": times}


def _eager(a: Tensor, b: Tensor) -> Tensor:
    return a * b + _C


def header(row: Mapping[str, Any]) -> str:
    """Return the head of the table that `row` is the first line of."""
    return f"{'float32 elements':>18} {'mymuladd':>12}" + "".join(f"{name:>10}" for name in list(row["seconds"])[1:])


def line(row: Mapping[str, Any]) -> str:
    """Return the line of the table for `row`: the time of ``mymuladd``, then ratios."""
    mine, *others = row["seconds"].values()
    return f"{row['numel']:>18,} {mine * 1e6:>9.1f} us" + "".join(f"{other / mine:>9.2f}x" for other in others)
