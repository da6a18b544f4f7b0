"""A finding: what the report says about a line, and the edit that changes the line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from ._source import EMPTY, Node, Project, Source, above, is_misread, part
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
    headers: dict[str, set[str]] = field(default_factory=dict)  # what the edits need, and under which conditions

    def text(self, node: Node) -> str:
        """Return the text of a node."""
        return self.source.text(node)

    def tell(
        self, node: Node, what: str, row: Row | tuple[str, str], *, to: str = "", whole: bool = False, kind: str = ""
    ) -> None:
        """Record what a row of the table says of the first line of a node and the methods called on it, or of all."""
        row = table().rows[row][0] if isinstance(row, tuple) else row
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
        self.findings.append(
            Finding(path, line, end, what, kind or row.kind, how, to, row.runs, row.source, row.builds)
        )

    def apply(
        self, row: Row, node: Node, what: str, pieces: Sequence[Piece] = (), *, at: Node = EMPTY, end: int = 0
    ) -> None:
        """Record what the table says about a node, and the edit if it is mechanical."""
        shown, whole = row.to, row.how != "mechanical" and row.kind == "macro"
        if pieces and "$" in row.to:
            shown = "".join(piece.decode() if isinstance(piece, bytes) else self.brief(piece) for piece in pieces)
        if row.how == "mechanical" and pieces and is_misread(node):
            row = dataclasses.replace(row, how="decision", source="")
            shown += ": by hand, because this could not be parsed"
        elif row.how == "mechanical" and not self.is_newer(row.runs):
            self.edits.append(Edit(node.start_byte, end or node.end_byte, pieces or [row.to.encode()]))
            self.need(row.to, node)
        self.tell(node if at is EMPTY else at, what, row, to=shown, whole=whole)

    def replace(self, node: Node, *pieces: Piece) -> None:
        """Replace a node."""
        self.edits.append(Edit(node.start_byte, node.end_byte, pieces))

    def remove_line(self, node: Node) -> None:
        """Remove a statement, and its line if nothing else is on it."""
        data, start = self.source.data, node.start_byte
        end = start + len(data[start : node.end_byte].rstrip())
        first, last = data.rfind(b"\n", 0, start) + 1, data.find(b"\n", end) + 1 or len(data)
        alone = not data[first:start].strip() and not data[end:last].strip()
        self.edits.append(Edit(first, last, ()) if alone else Edit(start, end, ()))

    def need(self, text: str, node: Node) -> None:
        """Include what declares the names in a text."""
        for name in re.findall(r"[A-Za-z_][\w:]*", text):
            while name and name not in table().names:
                name = name.rpartition("::")[0]
            if name:
                self.headers.setdefault(f"<{table().names[name]['header']}>", set()).add("")
        for name in re.findall(r"std::(\w+)", text):
            self.need_header("std", name, node)

    def need_header(self, kind: str, name: str, node: Node) -> None:
        """Include the standard header of a name of C or C++."""
        for row in table().rows.get((kind, name), ()):
            optional = row.to.startswith(OPTIONAL)
            self.headers.setdefault(row.to, set()).add(self.condition(node) if optional else "")

    def condition(self, node: Node) -> str:
        """Return the conditions of the preprocessor around a node, which may be in the body of a macro."""
        inner = self.source.root.descendant_for_byte_range(node.start_byte, node.end_byte) or EMPTY
        found = list[str]()
        for up in above(inner):
            if up.type in ("preproc_if", "preproc_ifdef", "preproc_elif") and not self.is_guard(up):
                name = self.text(part(up, "name"))
                condition = f"defined({name})" if name else f"({self.text(part(up, 'condition'))})"
                negated = (part(up, "alternative") == inner) != (up.children[0].type == "#ifndef")
                found.insert(0, "!" * negated + condition)
            inner = up
        return " && ".join(found)

    def is_guard(self, node: Node) -> bool:
        """Tell whether #ifndef X is followed by #define X."""
        name = part(node, "name")
        inner = [child for child in node.named_children if child != name and child.type != "comment"]
        is_define = node.children[0].type == "#ifndef" and bool(inner) and inner[0].type == "preproc_def"
        return is_define and self.text(part(inner[0], "name")) == self.text(name)

    def fill(
        self,
        to: str,
        inner: Sequence[Node],
        template: Sequence[Node] = (),
        this: Node = EMPTY,
        options: Sequence[Piece] = (),
    ) -> list[Piece]:
        """Return the pieces of the table's code, with the arguments of a call inserted."""
        every: list[Piece] = [(inner[0].start_byte, inner[-1].end_byte)] if inner else []
        values = {"$*": every, "$,*": [b", ", *every] if every else [], "$options": options, "$self": [span(this)]}
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
