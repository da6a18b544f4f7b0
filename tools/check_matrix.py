#!/usr/bin/env python3
"""Fail if torch has a newer release than docs/matrix.csv, in a series that the table has or in a new series.

A new release has to be tested. The script asks the index that pip installs from; without a network it compares
nothing.
"""

import csv
import re
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).parent.parent / "docs" / "matrix.csv"

Release = tuple[int, ...]


def newest(versions: list[str]) -> dict[Release, Release]:
    """Return the newest release of each series, such as 2.14.1 for 2.14."""
    releases = sorted(tuple(map(int, version.partition("+")[0].split("."))) for version in versions)
    return {release[:2]: release for release in releases}


def main() -> int:
    """Compare, print what is missing, and return the exit status."""
    with TABLE.open(newline="") as file:
        measured = newest([row["torch"] for row in csv.DictReader(file)])
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    versions = re.search(r"^Available versions: (.+)", answer.stdout, re.MULTILINE)
    if versions is None:
        print(f"docs/matrix.csv is not compared, the index knows no torch: {answer.stderr.strip()}")
        return 0
    released = newest(versions[1].split(", "))
    missing = [release for series, release in released.items() if release > measured.get(series, min(measured))]
    for release in missing:
        name = ".".join(map(str, release))
        print(f"docs/matrix.csv is older than torch {name}: nox -s matrix measures what MATRIX in noxfile.py names")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
