"""A finding: what the report says about a line, and the edit that changes the line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from ._source import Node, Project, Source, above, is_misread
from ._table import Row, number, table

OPTIONAL = ("<cuda", "<omp.h")  # a machine may lack these headers
Piece = bytes | tuple[int, int]  # text, or a range of the file, in which other edits are made


class Edit(NamedTuple):
    """The replacement of a range of bytes."""

    start: int
    end: int
    pieces: Sequence[Piece]


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


@dataclasses.dataclass(eq=False)
class Findings:
    """The findings and the edits of one file. ``broken`` says which names have a type that the stable ABI lacks."""

    source: Source
    project: Project
    target: str
    broken: dict[str, str]
    limited: bool = False  # setup.py defines Py_LIMITED_API
    newly_broken: dict[str, str] = field(default_factory=dict)  # those that this file declares
    findings: list[Finding] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    headers: set[str] = field(default_factory=set)  # what the file includes after the edits
    optional: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)  # and under which conditions, if any
    conditions: tuple[str, ...] = ()  # the conditions of the preprocessor around the node that is read

    def text(self, node: Node) -> str:
        """Return the text of a node."""
        return self.source.text(node)

    def tell(self, node: Node, what: str, kind: str, row: Row | str, *, to: str = "", whole: bool = False) -> None:
        """Record what a row of the table says of the first line of a node and the methods called on it, or of all."""
        row = table().rows[kind, row][0] if isinstance(row, str) else row
        how, to, line = row.how, to or row.to, self.source.line(node.start_byte)
        end = self.source.line(max(node.end_byte - 1, node.start_byte)) if whole else line
        for up in above(node) if how in ("decision", "none") else ():
            if up.start_byte != node.start_byte or not up.type.endswith(("_expression", "identifier")):
                break
            if up.type == "field_expression":
                end = max(end, self.source.line(up.end_byte - 1))
        if how == "mechanical" and self.is_newer(row.runs):
            how, to = "decision", f"{to}, which torch {row.runs} has and {self.target} has not"
        path = str(self.source.path)
        self.findings.append(Finding(path, line, end, what, kind, how, to, row.runs, row.source, row.builds))

    def apply(
        self,
        row: Row,
        node: Node,
        what: str,
        kind: str,
        pieces: Sequence[Piece] = (),
        at: Node | None = None,
        end: int = 0,
    ) -> None:
        """Record what the table says about a node, and the edit if it is mechanical."""
        shown, whole = row.to, row.how != "mechanical" and kind == "macro"
        if pieces and "$" in row.to:
            shown = "".join(piece.decode() if isinstance(piece, bytes) else self.brief(piece) for piece in pieces)
        if row.how == "mechanical" and pieces and is_misread(node):
            row = dataclasses.replace(row, how="decision", source="")
            shown += ": by hand, because this could not be parsed"
        elif row.how == "mechanical" and not self.is_newer(row.runs):
            self.edits.append(Edit(node.start_byte, end or node.end_byte, tuple(pieces or [row.to.encode()])))
            self.need(row.to)
        self.tell(at or node, what, kind, row, to=shown, whole=whole)

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
        for row in table().rows.get((kind, name), ()):
            if row.to.startswith(OPTIONAL):
                self.optional.setdefault(row.to, set()).add(self.conditions)
            else:
                self.headers.add(row.to)

    def fill(
        self,
        to: str,
        inner: Sequence[Node],
        template: Sequence[Node] = (),
        this: Node | None = None,
        options: Sequence[Piece] = (),
    ) -> list[Piece]:
        """Return the pieces of the table's code, with the arguments of a call inserted."""
        every: list[Piece] = [(inner[0].start_byte, inner[-1].end_byte)] if inner else []
        values = {"$*": every, "$,*": [b", ", *every] if every else [], "$options": list(options)}
        values |= {"$self": [span(this)]} if this else {}
        values |= {f"${i}": [span(argument)] for i, argument in enumerate(inner, 1)}
        values |= {f"$T{i or ''}": [span(template[max(i, 1) - 1])] for i in range(len(template) + 1) if template}
        words = re.split(r"(\$self|\$options|\$,\*|\$\*|\$T\d?|\$\d)", to)
        return [piece for word in words for piece in values.get(word, [word.encode()])]

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


def span(node: Node) -> tuple[int, int]:
    """Return the range of a node."""
    return node.start_byte, node.end_byte


def rewritten(data: bytes, edits: list[Edit]) -> bytes:
    """Return a file after all edits. An edit inside another one is made if the outer one keeps that range."""
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end > edit.start, -edit.end))

    def render(start: int, end: int, outer: Edit | None = None) -> bytes:
        out, at = [], start
        for edit in ordered:
            is_inside = at <= edit.start and edit.end <= end and (edit.start < end or edit.end == edit.start)
            if is_inside and not (outer and edit[:2] == outer[:2]):
                out.append(data[at : edit.start])
                out += [piece if isinstance(piece, bytes) else render(*piece, edit) for piece in edit.pieces]
                at = edit.end
        return b"".join([*out, data[at:end]])

    return render(0, len(data))
