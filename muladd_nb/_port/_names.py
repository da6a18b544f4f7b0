"""Scopes, and what a name means: a variable, something of the extension's, or something of torch's."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from ._findings import Findings
from ._source import EMPTY, Node, above, part
from ._table import Row, table

ROOTS = ("at", "c10", "torch", "caffe2")
Path = tuple[str, ...]


class Word(NamedTuple):
    """One of the words that ``::`` joins to a name."""

    node: Node  # without template arguments
    text: str
    template: list[Node]
    end: int  # with template arguments


@dataclasses.dataclass
class Variable:
    """A variable, or a type that a function declares."""

    type: str = ""  # in the words of _types.py
    bad: str = ""  # the line with its type, if the stable ABI lacks the type
    guessed: str = ""  # the unsolved line that its value depends on
    constant: bool = False


@dataclasses.dataclass(eq=False)
class Names(Findings):
    """Resolves the names of one file."""

    here: Path = ()  # the namespace around the node that is read
    inside: set[Path] = field(default_factory=set)  # the namespaces of torch that the extension opens
    scopes: list[dict[str, Variable]] = field(default_factory=lambda: [{}])

    def __post_init__(self) -> None:
        visible = self.project.visible(self.source)
        usings = {path for file in visible for path in file.usings}
        self.opened = {path for path in usings if path[0] not in ROOTS}
        self.usings, self.std = usings - self.opened, ("std",) in usings
        self.using_names = {k: v for file in visible for k, v in file.using_names.items()}
        self.aliases = {"py": ("pybind11",)} | {k: v for file in visible for k, v in file.aliases.items()}

    def read_name(self, node: Node, *, called: Node | None = None) -> None:
        """Find a name of torch's, and replace it if the table can. ``called`` has the arguments of a call."""
        words = self.words(node)
        full = self.resolve(words, called=called is not None)
        whole = "::".join(full or ())
        if full is None or len(full) == 1:
            self.read_broken(node, words)
        elif full[0] == "std":
            self.need_header("std", full[-1] if len(full) < 3 else full[1])
        elif full[0] == "pybind11":
            self.apply(table().rows["name", "pybind11"][0], node, whole, "name")
        elif whole.startswith(("torch::stable::", "torch::headeronly::")):
            self.need(whole)
        # The longest part of the name that a table has: at::ScalarType in at::ScalarType::Float.
        elif not any(self.replace_name(node, words, full, count, called) for count in range(len(full), 1, -1)):
            self.tell(node, whole, "name", self.without(full))
            self.qualify(words, full)

    def replace_name(self, node: Node, words: list[Word], full: Path, count: int, called: Node | None) -> bool:
        """Find the first ``count`` words of a name in the tables."""
        key, what = "::".join(full[1:count]), "::".join(full)
        known = table().names.get("::".join(full[:count]))
        if known and not (self.is_newer(known["builds"]) and ("name", key) in table().rows):
            self.need("::".join(full[:count]))
            return True
        rest = len(full) - count
        word = words[-1 - rest] if rest < len(words) else words[-1]
        for kind in ("name", "guard"):
            size = len(called.named_children) if called is not None else None
            if any("$T" in row.to for row in table().rows.get((kind, key), ())[:1]):
                size = len(word.template)
            row = table().find(kind, key, size, len(word.template), self.target)
            if row and ("$" not in row.to or (called is None and "$T" in row.to)):
                pieces = self.fill(row.to, [], word.template) if "$" in row.to else []
                self.apply(row, node, what, kind, pieces, end=word.end if pieces else word.node.end_byte)
                if row.how != "mechanical":
                    self.qualify(words, full)
                return True
        if (row := table().same(key)) is not None:
            self.apply(row, node, what, "name", end=word.node.end_byte)
        return row is not None

    def resolve(self, words: list[Word], *, called: bool = False) -> Path | None:
        """Return the full name of what torch, pybind11 or the standard library declares, or None."""
        names = tuple(word.text for word in words)
        if len(names) == 1 and self.variable(names[0]):
            return None
        if names[0] not in ROOTS:
            names = self.aliases.get(names[0], names[:1]) + names[1:]
        names = self.using_names.get(names[0], names[:1]) + names[1:]
        if names[0] in (*ROOTS, "pybind11", "std"):
            return names
        for path in [] if self.is_declared(names[0]) else sorted(self.usings | self.inside):
            if self.is_known(path + names, called=called):
                return path + names
        return None

    def is_declared(self, name: str) -> bool:
        """Tell whether the extension declares a name that is visible here."""
        around = [self.here[:i] for i in range(len(self.here) + 1)]
        return any((*path, name) in self.project.declared for path in (*around, *self.opened))

    def is_known(self, full: Path, *, called: bool) -> bool:
        """Tell whether torch has something of this name, as far as the tables know."""
        heads = ["::".join(full[1:i]) for i in range(2, len(full) + 1)]
        if any((kind, head) in table().rows for kind in ("name", "guard", "factory") for head in heads):
            return True
        is_torchs = "::".join(full) in table().names or (called and heads[-1] in table().aten)
        return is_torchs or any(map(table().same, heads))

    def read_broken(self, node: Node, words: list[Word]) -> None:
        """Find a use of what another line declares with a type that the stable ABI lacks."""
        name, variable = words[-1].text, self.variable(words[0].text)
        if name.startswith("THPVariable_") or (name.startswith("PyInit_") and not self.limited):
            self.tell(node, name, "name", name.partition("_")[0])
            return
        is_variable = len(words) == 1 and variable is not None
        origins = [variable.bad or variable.guessed] if variable and is_variable else [self.broken.get(name, "")]
        for word in words[:-1]:
            outer = self.variable(word.text)
            origins += [outer.bad if outer else "", self.broken.get(word.text, "")]
        if any(origins):
            self.follow(node, name, next(filter(None, origins)))
        elif not is_variable:
            self.need_header("posix", name)  # which an extension declares for Windows alone
            for kind in () if self.is_declared(name) else ("std", "c") if self.std and len(words) == 1 else ("c",):
                self.need_header(kind, name)

    def follow(self, node: Node, what: str, origin: str, kind: str = "name", *, whole: bool = False) -> None:
        """Record that a line is right when another is."""
        if origin and origin != f"{self.source.path}:{self.source.line(node.start_byte)}":
            self.tell(node, what, kind, Row(what, "", "follows", f"follows from {origin}"), whole=whole)

    def qualify(self, words: list[Word], full: Path) -> None:
        """Write a name in full, because the using declaration that brought it is removed."""
        if len(full) > len(words) and not any(full[: len(path)] == path for path in self.inside):
            self.replace(words[0].node, "::".join(full[: len(full) - len(words) + 1]).encode())

    def without(self, full: Path) -> Row:
        """Return the advice for a name that is not in the table."""
        kind = "aten" if full[-1] in table().aten and len(full) == 2 else "name"
        row = table().rows[kind, "*"][0]
        return Row("*", "", "none", row.to.replace("$name", full[-1]), row.source)

    def words(self, node: Node) -> list[Word]:
        """Return the words of a name."""
        found = []
        while node.type == "qualified_identifier" and (name := part(node, "name")) is not EMPTY:
            found += [scope] if (scope := node.child_by_field_name("scope")) else []
            node = name
        return [self.word(component) for component in (*found, node)]

    def word(self, node: Node) -> Word:
        """Return a name without a ``::``."""
        arguments, inner = part(node, "arguments"), node
        while inner.type in ("template_type", "template_function", "template_method", "dependent_name"):
            inner = inner.child_by_field_name("name") or inner.named_children[0]
        is_template = arguments.type == "template_argument_list"
        return Word(inner, self.text(inner), arguments.named_children if is_template else [], node.end_byte)

    # Scopes

    def in_function(self, node: Node) -> bool:
        """Tell whether a node is in the body or the parameters of a function."""
        return any(up.type in ("compound_statement", "parameter_list") for up in (node, *above(node)))

    @contextlib.contextmanager
    def scope(self, names: Sequence[str] = ()) -> Iterator[None]:
        """Open a scope with variables of unknown type."""
        self.scopes.append({name: Variable() for name in names})
        yield
        self.scopes.pop()

    def variable(self, name: str) -> Variable | None:
        """Return the variable of this name."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def local(self, node: Node) -> str:
        """Return the type of a variable, or "" if it is not known."""
        variable = self.variable(self.text(node)) if node.type == "identifier" else None
        return variable.type if variable else ""
