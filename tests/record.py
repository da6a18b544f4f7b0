"""Write the result of a long run into its line of docs/reliability.csv, which docs/reliability.md shows."""

import csv
import datetime as dt
import platform
import sys
from pathlib import Path

import torch

FILE = Path(__file__).parent.parent / "docs" / "reliability.csv"
HEADER = ["run", "what", "result", "torch", "machine", "date", "command"]


def record(run, what, result, command):
    rows = {row[0]: row for row in list(csv.reader(FILE.open()))[1:]} if FILE.exists() else {}
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    rows[run] = [run, what, result, torch.__version__, platform.machine(), today, f"`{command}`"]
    with FILE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *(rows[name] for name in sorted(rows))])


if __name__ == "__main__":
    record(*sys.argv[1:])
