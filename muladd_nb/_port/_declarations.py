"""Declarations: the types of variables, and what depends on a type that the stable ABI lacks.

A variable of such a type is not declared after the port, so each line that uses it is an error too. The report says
that these lines follow from the first.
"""

from __future__ import annotations

from ._calls import Calls
from ._findings import Finding
from ._names import ROOTS, Variable
from ._source import EMPTY, Node, descend, innermost, part
from ._table import table


class Declarations(Calls):
    """Reads namespaces, classes, functions, variables and aliases."""

    # Namespaces and aliases

    def on_namespace_definition(self, node: Node) -> None:
        """Inside torch's own namespaces, its names need no prefix."""
        name, before = part(node, "name"), (self.here, self.inside)
        path = self.source.path_of(name) if name is not EMPTY else ()
        self.here += path
        if path[:1] and path[0] in ROOTS:
            self.inside = self.inside | {path[: i + 1] for i in range(len(path))}
        self.scoped(part(node, "body"))
        self.here, self.inside = before

    def on_using_declaration(self, node: Node) -> None:
        """Remove a using declaration or an alias of a namespace of torch's: each name is written in full."""
        path, is_alias = self.source.path_of(node.named_children[-1]), node.type == "namespace_alias_definition"
        is_stable = not is_alias and path[:2] in (("torch", "stable"), ("torch", "headeronly"))
        if path[0] in (*ROOTS, "pybind11" if is_alias else "at") and not is_stable:
            self.tell(node, "::".join(path) if is_alias else self.text(node).rstrip("; "), "using", "*")
            self.remove_line(node)

    on_namespace_alias_definition = on_using_declaration

    def on_alias_declaration(self, node: Node) -> None:
        """Record an alias of a type that the stable ABI lacks."""
        before, name = len(self.findings), self.text(part(node, "name"))
        self.walk(part(node, "type"))
        if bad := self.unsolved(before):
            self.scopes[-1][name] = Variable("bad", bad[0].where)
            if not self.in_function(node):
                self.newly_broken.setdefault(name, bad[0].where)

    def on_class_specifier(self, node: Node) -> None:
        """Record a class whose base the stable ABI lacks: then all of it is to be written anew."""
        before, name, body = len(self.findings), part(node, "name"), part(node, "body")
        for child in node.children:
            if child == body:
                if (bad := self.unsolved(before)) and name is not EMPTY:
                    self.newly_broken.setdefault(self.text(name).split("<")[0], bad[0].where)
                    bad[0].end_line = self.source.line(node.end_byte)
                self.scoped(child)
            elif child != name:
                self.walk(child)

    on_struct_specifier = on_class_specifier

    # Functions

    def on_function_definition(self, node: Node) -> None:
        """Read a function in a scope; a registration is parsed as a function, too."""
        outer, (name, function) = (self.options, self.unused), innermost(part(node, "declarator"))
        self.options, self.unused = {}, {}
        with self.scope():
            if not (function is not EMPTY and self.on_registration(node, name, function)):
                around = self.text(part(name.parent or EMPTY, "scope"))
                self.follow(node, f"{around}::{self.text(name)}", self.broken.get(around.split("<")[0], ""), whole=True)
                self.read_body(node, name)
            self.drop_options()
        self.options, self.unused = outer

    def on_lambda_expression(self, node: Node) -> None:
        """Read a lambda."""
        with self.scope():
            self.read_body(node)

    def read_body(self, node: Node, name: Node = EMPTY) -> None:
        """Read a signature, then a body."""
        before, body = len(self.findings), part(node, "body")
        for child in node.children:
            if child == body:
                self.check_signature(name, node, before)
            self.walk(child)

    def check_signature(self, name: Node, node: Node, before: int) -> None:
        """Record a function that uses a type which the stable ABI lacks: it and its parameters are then broken, too."""
        if bad := self.unsolved(before):
            for variable in self.scopes[-1].values():
                variable.guessed = bad[0].where
            if name is not EMPTY:
                self.newly_broken.setdefault(self.text(name), bad[0].where)
                bad[0].end_line = max(bad[0].end_line, self.source.line(part(node, "declarator").end_byte))

    def on_registration(self, node: Node, name: Node, function: Node) -> bool:
        """Read TORCH_LIBRARY(ns, m) { ... } and PYBIND11_MODULE(name, m) { ... }."""
        macro, parameters = self.text(name), part(function, "parameters").named_children
        if part(node, "type") is not EMPTY:
            return False
        if macro.startswith(("TORCH_LIBRARY", "STABLE_TORCH_LIBRARY", "PYBIND11_MODULE")) and parameters:
            variable = self.text(parameters[-1]).split()[-1]
            self.scopes[-1][variable] = Variable("pybind" if macro.startswith("PYBIND") else "library")
        elif not self.is_macro(macro) or macro in table().names:
            return False
        self.read_macro(name, at=node if macro.startswith("PYBIND11_MODULE") else None)
        self.walk(part(node, "body"))
        return True

    # Variables

    def on_declaration(self, node: Node) -> None:
        """Give variables their types."""
        type_node, before, lost = part(node, "type"), len(self.findings), ""
        self.walk(type_node)
        bad, declared = self.unsolved(before), self.type_of_type(type_node)
        guard = bool(self.findings[before:]) and self.findings[-1].kind == "guard"
        for i, child in enumerate(node.children):
            if child != type_node and node.field_name_for_child(i) != "declarator":
                self.walk(child)
            elif child != type_node:
                origin = self.declare(node, child, declared, bad, guard=guard)
                variable = self.variable(self.text(innermost(child)[0]))
                if lost and variable:  # after an error a compiler skips the rest of a declaration
                    variable.guessed = lost
                lost = lost or origin
        if bad and any(innermost(x)[1] is not EMPTY for x in node.children_by_field_name("declarator")):
            self.check_signature(innermost(part(node, "declarator"))[0], node, before)

    on_field_declaration = on_parameter_declaration = on_optional_parameter_declaration = on_declaration

    def declare(self, node: Node, declarator: Node, declared: str, bad: list[Finding], *, guard: bool) -> str:
        """Record the variables of one declarator; return the unsolved line that they depend on, if any."""
        (name, function), value, before = innermost(declarator), part(declarator, "value"), len(self.findings)
        of, text, is_function = declared or self.type_of(value), self.text(name), function is not EMPTY
        words = {self.text(child) for child in node.children}
        is_variable, is_first = node.type == "declaration", len(node.children_by_field_name("declarator")) == 1
        inner = [x for x in (declarator, *declarator.named_children[:1]) if x.type == "structured_binding_declarator"]
        bound = [self.text(word) for binding in inner for word in binding.named_children]
        self.scopes[-1] |= {word: Variable("Tensor" if of in ("tuple", "Tensor") else "") for word in bound}
        if guard:  # Guard guard(device); is parsed as a function, too
            self.read_guard(part(function, "parameters") if is_function else value)
        if text and not is_function:
            if of == "options" and is_variable and is_first and self.read_options(value) is not None:
                self.options[text], self.unused[text] = value, node
                self.scopes[-1][text] = Variable("options")
                self.findings = [x for x in self.findings if x not in bad]
                return ""
            if bad and not self.in_function(node):
                self.newly_broken.setdefault(text, bad[0].where)
            if of == "" and value is EMPTY and node.type != "parameter_declaration":
                of = "other"
        # A variable with arguments is parsed as a function: Tensor x(y);
        if text and (not is_function or (len(self.scopes) > 1 and is_variable)):
            is_reference = b"&" in self.source.data[declarator.start_byte : name.start_byte]
            root = self.variable(self.text(self.root_of(value))) if is_reference else None
            constant = "const" in words or (root is not None and root.constant)
            in_branch = node.parent is not None and node.parent.type.startswith("preproc_")  # of #if or #else
            other_branch = self.scopes[-1].get(text, Variable()).guessed if in_branch else ""
            self.scopes[-1][text] = Variable("bad" if bad else of, bad[0].where if bad else "", other_branch, constant)
        self.walk(declarator)
        found = self.unsolved(before)
        origin = found[0].where if found else self.guess(value)
        fixed = declarator.type == "array_declarator" or "constexpr" in words
        if not is_function and (declared == "" or not is_variable or fixed):
            for word in [text] if text else bound:
                self.scopes[-1][word].guessed = origin or self.scopes[-1][word].guessed
        return origin

    def on_for_range_loop(self, node: Node) -> None:
        """Give the variable of a loop its type."""
        before, declarator, body = len(self.findings), part(node, "declarator"), part(node, "body")
        element = "Tensor" if self.type_of(part(node, "right")) in ("Tensor", "Tensor[]") else ""
        with self.scope():
            if name := self.text(innermost(declarator)[0]):
                constant = any(self.text(x) == "const" for x in node.children)
                self.scopes[-1][name] = Variable(self.type_of_type(part(node, "type")) or element, constant=constant)
            for child in node.children:
                if child == body and (bad := self.unsolved(before)):
                    for word in descend(declarator):
                        if word.type == "identifier":
                            self.scopes[-1].setdefault(self.text(word), Variable()).guessed = bad[0].where
                self.walk(child)
