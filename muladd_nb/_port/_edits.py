"""Edits of a file: what replaces which bytes, and the file after all of them."""

from __future__ import annotations

import dataclasses

from ._source import Node, Source

Piece = bytes | tuple[int, int]  # text, or a range of the file, in which other edits are made


def rewritten(source: Source, edits: list[Edit]) -> bytes:
    """Return the file after all edits. An edit inside another one is made if the outer one keeps that range."""
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end > edit.start, -edit.end))

    def render(start: int, end: int, outer: Edit | None) -> bytes:
        out, at = [], start
        for edit in ordered:
            if edit.start < at or edit.end > end or (edit.start >= end and edit.end > edit.start):
                continue
            if outer is not None and (edit.start, edit.end) == (outer.start, outer.end):
                continue
            out.append(source.data[at : edit.start])
            out += [piece if isinstance(piece, bytes) else render(*piece, edit) for piece in edit.pieces]
            at = edit.end
        return b"".join([*out, source.data[at:end]])

    return render(0, len(source.data), None)


@dataclasses.dataclass(frozen=True)
class Edit:
    """The replacement of a range of bytes."""

    start: int
    end: int
    pieces: tuple[Piece, ...]


def span(node: Node) -> tuple[int, int]:
    """Return the range of a node."""
    return node.start_byte, node.end_byte
