"""A finding: what the report says about a line, and the edit that changes the line."""

from __future__ import annotations

import dataclasses
import re

from ._edits import Edit, Piece, span
from ._source import Node, Project, Source, is_misread
from ._table import Row, number, table


@dataclasses.dataclass
class Finding:
    """A line that ties the extension to one torch, or one CPython."""

    path: str
    line: int
    end_line: int
    what: str
    kind: str
    how: str  # mechanical, decision, none; or follows: it is right when another line is
    to: str
    since: str
    source: str
    builds: str = ""

    @property
    def where(self) -> str:
        """Return the file and the line."""
        return f"{self.path}:{self.line}"


class Findings:
    """The findings and the edits of one file. ``broken`` says which names have a type that the stable ABI lacks."""

    limited = False  # setup.py defines Py_LIMITED_API

    def __init__(self, source: Source, project: Project, target: str, broken: dict[str, str]) -> None:
        self.source, self.project, self.target, self.broken = source, project, target, broken
        self.text = source.text
        self.newly_broken: dict[str, str] = {}  # those that this file declares
        self.findings: list[Finding] = []
        self.edits: list[Edit] = []
        self.headers: set[str] = set()  # what the file includes after the edits

    def add(
        self,
        node: Node,
        what: str,
        kind: str,
        how: str,
        to: str,
        source: str,
        row: Row | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Record a finding at the first line of a node and the methods called on its value, or at all of its lines."""
        line = self.source.line(node.start_byte)
        end = self.source.line(max(node.end_byte - 1, node.start_byte)) if whole else line
        up = node.parent if how in ("decision", "none") else None
        while up is not None and up.start_byte == node.start_byte and up.type.endswith(("_expression", "identifier")):
            if up.type == "field_expression":
                end = max(end, self.source.line(up.end_byte - 1))
            up = up.parent
        since, builds = (row.runs, row.builds) if row else ("", "")
        if row and how == "mechanical" and self.is_newer(row.runs):
            how, to = "decision", f"{to}, which torch {row.runs} has and {self.target} has not"
        self.findings.append(Finding(str(self.source.path), line, end, what, kind, how, to, since, source, builds))

    def tell(self, node: Node, what: str, kind: str, name: str, *, whole: bool = False, to: str = "") -> None:
        """Record the advice of the table, for a line that ``--write`` does not change."""
        row = table().rows[kind, name][0]
        self.add(node, what, kind, row.how, to or row.to, row.source, row, whole=whole)

    def apply(
        self,
        row: Row,
        node: Node,
        what: str,
        kind: str,
        pieces: list[Piece] | None = None,
        at: Node | None = None,
        end: int | None = None,
    ) -> None:
        """Record what the table says about a node, and the edit if it is mechanical."""
        shown = row.to
        if pieces and "$" in row.to:
            shown = "".join(p.decode() if isinstance(p, bytes) else self.brief(p) for p in pieces)
        if row.how == "mechanical" and pieces and is_misread(node):
            self.add(at or node, what, kind, "decision", f"{shown}: by hand, because this could not be parsed", "", row)
            return
        whole = row.how != "mechanical" and kind == "macro"
        self.add(at or node, what, kind, row.how, shown, row.source, row, whole=whole)
        if row.how == "mechanical" and not self.is_newer(row.runs):
            self.edits.append(Edit(node.start_byte, end or node.end_byte, tuple(pieces or [row.to.encode()])))
            self.need(row.to)

    def replace(self, node: Node, *pieces: Piece) -> None:
        """Replace a node."""
        self.edits.append(Edit(*span(node), pieces))

    def remove_line(self, node: Node) -> None:
        """Remove a statement, and its line if nothing else is on it."""
        data, start = self.source.data, node.start_byte
        end = start + len(data[start : node.end_byte].rstrip())
        first = data.rfind(b"\n", 0, start) + 1
        last = data.find(b"\n", end) + 1 or len(data)
        if not data[first:start].strip() and not data[end:last].strip():
            start, end = first, last
        self.edits.append(Edit(start, end, (b"",)))

    def need(self, text: str) -> None:
        """Include what declares the names in a text."""
        for name in re.findall(r"[A-Za-z_][\w:]*", text):
            while name and name not in table().names:
                name = name.rpartition("::")[0]
            if name:
                self.headers.add(f"<{table().names[name]['header']}>")
        for name in re.findall(r"std::(\w+)", text):
            self.need_header("std", name)

    def need_header(self, kind: str, name: str) -> None:
        """Include the standard header of a name of C or C++."""
        self.headers.update(row.to for row in table().rows.get((kind, name), ()))

    def fill(self, to: str, arguments: list[Node], template: list[Node], this: Node | None) -> list[Piece]:
        """Return the pieces of the table's code, with the arguments of a call inserted."""
        every = [(arguments[0].start_byte, arguments[-1].end_byte)] if arguments else []
        pieces: list[Piece] = []
        for word in re.split(r"(\$self|\$,\*|\$\*|\$T\d?|\$\d)", to):
            if word == "$self" and this is not None:
                pieces.append(span(this))
            elif word == "$,*":
                pieces += [b", ", *every] if every else []
            elif word == "$*":
                pieces += every
            elif word.startswith("$T"):
                pieces.append(span(template[int(word[2:] or 1) - 1]))
            elif word.startswith("$") and word[1:].isdigit():
                pieces.append(span(arguments[int(word[1:]) - 1]))
            else:
                pieces.append(word.encode())
        return pieces

    def brief(self, part: tuple[int, int]) -> str:
        """Return the text of a range if it is short."""
        text = self.source.data[slice(*part)].decode("utf-8", "replace")
        return text if len(text) <= 40 and "\n" not in text else "..."

    def is_newer(self, version: str) -> bool:
        """Tell whether the target is older than a torch."""
        return number(version) > number(self.target)

    def unsolved(self, before: int) -> list[Finding]:
        """Return the findings after the first ``before`` that need a person."""
        return [x for x in self.findings[before:] if x.how != "mechanical"]
