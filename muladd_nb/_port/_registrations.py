"""Registrations: ``m.def``, ``m.impl``, and the schema of a function that has only a binding."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import field

from ._findings import span
from ._source import Node, innermost, part
from ._table import table
from ._walk import Walk

WIDE = {"int": "int64_t, as the schema's int is", "float": "double, as the schema's float is"}
CONTAINERS = {"optional": "{}?", "tuple": "({})", "vector": "{}[]", "ArrayRef": "{}[]", "List": "{}[]"}


@dataclasses.dataclass(eq=False)
class Registrations(Walk):
    """Reads the calls of a library's methods, and of a pybind11 module's."""

    schemas: list[str] = field(default_factory=list)

    def read_library(self, node: Node, name: str, inner: list[Node]) -> None:
        """Read m.def(...) and m.impl(...) of a library."""
        literal, count = self.string(inner[0]) if inner else "", len(inner)
        has_schema = "(" in literal
        is_tagged = count == 2 and has_schema and inner[1].type == "initializer_list"
        if name == "def" and has_schema:
            self.schemas.append(literal)
        if name == "impl" and count == 2:
            self.read_impl(inner.pop())
        elif name == "impl":
            self.tell(node, "m.impl(name, key, f)", "library", "impl key", whole=True)
        elif name == "def" and count == 2 and not is_tagged:
            schema = literal if has_schema else self.schema_of(literal, inner[1]) or "None"
            to = table().rows["library", "def"][0].to.replace("$schema", schema)
            self.tell(
                node, "m.def(name, f)", "library", "def", to=to.replace("$name", literal.split("(")[0]), whole=True
            )
        elif name == "def" and is_tagged and self.is_newer("2.12"):
            self.tell(node, "m.def(schema, tags)", "library", "def tags")
        elif name not in ("def", "set_python_module") or (name == "set_python_module" and self.is_newer("2.13")):
            key = name if ("library", name) in table().rows else "*"
            self.tell(node, f"m.{name}()", "library", key, whole=key == "*")
        self.walk(*inner)

    def read_binding(self, node: Node, name: str, inner: list[Node]) -> None:
        """Read m.def(...) of a pybind11 module."""
        literal = self.string(inner[0]) if inner else ""
        if name == "def" and literal and len(inner) > 1:
            schema = self.schema_of(literal, inner[1])
            to = f'm.def("{schema}")' if schema else ""
            self.tell(node, f'm.def("{literal}")', "library", "pybind def", to=to, whole=True)

    def read_impl(self, function: Node) -> None:
        """Box the function that implements an operator."""
        text, row = self.text(function), table().rows["library", "impl"][0]
        if function.type in ("pointer_expression", "identifier", "qualified_identifier", "template_function"):
            begin = b"TORCH_BOX(" if text.startswith("&") else b"TORCH_BOX(&"
            self.apply(row, function, "m.impl()", "library", [begin, span(function), b")"])
            if function.type != "pointer_expression":
                self.read_broken(function, self.words(function))
            function = part(function, "argument")
        elif not text.startswith(("TORCH_FN", "TORCH_BOX")):
            self.tell(function, "m.impl()", "library", "impl lambda", whole=True)
        self.walk(function)

    def string(self, node: Node) -> str:
        """Return the value of a string literal, of several in a row, or of the first argument of a call."""
        if node.type == "call_expression":
            return "".join(map(self.string, part(node, "arguments").named_children[:1]))
        if node.type == "raw_string_literal":
            return self.text(node)[3:-2]
        is_string = node.type in ("string_literal", "concatenated_string")
        return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', self.text(node))) if is_string else ""

    def schema_of(self, name: str, function: Node) -> str:
        """Return the schema of a function, from its declarations, and find parameters that a schema widens."""
        target, found = self.text(function).lstrip("&").split("::")[-1].split("<")[0], ""
        for source, node in self.project.named("function", target):
            other = Registrations(source, self.project, self.target, {})
            if schema := other.schema(name.split("::")[-1], node):
                self.findings += other.findings
                found = found or schema
        self.schemas += [found] if found else []
        return found

    def schema(self, name: str, node: Node) -> str:
        """Write the schema of a declaration, or "" if one of its types has none."""
        _, function = innermost(part(node, "declarator"))
        words, returns, letter = [], self.schema_type(part(node, "type")), ord("a")
        for parameter in part(function, "parameters").named_children:
            text, declarator = self.text(parameter), part(parameter, "declarator")
            if parameter.type == "comment" or text == "void":
                continue
            kind, inner = self.schema_type(part(parameter, "type")), self.text(innermost(declarator)[0])
            if kind in ("", "()") or not inner or declarator.type == "pointer_declarator":
                return ""
            if kind in WIDE and not re.search(r"\b(u?int64_t|long|double)\b", text):
                self.tell(parameter, text, "library", "parameter", to=WIDE[kind])
            if kind == "Tensor" and declarator.type == "reference_declarator" and not text.startswith("const"):
                kind = f"Tensor({chr(letter)}!)"
                letter += 1
            words.append(f"{kind} {inner}")
        return f"{name}({', '.join(words)}) -> {returns}" if returns and part(function, "parameters").parent else ""

    def schema_type(self, node: Node) -> str:
        """Return the name of a C++ type in a schema, or ""."""
        word, known = self.words(node.child_by_field_name("type") or node)[-1], table().words["schema"]
        inner = [self.schema_type(x) for x in word.template]
        if word.text in CONTAINERS and inner and all(inner):
            return CONTAINERS[word.text].format(", ".join(inner) if word.text == "tuple" else inner[0])
        with self.project.alias(word.text) as alias:
            if alias is not None and word.text not in known:
                return Registrations(alias[0], self.project, self.target, {}).schema_type(part(alias[1], "type"))
        return known.get(word.text, "")
