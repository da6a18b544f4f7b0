"""The report of ``muladd-nb port``: for people, and as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from . import Port
from ._table import FIRST

HOW = {
    "mechanical": "--write changes it",
    "decision": "a person decides",
    "none": "the stable ABI has nothing for it",
    "follows": "it compiles when another line does",
}
# A guess from the names; the author decides.
OVER_ROWS = re.compile(r"softmax|cross_entropy|(layer|rms|group|batch)_?norm|\b(int dim|keepdim|normalized_shape)\b")


def data(port: Port) -> dict[str, Any]:
    """Return the report for --json."""
    from .._new import _schema

    taken = list[str]()  # commands for the schemas that the generator accepts unchanged
    for schema in (re.sub(r"^\w+::", "", schema) for schema in port.schemas.values()):
        rows = bool(OVER_ROWS.search(schema))
        with contextlib.suppress(ValueError):
            _schema.read(schema, kernel=False, rows=rows)
            taken.append(f"muladd-nb {'add' if taken else 'new my_ops'}{' --rows' * rows} {shlex.quote(schema)}")
    return {
        "target": port.target,
        "files": port.files,
        "findings": [dataclasses.asdict(finding) for finding in port.findings],
        "unparsed": port.unparsed,
        "lines": {how: len({(f.path, f.line) for f in port.findings if f.how == how}) for how in HOW},
        "lowest_torch": max((f.since for f in port.findings if f.since), default=FIRST),
        "commands": taken,
        "schemas": port.schemas,
    }


def lines(port: Port) -> list[str]:
    """Return the report: a line for each finding, then a summary."""
    told, follow = [], defaultdict[tuple[str, str], list[str]](list)
    for f in port.findings:
        where = f"{f.line}-{f.end_line}" if f.end_line > f.line else str(f.line)
        if f.how == "follows":
            follow[f.path, f.to.removeprefix("follows ")].append(where)
            continue
        headers = f", with the headers of {f.builds}" if f.builds > f.since else ""
        since = f" (from torch {f.since}{headers})" if f.since and f.how != "none" else ""
        link = re.sub("^docs:", "muladd_nb's page ", f.source)
        source = f" [{link}]" if f.how in ("decision", "none") and link else ""
        told.append(f"{f.path}:{where}: {f.how}: {f.what} -> {f.to}{since}{source}")
    told += [f"{path}:{','.join(dict.fromkeys(where))}: follows: {to}" for (path, to), where in follow.items()]
    for path, errors in port.unparsed.items():
        places = "1 place" if len(errors) == 1 else f"{len(errors)} places, the first of them here,"
        told.append(f"{path}:{errors[0]}: {places} could not be parsed: check by hand. Names are still reported.")
    if port.left_out:
        told.append(f"Left out: {', '.join(map(str, port.left_out))}. Name a folder to read it.")
    if not port.findings:
        return [*told, *[""] * bool(told), f"Nothing in {_files(port.files)} ties them to one torch or one CPython."]
    report = data(port)
    told += ["", f"{_files(port.files)}, target torch {port.target}. Lines:"]
    told += [f"  {report['lines'][how]:5} {how:11} {what}" for how, what in HOW.items()]
    if needs := Counter(f.what for f in port.findings if f.how == "none").most_common(5):
        told.append(f"Most often without a replacement: {', '.join(f'{what} ({n})' for what, n in needs)}.")
    told.append(f"The lowest torch that the port could target: {report['lowest_torch']}.")
    if report["commands"]:
        told.append("Type these for the operators that are element-wise, or, with --rows, over rows:")
    elif count := len(port.schemas):
        told.append(f"None of the {count} operators fits a functor. 'muladd-nb new --kernel' writes all but the loops.")
    return told + [f"  {command}" for command in report["commands"]]


def written(paths: list[Path]) -> str:
    """Say what --write did."""
    return f"{_files(len(paths)) + ' changed' if paths else 'No change is mechanical'}. This report is about the rest:"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
