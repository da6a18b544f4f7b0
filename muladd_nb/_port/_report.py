"""The report of ``muladd-nb port``: for people, and as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from . import Port
from ._findings import Finding
from ._table import FIRST

HOW = {
    "mechanical": "--write changes it",
    "decision": "a person decides",
    "none": "the stable ABI has nothing for it",
    "follows": "it is right when another line is",
}


def data(port: Port) -> dict[str, Any]:
    """Return the report for --json."""
    return {
        "target": port.target,
        "files": port.files,
        "findings": [dataclasses.asdict(finding) for finding in port.findings],
        "unparsed": port.unparsed,
        "lines": {how: len({(f.path, f.line) for f in port.findings if f.how == how}) for how in HOW},
        "lowest_torch": max((f.since for f in port.findings if f.since), default=FIRST),
        "new_takes": _taken(port),
        "schemas": port.schemas,
    }


def lines(port: Port) -> list[str]:
    """Return the report, a line for each finding, and a summary."""
    told, follow = [], defaultdict[tuple[str, str], list[str]](list)
    for finding in port.findings:
        if finding.how == "follows":
            follow[finding.path, finding.to.removeprefix("follows ")].append(_lines(finding))
        else:
            told.append(_line(finding))
    told += [f"{path}:{','.join(dict.fromkeys(where))}: follows: {to}" for (path, to), where in follow.items()]
    for path, errors in port.unparsed.items():
        told.append(f"{path}:{errors[0]}: could not be parsed here; names in it are still found ({len(errors)} places)")
    return [*told, *[""] * bool(told), *_summary(port)]


def written(paths: list[Path]) -> str:
    """Say what --write did."""
    return f"{_files(len(paths)) + ' changed' if paths else 'Nothing was to change'}. This report is about the rest:"


def _taken(port: Port) -> list[str]:
    """Return the schemas that ``muladd-nb new`` accepts unchanged, for an element-wise or row-wise operator."""
    from .._new import _schema

    found = []
    for schema in port.schemas.values():
        with contextlib.suppress(ValueError):
            _schema.read(schema.rpartition("::")[2] if "::" in schema.split("(")[0] else schema, kernel=False)
            found.append(schema)
    return found


def _line(finding: Finding) -> str:
    headers = f", with the headers of {finding.builds}" if finding.builds > finding.since else ""
    since = f" (from torch {finding.since}{headers})" if finding.since and finding.how != "none" else ""
    link = f"muladd_nb's page {finding.source[5:]}" if finding.source[:5] == "docs:" else finding.source
    source = f" [{link}]" if finding.how in ("decision", "none") and link else ""
    what = f"{finding.how}: {finding.what} -> {finding.to}"
    return f"{finding.path}:{_lines(finding)}: {what}{since}{source}"


def _lines(finding: Finding) -> str:
    return f"{finding.line}-{finding.end_line}" if finding.end_line > finding.line else str(finding.line)


def _summary(port: Port) -> list[str]:
    report = data(port)
    if not port.findings:
        return [f"Nothing in {_files(port.files)} ties them to one torch or one CPython."]
    told = [f"{_files(port.files)}, target torch {port.target}. Lines:"]
    told += [f"  {report['lines'][how]:5} {how:11} {what}" for how, what in HOW.items()]
    if needs := Counter(f.what for f in port.findings if f.how == "none").most_common(5):
        told.append(f"Most often without a replacement: {', '.join(f'{what} ({n})' for what, n in needs)}.")
    told.append(f"The lowest torch that the port could target: {report['lowest_torch']}.")
    if report["new_takes"]:
        told.append("'muladd-nb new' can write these operators if they are element-wise or work on rows:")
        told += [f"  {schema}" for schema in report["new_takes"]]
    elif port.schemas:
        told.append(
            f"'muladd-nb new' can write none of the {len(port.schemas)} operators; with --kernel, all but their loops."
        )
    return told


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
