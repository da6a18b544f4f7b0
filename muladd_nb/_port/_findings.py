"""A finding: what the report says about a line, and the edit that changes the line."""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from ._source import EMPTY, Node, Project, Source, below, is_misread, statement
from ._table import ATEN, NAMES, ROWS, WORDS, Row, known

CHANGES = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)")
CALL = re.compile(r"(\w+)\s*(?:<[^<>()]*>)?\(")
ELEMENT = ("[]", "*", "value", "value_or", "at", "front", "back", "get")  # what reads an element of a container
HARMLESS = {*ELEMENT, *WORDS["Tensor"], *WORDS["function"], *(name for name in ATEN if not name.endswith("_"))}
OPERATION = re.compile(rb"[*&]|[^?]*\?")  # *x and a ? x : y, whose operators bind less than a dot
OPTIONAL = ("<cu", "<hip/", "<nccl.h", "<omp.h")  # a machine may lack these headers
Nodes = Sequence[Node]
Piece = bytes | tuple[int, int]  # text, or a range of the file, in which other edits are made
Edit = tuple[int, int, Sequence[Piece]]  # the replacement of a range of bytes


@dataclasses.dataclass
class Finding:
    """A line that ties the extension to one torch, or one CPython."""

    path: str
    line: int
    end_line: int
    what: str
    kind: str
    how: str  # mechanical, decision, none; or follows: it compiles once another line does
    to: str
    since: str
    source: str
    builds: str = ""

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


@dataclasses.dataclass(eq=False)
class Findings:
    """The findings and the edits of one file.

    ``broken`` has the names whose type the stable ABI lacks. A member is there twice: its class writes ``x``, others
    ``a.x``, and that is ``.x`` here.
    """

    source: Source
    project: Project
    target: str
    broken: dict[str, str] = field(default_factory=dict)
    limited: bool = False  # setup.py defines Py_LIMITED_API
    newly_broken: dict[str, str] = field(default_factory=dict)  # the names of this kind that this file declares
    findings: list[Finding] = field(default_factory=list)
    covered: set[tuple[int, int]] = field(default_factory=set)  # the parts of statements that a finding is about
    schemas: list[str] = field(default_factory=list)  # of the operators that this file registers
    edits: list[Edit] = field(default_factory=list)
    headers: dict[str, bool] = field(default_factory=dict)  # the edits need them; False: only if present

    def text(self, node: Node) -> str:
        return self.source.text(node)

    def tell(self, node: Node, what: str, row: Row | tuple[str, str], *, to: str = "") -> Finding:
        """Record and return what a row of the table says about a node.

        If it needs a person, the finding is about the whole statement, because a compiler may report an error at any
        line of it. Later findings in the same statement are about their own lines.
        """
        row = ROWS[row][0] if isinstance(row, tuple) else row
        how, to, start, last, parts = row.how, to or row.to, node.start_byte, node.start_byte, list[tuple[int, int]]()
        if how != "mechanical":
            parts = [part for part in statement(node) if part not in self.covered]
            self.covered.update(parts)
            last = max(node.end_byte - 1, last, *(end - 1 for first, end in parts if first <= start < end))
        elif row.runs > self.target:
            how, to = "decision", f"{to}, which torch {row.runs} has and {self.target} has not"
        path, line, end = str(self.source.path), self.source.line(start), self.source.line(last)
        finding = Finding(path, line, end, what, row.kind, how, to, row.runs, row.source, row.builds)
        self.findings.append(finding)
        for first, end in parts:
            lines = self.source.line(first), line - 1 if first <= start < end else self.source.line(end - 1)
            if lines[0] <= lines[1]:
                said = what if first <= start else "}"
                follows = f"follows from {finding.where}"
                self.findings.append(Finding(path, *lines, said, "name", "follows", follows, "", ""))
        return finding

    def apply(self, row: Row, node: Node, what: str, *, at: Node = EMPTY, end: int = 0, **values: Any) -> Finding:
        """Record what the table says about a node, and the edit if it is mechanical. ``fill`` takes the values."""
        parts = fill(row.to, **values)
        texts = [x if isinstance(x, bytes) else self.source.data[slice(*x)] for x in parts]
        brief = [x if x in parts or (len(x) <= 40 and b"\n" not in x) else b"..." for x in texts]
        to = b"".join(brief).decode("utf-8", "replace")
        ranges = [x for x in parts if isinstance(x, tuple) and row.kind != "macro"]  # macros repeat blocks of code
        repeated = any(ranges.count(x) > 1 and must_run_once(self.source.data[slice(*x)]) for x in ranges)
        if row.how == "mechanical" and (repeated or is_misread(node)):
            row = dataclasses.replace(row, how="decision", source="")
            why = "it would run code more than once" if repeated else "this could not be parsed"
            to += f": by hand, because {why}"
        elif row.how == "mechanical" and row.runs <= self.target:
            end = end or node.end_byte
            self.edits.append((node.start_byte, end, [*self.lost_comments(node, end, parts), *parts]))
            self.need(row.to, node)
        return self.tell(node if at is EMPTY else at, what, row, to=to)

    def lost_comments(self, node: Node, end: int, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Yield the comments of a node that are in none of the pieces. They are put before the replacement."""
        kept = [piece for piece in pieces if isinstance(piece, tuple)]
        for x in below(node) if re.search(rb"/[/*]", self.source.data[node.start_byte : end]) else ():
            first, last = x.byte_range
            if x.type == "comment" and last <= end and not any(a <= first and last <= b for a, b in kept):
                yield from ((first, last), b"\n" if self.text(x).startswith("//") else b" ")

    def remove_line(self, node: Node) -> None:
        """Remove a statement, and its line if nothing else is on it."""
        data, start = self.source.data, node.start_byte
        end = start + len(data[start : node.end_byte].rstrip())
        first, last = data.rfind(b"\n", 0, start) + 1, data.find(b"\n", end) + 1 or len(data)
        alone = not data[first:start].strip() and not data[end:last].strip()
        self.edits.append((first, last, []) if alone else (start, end, []))

    def need(self, text: str, node: Node) -> None:
        """Include the headers that declare the names in a text."""
        for name in re.findall(r"[A-Za-z_][\w:]*", text):
            self.need_header("std" if name.startswith("std::") else "c", name.removeprefix("std::"), node)
            if name := known(name):
                self.headers[f"<{NAMES[name]['header']}>"] = True

    def need_header(self, kind: str, name: str, node: Node) -> None:
        """Include the header that declares a name of C, C++, POSIX or CUDA."""
        family = re.sub(r"^([a-z]+)[A-Z]\w*", r"\1*", name)  # cudaMalloc -> cuda*
        for row in ROWS.get((kind, name), ROWS.get((kind, family), [])):
            # A header of CUDA that is used only under #if is included only if the machine has it.
            is_optional, around = row.to.startswith(OPTIONAL), {up.type for up in self.source.above(node)}
            in_branch = is_optional and not around.isdisjoint({"preproc_if", "preproc_ifdef"})
            is_hip = row.to.startswith("<cu") and any(x.startswith("hip/") for _, x in self.source.includes)
            own = {file for file, _ in self.project.named["type", "cudaStream_t"]} & self.project.around[self.source]
            if not is_optional or not (is_hip or own):
                self.headers[row.to] = self.headers.get(row.to, False) or not in_branch


def must_run_once(code: bytes) -> bool:
    """Tell whether code changes a variable, or calls a function that may: not one of torch's, a cast or an element."""
    text = code.decode("utf-8", "replace")
    calls = (name for name in CALL.findall(text) if not name.endswith("_cast"))
    return CHANGES.search(text) is not None or not HARMLESS.issuperset(calls)


def before_dot(text: bytes | None, where: tuple[int, int]) -> list[Piece]:
    """Return the pieces of code that a dot follows: *x and a ? x : y get parentheses, other code does not."""
    return [b"(", where, b")"] if OPERATION.match(text or b"") else [where]


def fill(to: str, *, inner: Nodes = (), template: Nodes = (), this: Node = EMPTY, **named: Nodes) -> list[Piece]:
    """Return the pieces of the table's code, with the arguments of a call inserted."""
    ranges = [(with_comments(argument), argument.end_byte) for argument in inner]
    every: list[Piece] = [(ranges[0][0], ranges[-1][1])] if inner else []
    values: dict[str, list[Piece]] = {"$*": every, "$,*": [b", ", *every] if every else [], "$self": [this.byte_range]}
    values |= {f"${name}": [(nodes[0].start_byte, nodes[-1].end_byte)] for name, nodes in named.items() if nodes}
    for i, (argument, where) in enumerate(zip(inner, ranges, strict=True), 1):
        values[f"${i}"] = before_dot(argument.text, where) if f"${i}." in to else [where]
    values |= {f"$T{i}": [argument.byte_range] for i, argument in enumerate(template, 1)}
    for i, argument in enumerate(inner, 1):
        to = to.replace(f"(${i})", f"${i}") if argument.type == "parenthesized_expression" else to
    words = re.split(r"(\$self|\$dtype|\$device|\$,\*|\$\*|\$T\d|\$\d)", to)
    return [piece for word in words for piece in values.get(word, [word.encode()])]


def with_comments(node: Node) -> int:
    """Return where the comments directly before a node begin, or the node."""
    while node.prev_sibling is not None and node.prev_sibling.type == "comment":
        node = node.prev_sibling
    return node.start_byte


def rewritten(data: bytes, edits: list[Edit], torch: bytes) -> bytes:
    """Return a file after all edits. An edit inside another one is made only if the outer one keeps that range."""
    ordered = sorted(edits, key=lambda edit: (edit[0], edit[1] > edit[0], -edit[1]))
    starts = [first for first, *_ in ordered]

    def text(x: Piece, edit: tuple[int, int]) -> bytes:
        return x.replace(b"torch::", torch) if isinstance(x, bytes) else render(*x, edit)

    def render(start: int, end: int, outer: tuple[int, int] | None = None) -> bytes:
        out, at = [], start
        inside = slice(bisect.bisect_left(starts, start), bisect.bisect_right(starts, end))
        for first, last, pieces in ordered[inside]:
            is_inside = at <= first and last <= end and (first < end or last == first)
            if is_inside and outer != (first, last):
                out += [data[at:first], *(text(x, (first, last)) for x in pieces)]
                at = last
        return b"".join([*out, data[at:end]])

    return render(0, len(data))
