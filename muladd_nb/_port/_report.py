"""The report of ``muladd-nb port``: for people, and as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from . import Port
from ._findings import Finding
from ._table import FIRST, number

HOW = {
    "mechanical": "--write changes it",
    "decision": "a person decides",
    "none": "the stable ABI has nothing for it",
    "follows": "right when another line is",
}


def lines(port: Port) -> list[str]:
    """Return the report, a line for each finding, and a summary."""
    told = [_line(finding) for finding in port.findings if finding.how != "follows"]
    told += _following(port.findings)
    for path, where in port.unparsed.items():
        told.append(f"{path}:{where[0]}: could not be parsed here; names in it are still found ({len(where)} places)")
    return [*told, *([""] if told else []), *_summary(port)]


def data(port: Port) -> dict[str, Any]:
    """Return the report for --json."""
    counts = counted(port.findings)
    return {
        "target": port.target,
        "files": port.files,
        "findings": [dataclasses.asdict(finding) for finding in port.findings],
        "unparsed": port.unparsed,
        "lines": counts,
        "lowest_torch": lowest(port.findings),
        "new_takes": taken(port),
        "schemas": port.schemas,
    }


def counted(findings: list[Finding]) -> dict[str, int]:
    """Return how many lines are of each kind."""
    return {how: len({(f.path, f.line) for f in findings if f.how == how}) for how in HOW}


def lowest(findings: list[Finding]) -> str:
    """Return the oldest torch that has everything that the replacements use."""
    return max((f.since for f in findings if f.since), key=number, default=FIRST)


def taken(port: Port) -> list[str]:
    """Return the schemas that ``muladd-nb new`` accepts unchanged, for an element-wise or row-wise operator."""
    from .._new import _schema

    found = []
    for schema in port.schemas.values():
        with contextlib.suppress(ValueError):
            _schema.read(schema.rpartition("::")[2] if "::" in schema.split("(")[0] else schema, kernel=False)
            found.append(schema)
    return found


def _line(finding: Finding) -> str:
    where = f"{finding.path}:{_lines(finding)}"
    since = (
        f" (torch {finding.since}" + (f", built with {finding.builds})" if finding.builds > finding.since else ")")
        if finding.since
        else ""
    )
    source = f" [{_link(finding.source)}]" if finding.how in ("decision", "none") and finding.source else ""
    return f"{where}: {finding.how}: {finding.what} -> {finding.to}{since}{source}"


def _lines(finding: Finding) -> str:
    return f"{finding.line}-{finding.end_line}" if finding.end_line > finding.line else str(finding.line)


def _link(source: str) -> str:
    return source.replace("docs:", "docs/") + ".md" if source.startswith("docs:") else source


def _following(findings: list[Finding]) -> list[str]:
    origins: dict[tuple[str, str], dict[str, None]] = {}
    for finding in findings:
        if finding.how == "follows":
            origins.setdefault((finding.path, finding.to), {})[_lines(finding)] = None
    return [
        f"{path}:{','.join(where)}: follows: {to.removeprefix('follows ')}" for (path, to), where in origins.items()
    ]


def _summary(port: Port) -> list[str]:
    if not port.findings:
        return [f"Nothing in {_files(port.files)} ties them to one torch or one CPython."]
    counts = counted(port.findings)
    told = [f"{_files(port.files)}, target torch {port.target}. Lines:"]
    told += [f"  {counts[how]:5} {how:11} {what}" for how, what in HOW.items()]
    needs = Counter(f.what for f in port.findings if f.how == "none")
    if needs:
        told.append(
            "Most often without a replacement: " + ", ".join(f"{what} ({n})" for what, n in needs.most_common(5)) + "."
        )
    told.append(f"The lowest torch that the port could target: {lowest(port.findings)}.")
    schemas = taken(port)
    if schemas:
        told.append("'muladd-nb new' takes these whole if they are element-wise or work on rows:")
        told += [f"  {schema}" for schema in schemas]
    elif port.schemas:
        told.append(
            f"'muladd-nb new' takes none of the {len(port.schemas)} operators whole; --kernel takes their schemas."
        )
    return told


def written(paths: list[Path]) -> str:
    """Say what --write did."""
    return f"{_files(len(paths)) + ' changed' if paths else 'Nothing was to change'}. This report is about the rest:"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
