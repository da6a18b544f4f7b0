"""Numbers in Markdown that come from results/*.json, so that prose and measurements cannot disagree.

A comment before a number names the record, the values that select one of its cases, and the side that we compare with.
The number tells how many times faster we are, by the median::

    large results are <!-- throughput: float32; fresh; 2^24; eager -->5.3 times as fast

`low` or `high` after the side selects a quartile. `us`, `ms` or `s` selects the time of a call; `mymuladd; us` is our
own. A case that was measured on a busy machine is refused. `report.py --readme` rewrites the numbers in the files, the
documentation takes them from the records when it is built, and tests/test_docs.py compares the two.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
UNITS = {"us": 1e6, "ms": 1e3, "s": 1.0}
MARKED = re.compile(r"(<!-- (\w+): ([^>]+?) -->)(\d+(?:\.(\d+))?)")

Rows = list[dict[str, Any]]


def ratios(row: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Return how many times faster the first side is than each other one: lower quartile, median, upper quartile."""
    if "ratios" in row:
        return {side: (of["low"], of["median"], of["high"]) for side, of in row["ratios"].items()}
    mine, *others = row["seconds"]  # old records have no ratios
    return {side: (row["seconds"][side] / row["seconds"][mine],) * 3 for side in others}


def number(record: str, words: list[str]) -> float:
    """Return the number that the words select in a record."""
    *chosen, side = words
    part = "median"
    if side in ("low", "high", *UNITS):
        part = side
        *chosen, side = chosen
    values = {str(2 ** int(word[2:])) if word.startswith("2^") else word for word in chosen}
    rows = json.loads((RESULTS / f"{record}-cpu.json").read_text())["rows"]
    found = [row for row in rows if values <= {str(value) for key, value in row.items() if key != "busy"}]
    if len(found) != 1:
        raise ValueError(f"{record}: {'; '.join(words)} are {len(found)} cases, not one")
    (row,) = found
    if row.get("busy"):
        raise ValueError(f"{record}: {'; '.join(words)} was too busy to tell")
    if part in UNITS:
        return float(row["seconds"][side]) * UNITS[part]
    return ratios(row)[side][("low", "median", "high").index(part)]


def fill(text: str, keep_comments: bool = True) -> str:
    """Return Markdown with each marked number taken from the records, with as many decimals as it has in the text."""

    def replace(match: re.Match[str]) -> str:
        comment, record, words, _, decimals = match.groups()
        value = number(record, words.split("; "))
        return f"{comment if keep_comments else ''}{value:.{len(decimals or '')}f}"

    return MARKED.sub(replace, text)


def pictured() -> tuple[Rows, str]:
    """Return the cases in the README's picture, and a description of them, which the picture's file contains."""
    rows = json.loads((RESULTS / "throughput-cpu.json").read_text())["rows"]
    chosen = [row for row in rows if (row["dtype"], row["result"], row["busy"]) == ("float32", "fresh", False)]
    for row in chosen:
        row["ratios"] = {side: row["ratios"][side] for side in ("eager", "addcmul")}
    words = [
        f"{row['numel']} elements: "
        + ", ".join(
            f"{middle:.2f} ({low:.2f} to {high:.2f}) {side}" for side, (low, middle, high) in ratios(row).items()
        )
        for row in chosen
    ]
    return chosen, "How many times faster mymuladd is. " + "; ".join(words)
