"""Scopes, and what a name means: a variable, something of the extension's, or something of torch's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from ._findings import Findings
from ._source import Node, Project, Source
from ._table import table

ROOTS = ("at", "c10", "torch", "caffe2")


class Names(Findings):
    """Resolves the names of one file."""

    def __init__(self, source: Source, project: Project, target: str, broken: dict[str, str]) -> None:
        super().__init__(source, project, target, broken)
        visible = project.visible(source)
        self.scopes: list[dict[str, str]] = [{}]  # the type of each variable, in the words of _types.py
        self.constant: set[str] = set()  # variables that are const
        self.guessed: dict[str, str] = {}  # variables whose value depends on an unsolved line, and that line
        self.here: tuple[str, ...] = ()  # the namespace around the node that is read
        self.opened = {path for file in visible for path in file.usings if path[0] not in ROOTS}
        self.inside: set[tuple[str, ...]] = set()  # the namespaces of torch that the extension opens
        self.usings = {path for file in visible for path in file.usings if path[0] in ROOTS}
        self.std = any(path == ("std",) for file in visible for path in file.usings)
        self.using_names = {k: v for file in visible for k, v in file.using_names.items()}
        self.aliases = {"py": ("pybind11",)} | {k: v for file in visible for k, v in file.aliases.items()}

    def read_name(self, node: Node, *, called: Node | None = None) -> None:
        """Find a name of torch's, and replace it if the table can. ``called`` has the arguments of a call."""
        nodes = self.parts(node)
        full = self.resolve(nodes, called=called is not None)
        if full is None or full == ("torch",):
            self.read_broken(node, nodes)
            return
        if full[0] == "std" or (len(full) == 1 and self.std):
            self.need_header("std", full[-1] if len(full) < 3 else full[1])
            return
        whole = "::".join(full)
        if full[0] == "pybind11":
            self.apply(table().rows["name", "pybind11"][0], node, whole, "name")
            return
        if whole.startswith(("torch::stable::", "torch::headeronly::")):
            self.need(whole)
            return
        # The longest part of the name that a table has: at::ScalarType in at::ScalarType::Float.
        for count in range(len(full), 1, -1):
            known = table().names.get("::".join(full[:count]))
            if known and not (self.is_newer(known["builds"]) and ("name", "::".join(full[1:count])) in table().rows):
                self.need("::".join(full[:count]))
                return
            if self.replace_name(node, nodes, full, count, called):
                return
        self.add(node, whole, "name", "none", *self.without(full))
        self.qualify(nodes, full)

    def replace_name(
        self, node: Node, nodes: list[Node], full: tuple[str, ...], count: int, called: Node | None
    ) -> bool:
        """Find the first ``count`` components of a name in the table of replacements."""
        key, rest = "::".join(full[1:count]), len(full) - count
        component = nodes[len(nodes) - rest - 1] if rest < len(nodes) else nodes[-1]
        end, template = self.component(component).end_byte, self.template(component)
        for kind in ("name", "guard"):
            size = len(called.named_children) if called is not None else None
            if any("$T" in row.to for row in table().rows.get((kind, key), ())[:1]):
                size = len(template)
            row = table().find(kind, key, size, len(template), self.target)
            if row and "$" not in row.to:
                self.apply(row, node, "::".join(full), kind, end=end)
                if row.how != "mechanical":
                    self.qualify(nodes, full)
                return True
            if row and called is None and "$T" in row.to:
                pieces = self.fill(row.to, [], template, None)
                self.apply(row, node, "::".join(full), kind, pieces, end=component.end_byte)
                return True
        if (row := table().same(key)) is not None:
            self.apply(row, node, "::".join(full), "name", end=end)
        return row is not None

    def resolve(self, nodes: list[Node], *, called: bool) -> tuple[str, ...] | None:
        """Return the full name of what torch, pybind11 or the standard library declares, or None."""
        names = tuple(self.text(self.component(node)) for node in nodes)
        if len(names) == 1 and self.local(names[0]) is not None:
            return None
        if names[0] in self.aliases and names[0] not in ROOTS:
            names = self.aliases[names[0]] + names[1:]
        if names[0] in self.using_names:
            names = self.using_names[names[0]] + names[1:]
        if names[0] in (*ROOTS, "pybind11", "std"):
            return names
        if self.is_declared(names[0]):
            return None
        usings = sorted(self.usings | self.inside)
        found = (path for path in usings if self.is_known(path[1:] + names, path[0], called=called))
        return next(((*path, *names) for path in found), None)

    def is_declared(self, name: str) -> bool:
        """Tell whether the extension declares a name that is visible here."""
        around = [self.here[:i] for i in range(len(self.here) + 1)]
        return any((*path, name) in self.project.declared for path in (*around, *self.opened))

    def is_known(self, names: tuple[str, ...], root: str, *, called: bool) -> bool:
        """Tell whether torch has something of this name, as far as the tables know."""
        key = "::".join(names)
        for i in range(len(names)):
            head = "::".join(names[: i + 1])
            if any((kind, head) in table().rows for kind in ("name", "guard", "factory")) or table().same(head):
                return True
        return f"{root}::{key}" in table().names or (called and key in table().aten)

    def read_broken(self, node: Node, nodes: list[Node]) -> None:
        """Find a use of what another line declares with a type that the stable ABI lacks."""
        name = self.text(self.component(nodes[-1]))
        if name.startswith("THPVariable_") or (name.startswith("PyInit_") and not self.limited):
            self.tell(node, name, "name", name.partition("_")[0])
            return
        kind = self.local(name) if len(nodes) == 1 else None
        if kind is None:
            origin = self.broken.get(name)
        else:
            origin = kind[4:] if kind.startswith("bad:") else self.guessed.get(name)
        for outer in nodes[:-1] if origin is None else ():
            kind = self.local(self.text(self.component(outer))) or ""
            origin = origin or (
                kind[4:] if kind.startswith("bad:") else self.broken.get(self.text(self.component(outer)))
            )
        if origin is not None:
            self.follow(node, name, origin)
            return
        if kind is None and not self.is_declared(name):
            if self.std and len(nodes) == 1:
                self.need_header("std", name)
            self.need_header("c", name)

    def follow(self, node: Node, what: str, origin: str | None, *, whole: bool = False) -> None:
        """Record that a line is right when another is."""
        if origin and origin != f"{self.source.path}:{self.source.line(node.start_byte)}":
            self.add(node, what, "name", "follows", f"follows from {origin}", "", whole=whole)

    def qualify(self, nodes: list[Node], full: tuple[str, ...]) -> None:
        """Write a name in full, because the using declaration that brought it is removed."""
        if len(full) > len(nodes) and not any(full[: len(path)] == path for path in self.inside):
            prefix = "::".join(full[: len(full) - len(nodes) + 1])
            self.replace(self.component(nodes[0]), prefix.encode())

    def without(self, full: tuple[str, ...]) -> tuple[str, str]:
        """Return the advice for a name that is not in the table, and its source."""
        kind = "aten" if full[-1] in table().aten and len(full) == 2 else "name"
        row = table().rows[kind, "*"][0]
        return row.to.replace("$name", full[-1]), row.source

    # The parts of a name

    def parts(self, node: Node) -> list[Node]:
        """Return the components of a name."""
        found = []
        while node.type == "qualified_identifier":
            if scope := node.child_by_field_name("scope"):
                found.append(scope)
            name = node.child_by_field_name("name")
            if name is None:
                break
            node = name
        return [*found, node]

    def component(self, node: Node) -> Node:
        """Return a component without its template arguments."""
        if node.type in ("template_type", "template_function", "template_method", "dependent_name"):
            return self.component(node.child_by_field_name("name") or node.named_children[0])
        return node

    def template(self, node: Node) -> list[Node]:
        """Return the template arguments of a component."""
        arguments = node.child_by_field_name("arguments")
        return arguments.named_children if arguments is not None and arguments.type == "template_argument_list" else []

    # Scopes

    def in_function(self, node: Node | None) -> bool:
        """Tell whether a node is in the body or the parameters of a function."""
        while node is not None and node.type not in ("compound_statement", "parameter_list"):
            node = node.parent
        return node is not None

    @contextlib.contextmanager
    def scope(self, names: Sequence[str] = ()) -> Iterator[None]:
        """Open a scope with variables of unknown type."""
        self.scopes.append(dict.fromkeys(names, ""))
        outer = dict(self.guessed), set(self.constant)
        yield
        self.scopes.pop()
        self.guessed, self.constant = outer

    def local(self, name: str) -> str | None:
        """Return the type of a variable, or None if no variable has this name."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)
