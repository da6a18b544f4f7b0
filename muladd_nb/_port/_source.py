"""A source file of C++ or CUDA, parsed by tree-sitter, and what a folder of them declares."""

from __future__ import annotations

import bisect
import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import tree_sitter
import tree_sitter_cpp

_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
# Comments and strings come first, so that the other patterns match only in code.
_LEX = re.compile(
    rb"""//(?:[^\n\\]|\\[\s\S])*|/\*[\s\S]*?\*/
    |R"([^(\s]*)\([\s\S]*?\)\1"|"(?:[^"\\\n]|\\[\s\S])*"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\[\s\S])*'
    |(?P<open><<<)|(?P<close>>>>)
    |(?P<blank>__(?:global|device|host|forceinline|shared|constant|noinline|restrict)__|__restrict\b
      |__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\))
    |\b(?P<head>class|struct)\s+(?P<export>[A-Z][A-Z0-9_]*(?:\([^()]*\))?)(?=\s+[A-Za-z_][\w:]*\s*(?:final\s*)?[:{])""",
    re.VERBOSE,
)
Node = tree_sitter.Node


class Source:
    """One file: its bytes, its tree, and the trees of the bodies of its macros."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        self.newline = b"\r\n" if b"\r\n" in self.data else b"\n"
        masked = _masked(self.data)
        self.root = _PARSER.parse(masked).root_node
        self._starts = [0, *(m.end() for m in re.finditer(rb"\n", self.data))]
        self.macros: list[tuple[str, list[str], Node]] = []
        self.includes: list[tuple[Node, str]] = []
        self.usings: set[tuple[str, ...]] = set()
        self.using_names: dict[str, tuple[str, ...]] = {}
        self.aliases: dict[str, tuple[str, ...]] = {}
        self.declared: set[tuple[str, ...]] = set()  # full names
        self.functions: list[tuple[str, Node]] = []
        self.fields: list[tuple[str, Node]] = []
        self.types: list[tuple[str, Node]] = []  # aliases
        self._errors: set[int] = set()
        for node in descend(self.root):
            if node.is_error or node.is_missing:
                self._errors.add(self.line(node.start_byte))
            elif node.type in ("preproc_def", "preproc_function_def"):
                self._read_macro(node, masked)
            elif node.type == "preproc_include" and (path_node := node.child_by_field_name("path")):
                self.includes.append((node, self.text(path_node).strip('<>"')))
            elif node.type == "using_declaration":
                self._read_using(node)
            elif node.type == "namespace_alias_definition" and (name := node.child_by_field_name("name")):
                self.aliases[self.text(name)] = tuple(self.text(node.named_children[-1]).replace(" ", "").split("::"))
            elif node.type in ("function_definition", "declaration", "field_declaration"):
                self._read_declaration(node)
            elif node.type in ("class_specifier", "struct_specifier", "enum_specifier", "alias_declaration"):
                name = node.child_by_field_name("name")
                if name is not None and (node.child_by_field_name("body") or node.type == "alias_declaration"):
                    self._declare(node, self.text(name).split("<")[0])
                if name is not None and node.type == "alias_declaration":
                    self.types.append((self.text(name), node))
            elif node.type == "type_definition":
                name, _ = innermost(node.child_by_field_name("declarator"))
                if name is not None:
                    self._declare(node, self.text(name))
                    self.types.append((self.text(name), node))

    def _read_macro(self, node: Node, masked: bytes) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        parameters = node.child_by_field_name("parameters")
        names = [self.text(x) for x in parameters.named_children] if parameters else []
        if name is None or value is None:
            return
        parser = tree_sitter.Parser(_PARSER.language)
        parser.included_ranges = [
            tree_sitter.Range(value.start_point, value.end_point, value.start_byte, value.end_byte)
        ]
        body = masked[value.start_byte : value.end_byte]  # a##b is a name, and #x is parsed as x
        body = re.sub(rb"\s*##\s*|#", lambda found: (b"_" if b"##" in found[0] else b" ") * len(found[0]), body)
        masked = masked[: value.start_byte] + body + masked[value.end_byte :]
        self.macros.append((self.text(name), names, parser.parse(masked).root_node))

    def _read_using(self, node: Node) -> None:
        parts = tuple(self.text(node.named_children[-1]).replace(" ", "").strip(":").split("::"))
        if any(child.type == "namespace" for child in node.children):
            self.usings.add(parts)
        else:
            self.using_names[parts[-1]] = parts

    def _read_declaration(self, node: Node) -> None:
        for declarator in node.children_by_field_name("declarator"):
            inner, function = innermost(declarator)
            if inner is None:
                continue
            if function is not None:
                self.functions.append((self.text(inner), node))
                if inner.type == "identifier":
                    self._declare(node, self.text(inner))
            elif node.type == "field_declaration":
                self.fields.append((self.text(inner), node))

    def _declare(self, node: Node, name: str) -> None:
        path: tuple[str, ...] = (name,)
        up = node.parent
        while up is not None:
            if up.type == "namespace_definition" and (around := up.child_by_field_name("name")):
                path = (*self.text(around).replace(" ", "").split("::"), *path)
            up = up.parent
        self.declared.add(path)

    def text(self, node: Node) -> str:
        """Return the text of a node."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def line(self, byte: int) -> int:
        """Return the number of the line that a byte is in."""
        return bisect.bisect_right(self._starts, byte)

    def unparsed(self) -> list[int]:
        """Return the lines at which the grammar gave up."""
        return sorted(self._errors)


class Project:
    """The names that all files declare, which are not torch's."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources
        self.functions: dict[str, list[tuple[Source, Node]]] = {}
        self.fields: dict[str, list[tuple[Source, Node]]] = {}
        self.types: dict[str, list[tuple[Source, Node]]] = {}
        self.declared = {name for source in sources for name in source.declared}
        self.macros = {name for source in sources for name, _, _ in source.macros}
        self._visible: dict[Path, list[Source]] = {}
        for source in sources:
            for kind in ("functions", "fields", "types"):
                for name, node in getattr(source, kind):
                    getattr(self, kind).setdefault(name, []).append((source, node))

    @contextlib.contextmanager
    def alias(self, name: str) -> Iterator[tuple[Source, Node] | None]:
        """Yield the file and the node of an alias of a type. Inside, it has no alias, as in ``using A = b::A``."""
        found = self.types.pop(name, [])
        yield found[0] if found else None
        self.types[name] = found

    @functools.cached_property
    def includes_seen(self) -> dict[Path, set[str]]:
        """Return what a file includes, together with the files that it includes and those that include it."""
        seen: dict[Path, set[str]] = {}
        for source in self.sources:
            visible = self.visible(source)
            names = {name for file in visible for _, name in file.includes}
            for file in visible:
                seen.setdefault(file.path, set()).update(names)
        return seen

    def visible(self, source: Source) -> list[Source]:
        """Return a file and the files of the project that it includes, directly or indirectly."""
        if source.path not in self._visible:
            found = {source.path: source}
            rest = [source]
            while rest:
                for _, name in rest.pop().includes:
                    tail = "/" + name.removeprefix("../").removeprefix("./").removeprefix("../")
                    for other in self.sources:
                        if other.path not in found and ("/" + other.path.as_posix()).endswith(tail):
                            found[other.path] = other
                            rest.append(other)
            self._visible[source.path] = list(found.values())
        return self._visible[source.path]


def descend(node: Node) -> Iterator[Node]:
    """Yield all nodes under one, in the order of the file."""
    stack = [node]
    while stack:
        yield (node := stack.pop())
        stack += reversed(node.children)


def is_misread(node: Node) -> bool:
    """Tell whether the grammar gave up in a node, not counting the blocks in it."""
    inner = (child for child in node.children if child.has_error and child.type != "compound_statement")
    return node.is_error or node.is_missing or any(map(is_misread, inner))


def part(node: Node | None, field: str) -> Node | None:
    """Return the child with this name in the grammar."""
    return node.child_by_field_name(field) if node is not None else None


def innermost(node: Node | None) -> tuple[Node | None, Node | None]:
    """Return the identifier that a declarator declares, and its function declarator if it has one."""
    function = None
    while node is not None:
        if node.type == "function_declarator":
            inner = node.child_by_field_name("declarator")  # int (*f)() declares a variable
            function = function if inner is not None and inner.type == "parenthesized_declarator" else node
        if node.type in ("identifier", "field_identifier", "type_identifier", "operator_name", "destructor_name"):
            return node, function
        if node.type == "qualified_identifier":
            node = node.child_by_field_name("name")
        elif node.type in ("reference_declarator", "parenthesized_declarator", "variadic_declarator"):
            node = node.named_children[-1] if node.named_children else None
        else:
            node = node.child_by_field_name("declarator")
    return None, function


def _masked(data: bytes) -> bytes:
    """Return the bytes with CUDA's syntax replaced by C++ of the same length. A launch becomes a call of a call."""
    depth = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal depth
        if match["open"]:
            depth += 1
            return b"  ("
        if match["close"] and depth:
            depth -= 1
            return b")  "
        hidden = match["blank"] or match["export"]
        return match[0].replace(hidden, re.sub(rb"[^\r\n]", b" ", hidden)) if hidden else match[0]

    return _LEX.sub(replace, data)
