"""Declarations: the types of variables, and what depends on a type that the stable ABI lacks.

A variable of such a type is not declared after the port, so each line that uses it is an error too. The report says
that these lines follow from the first.
"""

from __future__ import annotations

import re

from ._calls import Calls
from ._edits import span
from ._findings import Finding
from ._names import ROOTS
from ._source import Node, descend, innermost, part
from ._table import table


class Declarations(Calls):
    """Reads namespaces, classes, functions, variables and aliases."""

    # Namespaces and aliases

    def on_namespace_definition(self, node: Node) -> None:
        """Inside torch's own namespaces, its names need no prefix."""
        name, before = part(node, "name"), (self.here, self.inside)
        path = tuple(self.text(name).replace(" ", "").split("::")) if name else ()
        self.here += path
        if path and path[0] in ROOTS:
            self.inside = self.inside | {path[: i + 1] for i in range(len(path))}
        if body := part(node, "body"):
            self.scoped(body)
        self.here, self.inside = before

    def on_using_declaration(self, node: Node) -> None:
        """Remove a using declaration for torch's names. Each use of them is written in full."""
        name = self.text(node.named_children[-1]).replace(" ", "")
        if name.split("::")[0] in ROOTS and not name.startswith(("torch::stable", "torch::headeronly")):
            self.tell(node, self.text(node).rstrip("; "), "using", "*")
            self.remove_line(node)

    def on_namespace_alias_definition(self, node: Node) -> None:
        """Remove an alias of a namespace of torch's."""
        name = self.text(node.named_children[-1]).replace(" ", "")
        if name.split("::")[0] in (*ROOTS, "pybind11"):
            self.tell(node, name, "using", "*")
            self.remove_line(node)

    def on_alias_declaration(self, node: Node) -> None:
        """Record an alias of a type that the stable ABI lacks."""
        before = len(self.findings)
        if type_node := part(node, "type"):
            self.walk(type_node)
        bad, name = self.unsolved(before), part(node, "name")
        if bad and name:
            self.scopes[-1][self.text(name)] = f"bad:{bad[0].where}"
            if not self.in_function(node):
                self.newly_broken.setdefault(self.text(name), bad[0].where)

    def on_class_specifier(self, node: Node) -> None:
        """Record a class whose base the stable ABI lacks: then all of it is to be written anew."""
        before, name, body = len(self.findings), part(node, "name"), part(node, "body")
        for child in node.children:
            if child == body:
                if (bad := self.unsolved(before)) and name is not None:
                    self.newly_broken.setdefault(self.text(name).split("<")[0], bad[0].where)
                    bad[0].end_line = self.source.line(node.end_byte)
                self.scoped(child)
            elif child != name:
                self.walk(child)

    on_struct_specifier = on_class_specifier

    # Functions

    def on_function_definition(self, node: Node) -> None:
        """Read a function in a scope; a registration is parsed as a function, too."""
        outer = self.options, self.unused
        self.options, self.unused = {}, {}
        name, function = innermost(part(node, "declarator"))
        with self.scope():
            if not (name and function and self.on_registration(node, name, function)):
                around = name and part(name.parent, "scope")
                if name and around and (origin := self.broken.get(self.text(around).split("<")[0])):
                    self.follow(node, f"{self.text(around)}::{self.text(name)}", origin, whole=True)
                self.read_body(node, name)
            self.drop_options()
        self.options, self.unused = outer

    def on_lambda_expression(self, node: Node) -> None:
        """Read a lambda."""
        with self.scope():
            self.read_body(node, None)

    def read_body(self, node: Node, name: Node | None) -> None:
        """Read a signature, then a body."""
        before, body = len(self.findings), part(node, "body")
        for child in node.children:
            if child == body:
                self.check_signature(name, node, before)
            self.walk(child)

    def check_signature(self, name: Node | None, node: Node, before: int) -> None:
        """Record a function that uses a type which the stable ABI lacks: it and its parameters are then broken, too."""
        if not (bad := self.unsolved(before)):
            return
        self.guessed |= dict.fromkeys(self.scopes[-1], bad[0].where)
        if name is not None:
            self.newly_broken.setdefault(self.text(name), bad[0].where)
            declarator = part(node, "declarator")
            end = self.source.line(declarator.end_byte if declarator else node.start_byte)
            bad[0].end_line = max(bad[0].end_line, end)

    def on_registration(self, node: Node, name: Node, function: Node) -> bool:
        """Read TORCH_LIBRARY(ns, m) { ... } and PYBIND11_MODULE(name, m) { ... }."""
        macro, parameters, body = self.text(name), part(function, "parameters"), part(node, "body")
        if part(node, "type") is not None or parameters is None:
            return False
        opens = macro.startswith(("TORCH_LIBRARY", "STABLE_TORCH_LIBRARY", "PYBIND11_MODULE"))
        if opens and parameters.named_children:
            variable = self.text(parameters.named_children[-1]).split()[-1]
            self.scopes[-1][variable] = "pybind" if macro.startswith("PYBIND") else "library"
        elif not self.is_macro(macro) or macro in table().names:
            return False
        self.read_macro(name, None)
        self.walk(body or node)
        return True

    # Variables

    def on_declaration(self, node: Node) -> None:
        """Give variables their types."""
        type_node, before = part(node, "type"), len(self.findings)
        if type_node is not None:
            self.walk(type_node)
        bad, lost = self.unsolved(before), None
        guard = bool(self.findings[before:]) and self.findings[-1].kind == "guard"
        declared = self.type_of_type(type_node)
        for i, child in enumerate(node.children):
            if child == type_node:
                continue
            if node.field_name_for_child(i) != "declarator":
                self.walk(child)
                continue
            origin = self.declare(node, child, declared, bad, guard=guard)
            name, _ = innermost(child)
            if lost and name is not None:  # after an error a compiler skips the rest of a declaration
                self.guessed[self.text(name)] = lost
            lost = lost or origin
        if bad and any(innermost(x)[1] is not None for x in node.children_by_field_name("declarator")):
            self.check_signature(innermost(part(node, "declarator"))[0], node, before)

    on_field_declaration = on_parameter_declaration = on_optional_parameter_declaration = on_declaration

    def declare(self, node: Node, declarator: Node, declared: str, bad: list[Finding], *, guard: bool) -> str | None:
        """Record the variables of one declarator; return the unsolved line that they depend on, if any."""
        name, function = innermost(declarator)
        value = part(declarator, "value")
        of = declared or self.type_of(value)
        inner = [x for x in (declarator, *declarator.named_children[:1]) if x.type == "structured_binding_declarator"]
        bound = [self.text(word) for binding in inner for word in binding.named_children]
        self.scopes[-1] |= dict.fromkeys(bound, "Tensor" if of in ("tuple", "Tensor") else "")
        if guard and value is not None:
            self.read_guard(value)
        elif guard and function is not None:  # Guard guard(device); is parsed as a function, too
            for parameter in (part(function, "parameters") or function).named_children:
                if self.local(self.text(parameter)) == "device":
                    self.replace(parameter, span(parameter), b".index()")
                elif match := re.fullmatch(r"(?:\w+::)*device_of\((.+)\)", self.text(parameter)):
                    self.replace(parameter, f"{match[1]}.get_device_index()".encode())
        before = len(self.findings)
        is_variable = node.type == "declaration"
        if name is not None and function is None:
            text = self.text(name)
            single = is_variable and len(node.children_by_field_name("declarator")) == 1
            if of == "options" and value is not None and single and self.read_options(value) is not None:
                self.options[text], self.unused[text] = value, node
                self.scopes[-1][text] = "options"
                self.findings = [x for x in self.findings if x not in bad]
                return None
            if bad and not self.in_function(node):
                self.newly_broken.setdefault(text, bad[0].where)
            if of == "" and value is None and node.type != "parameter_declaration":
                of = "other"
        # A variable with arguments is parsed as a function: Tensor x(y);
        if name is not None and (function is None or (len(self.scopes) > 1 and is_variable)):
            self.scopes[-1][self.text(name)] = f"bad:{bad[0].where}" if bad else of
        self.walk(declarator)
        found = self.unsolved(before)
        origin = found[0].where if found else self.guess(value)
        if name is not None:
            root = self.root_of(value) if b"&" in self.source.data[declarator.start_byte : name.start_byte] else None
            is_const = any(self.text(x) == "const" for x in node.children)
            is_const |= root is not None and self.text(root) in self.constant
            (self.constant.add if is_const else self.constant.discard)(self.text(name))
        for word in [self.text(name)] if name is not None else bound:
            self.guessed.pop(word, None)
            fixed = declarator.type == "array_declarator" or any(self.text(x) == "constexpr" for x in node.children)
            if origin and (declared == "" or not is_variable or fixed) and function is None:
                self.guessed[word] = origin
        return origin

    def on_for_range_loop(self, node: Node) -> None:
        """Give the variable of a loop its type."""
        before, declarator, body = len(self.findings), part(node, "declarator"), part(node, "body")
        name, _ = innermost(declarator)
        with self.scope():
            if name is not None:
                element = "Tensor" if self.type_of(part(node, "right")) in ("Tensor", "Tensor[]") else ""
                self.scopes[-1][self.text(name)] = self.type_of_type(part(node, "type")) or element
            for child in node.children:
                if child == body and (bad := self.unsolved(before)):
                    for word in descend(declarator or node):
                        if word.type == "identifier":
                            self.scopes[-1].setdefault(self.text(word), "")
                            self.guessed[self.text(word)] = bad[0].where
                self.walk(child)
