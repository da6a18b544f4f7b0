"""Compares the time of two or more functions, on a machine that may be busy.

The functions run in turns of a millisecond, so that other load slows all of them. A round has one turn of each, and the
result is the median of the rounds' ratios. A round in which a thread waited for a processor does not count. If too few
rounds count, or their ratios are far apart, the machine was too busy to tell.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import muladd_nb

from ._check import cxx_compiler, devices

_NUMBER = 0.5
_TURN = 0.001  # seconds
_ROUNDS = 11  # at least; with fewer rounds, quartiles mean little
_WAITED = 0.02  # the share of a round's time that its threads may wait for a processor
_FAR_APART = 2.0  # upper quartile over lower quartile; huge pages alone make it 1.5

SIZES = (16, 1 << 14, 1 << 20, 1 << 24)
_LARGE = 1 << 20
BUSY = "too busy to tell"


def measure(sides: Mapping[str, Callable[[], Any]], *, seconds: float = 2.0, patience: float = 3) -> dict[str, Any]:
    """Run the functions ``sides`` in turns for ``seconds``; on a busy machine up to ``patience`` times as long.

    Returns
    -------
    dict
        ``seconds``: the median time of one call of each function. ``ratios``: how many times as long as the first
        function each other one takes, as ``median`` and the quartiles ``low`` and ``high``. ``busy``: whether the
        machine was too busy to tell.
    """
    timers = {name: timeit.Timer(side, timer=_now) for name, side in sides.items()}
    calls = {}
    for name, timer in timers.items():
        timer.timeit(2)  # compiles, and touches memory
        calls[name] = max(1, round(_TURN / min(timer.repeat(3, 1))))
    rounds: list[dict[str, float]] = []
    undisturbed: list[dict[str, float]] = []
    start = _now()
    while True:
        began, waiting = _now(), _waiting()
        # The order changes, so that no function always runs after the same one. Its first call is not timed: the one
        # before may have returned memory to the system, and then each new page of a result is a page fault.
        times_of: dict[str, float] = {}
        for name in list(timers)[:: -1 if len(rounds) % 2 else 1]:
            timers[name].timeit(1)
            times_of[name] = timers[name].timeit(calls[name]) / calls[name]
        rounds.append(times_of)
        now = _now()
        if _waiting() - waiting <= _WAITED * (now - began):
            undisturbed.append(rounds[-1])
        enough = len(undisturbed) >= _ROUNDS
        if len(rounds) >= _ROUNDS and now - start >= seconds * (1 if enough else patience):
            break
    counted = undisturbed if enough else rounds
    first, *others = sides
    quartiles = {name: statistics.quantiles(times[name] / times[first] for times in counted) for name in others}
    return {
        "seconds": {name: statistics.median(times[name] for times in counted) for name in sides},
        "ratios": {name: dict(zip(("low", "median", "high"), of, strict=True)) for name, of in quartiles.items()},
        "busy": not enough or any(high > _FAR_APART * low for low, _, high in quartiles.values()),
    }


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _waiting() -> float:
    """Return how many seconds threads of this process have waited for a processor; 0 if the system does not say."""
    nanoseconds = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has ended
            nanoseconds += int(file.read_text().split()[1])
    return nanoseconds * 1e-9


def run(*, brief: bool = False) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield a name and a function for each size. The function measures ``mymuladd`` and its alternatives."""
    slow = not brief and (devices()[-1] == "cuda" or cxx_compiler())
    compiled = torch.compile(_eager, dynamic=True) if slow else None
    for numel in SIZES:
        yield f"{numel:,} elements", functools.partial(_row, numel, compiled, 0.5 if brief else 1.5)


def _row(numel: int, compiled: Callable[..., Any] | None, seconds: float) -> dict[str, Any]:
    device = devices()[-1]
    a, b = torch.randn(numel, device=device), torch.randn(numel, device=device)
    sides: dict[str, Callable[[], Any]] = {
        "mymuladd": functools.partial(muladd_nb.mymuladd, a, b, _NUMBER),
        "eager": functools.partial(_eager, a, b),
        "addcmul": functools.partial(torch.addcmul, torch.full((1,), _NUMBER, device=device), a, b),
    }
    if compiled is not None:
        sides["compile"] = functools.partial(compiled, a, b)
    # The verdict is about the largest size. One round of it takes a tenth of a second.
    row = {"device": device, "dtype": "float32", "numel": numel}
    return row | measure(sides, seconds=seconds, patience=5 / seconds)


def _eager(a: Tensor, b: Tensor) -> Tensor:
    return a * b + _NUMBER


def header(row: Mapping[str, Any]) -> str:
    """Return the header of the table whose first line is ``row``."""
    return f"{'float32 elements':>16} {'mymuladd':>13}" + "".join(f"{name:>21}" for name in row["ratios"])


def line(row: Mapping[str, Any]) -> str:
    """Return the line of the table for ``row``: the time of ``mymuladd``, then ratios."""
    ratios = "".join(f"{text(ratio):>21}" for ratio in row["ratios"].values())
    return (
        f"{row['numel']:>16,} {row['seconds']['mymuladd'] * 1e6:>10.1f} us{ratios}{'  ' + BUSY if row['busy'] else ''}"
    )


def text(ratio: Mapping[str, float]) -> str:
    """Return a ratio as its median and quartiles."""
    return f"{ratio['median']:.2f}x ({ratio['low']:.2f}-{ratio['high']:.2f})"


def sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the speed of ``mymuladd``, for the largest size that could be measured."""
    told = [row for row in rows if not row["busy"] and row["numel"] >= _LARGE]
    if not told:
        return "How fast it is cannot be told: the machine was too busy; run 'muladd-nb bench' when it is idle."
    return f"{told[-1]['ratios']['eager']['median']:.1f}x as fast as eager a * b + c at {told[-1]['numel']:,} elements."
