"""Replaces syntax that tree-sitter's grammar of C++ does not know by C++ of the same length."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable

from ._table import WORDS

_ARGUMENTS = r"\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
_CALLED = rf"\b(?:{'|'.join(word for word, arguments in WORDS['attribute'].items() if arguments)}){_ARGUMENTS}"
# Comments and strings come first, so that the other patterns match only in code.
_LEX = re.compile(
    rf"""//(?:[^\n\\]|\\[\s\S])*|/\*[\s\S]*?\*/
    |R"([^(\s]*)\([\s\S]*?\)\1"|"(?:[^"\\\n]|\\[\s\S])*"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\[\s\S])*'
    |^[ \t]*\#[ \t]*(?:define|undef)[ \t]+\w+
    |(?P<next>(?<=}}\))[\s\\]+(?=(?:AT|THO)_\w*CASE))|(?P<launch><<<|>>>)|(?P<bracket>[(){{}}]|;[ \t]*$)
    |^[ \t]*(?P<condition>\#[ \t]*(?P<directive>if|el|endif)(?:[^\\\n]|\\[\s\S])*)
    |(?P<blank>{_CALLED}|\btypename(?=\s+\w+\s*::))
    |\b(?:class|struct)\s+(?P<export>[A-Z][A-Z0-9_]*(?:\([^()]*\))?)(?=\s+[A-Za-z_][\w:]*\s*(?:final\s*)?[:{{])
    |\b(?P<word>[A-Za-z_]\w*)\b""".encode(),
    re.VERBOSE | re.MULTILINE,
)
# A macro without parameters, with its definition; and the words that only qualify a declaration, such as `inline`.
_DEFINE = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)(?![\w(])((?:[^\\\n]|\\[\s\S])*)", re.MULTILINE)
_SAYS_MORE = re.compile(
    rf"""__(?:attribute__|declspec|align__){_ARGUMENTS}|{_CALLED}|\[\[.*?\]\]|__\w+|/\*[\s\S]*?\*/|//.*|\\
    |\b(?:inline|static|(?:C10|TORCH)_\w+)\b""".encode(),
    re.VERBOSE,
)


def attributes(files: Iterable[bytes]) -> set[bytes]:
    """Return the words that only qualify a declaration, and the macros that are defined as nothing but such words."""
    bodies = defaultdict[bytes, list[set[bytes]]](list)  # the other words of each definition
    for name, body in (found for file in files for found in _DEFINE.findall(file)):
        bodies[name].append(set(re.findall(rb"\w+|[^\s\w]", _SAYS_MORE.sub(b" ", body))))
    found: set[bytes] = set()
    while more := {name for name, words in bodies.items() if all(x <= found for x in words)} - found:
        found |= more
    return found | {word.encode() for word in WORDS["attribute"]}


def masked(data: bytes, attributes: Collection[bytes]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the bytes without attributes, and the ranges of branches of #if that are to be parsed alone.

    A launch ``f<<<a>>>(b)`` becomes ``f(a)(b)``, and the cases of a dispatch get commas between them. If an #if stands
    inside parentheses, or opens a block without closing it, only its first branch is parsed with the code around it.
    """
    launches, opened = 0, b""  # the number of open launches, and the open brackets
    # For each #if: the brackets open before it, those open after each branch, and the ranges of its directives.
    conditions = list[tuple[bytes, list[bytes], list[tuple[int, int]]]]()
    branches, hidden = list[tuple[int, int]](), list[tuple[int, int]]()

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal launches, opened
        text, bracket, directive = match[0], match["bracket"], match["directive"]
        if match["next"]:
            return b"," + text[1:]
        if match["launch"] and (launches or text == b"<<<"):
            launches += 1 if text == b"<<<" else -1
            return b"  (" if text == b"<<<" else b")  "
        if bracket in (b"(", b"{"):
            opened += bracket
        elif bracket == b")":
            opened = opened.removesuffix(b"(")
        elif bracket:  # after a } or a ; at the end of a line no parenthesis is open
            opened = opened.rstrip(b"(").removesuffix(b"{" if bracket == b"}" else b"")
        if directive == b"if":
            conditions.append((opened, [], []))
        if directive and conditions:
            before, ends, directives = conditions[-1]
            directives.append(match.span("condition"))
            if directive != b"if":
                ends.append(opened)
                opened = before if directive == b"el" else ends[0]
            if directive == b"endif":
                conditions.pop()
                if before.endswith(b"(") or before != opened:
                    hidden.extend(directives)
                    branches.extend([(directives[1][1], directives[-1][0])] * (len(directives) > 2))
        blank = match["blank"] or match["export"] or text * (match["word"] in attributes)
        return text.replace(blank, b" " * len(blank)) if blank else text

    code = _LEX.sub(replace, data)
    outer = [x for x in branches if not any(y[0] < x[0] and x[1] < y[1] for y in branches)]
    return blanked(code, hidden), outer


def blanked(data: bytes, ranges: Iterable[tuple[int, int]]) -> bytes:
    """Return the bytes with spaces in some ranges. Ends of lines stay."""
    for start, end in ranges:
        data = data[:start] + re.sub(rb"[^\r\n]", b" ", data[start:end]) + data[end:]
    return data
