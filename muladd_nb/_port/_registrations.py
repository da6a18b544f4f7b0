"""Registrations: ``m.def``, ``m.impl``, and the schema of a function that has only a binding."""

from __future__ import annotations

import re

from ._edits import Piece, span
from ._source import Node, Project, Source, innermost, part
from ._table import table
from ._walk import Walk

# The name of a C++ type in a schema.
SCHEMA = {
    "Tensor": "Tensor", "Variable": "Tensor", "TensorList": "Tensor[]", "variable_list": "Tensor[]", "void": "()",
    "int": "int", "int64_t": "int", "long": "int", "size_t": "int", "int32_t": "int", "uint64_t": "int",
    "unsigned": "int", "double": "float", "float": "float", "bool": "bool", "string": "str", "string_view": "str",
    "IntArrayRef": "int[]", "ScalarType": "ScalarType", "Device": "Device", "Scalar": "Scalar",
}  # fmt: skip
WIDE = {"int": "int64_t, as the schema's int is", "float": "double, as the schema's float is"}


class Registrations(Walk):
    """Reads the calls of a library's methods, and of a pybind11 module's."""

    def __init__(self, source: Source, project: Project, target: str, broken: dict[str, str]) -> None:
        super().__init__(source, project, target, broken)
        self.schemas: list[str] = []

    def read_library(self, node: Node, function: Node, name: str, inner: list[Node]) -> None:
        """Read m.def(...) and m.impl(...) of a library, also in a chain."""
        if this := part(function, "argument"):
            self.walk(this)
        literal = (self.string(inner[0]) if inner else None) or ""
        has_schema = "(" in literal
        if name == "impl" and len(inner) == 2:
            self.walk(inner[0])
            self.read_impl(inner[1])
            return
        if name == "def" and has_schema:
            self.schemas.append(literal)
        if name == "def" and len(inner) == 2 and has_schema and inner[1].type == "initializer_list":
            if self.is_newer("2.12"):
                self.tell(node, "m.def(schema, tags)", "library", "def tags")
        elif name == "def" and len(inner) == 2:
            schema = literal if has_schema else self.schema_of(literal, inner[1])
            to = table().rows["library", "def"][0].to.replace("$schema", str(schema))
            to = to.replace("$name", literal.split("(")[0])
            self.tell(node, "m.def(name, f)", "library", "def", to=to, whole=True)
        elif name == "set_python_module":
            if self.is_newer("2.13"):
                self.tell(node, "m.set_python_module()", "library", name)
        elif name == "impl":
            self.tell(node, "m.impl(name, key, f)", "library", "impl key", whole=True)
        elif name != "def":
            self.tell(node, f"m.{name}()", "library", "*", whole=True)
        for argument in inner:
            self.walk(argument)

    def read_binding(self, node: Node, function: Node, name: str, inner: list[Node]) -> None:
        """Read m.def(...) of a pybind11 module."""
        if this := part(function, "argument"):
            self.walk(this)
        literal = self.string(inner[0]) if inner else None
        if name == "def" and literal is not None and len(inner) > 1:
            schema = self.schema_of(literal, inner[1])
            to = f'm.def("{schema}")' if schema else ""
            self.tell(node, f'm.def("{literal}")', "library", "pybind def", to=to, whole=True)

    def read_impl(self, function: Node) -> None:
        """Box the function that implements an operator."""
        text = self.text(function)
        if text.startswith("TORCH_BOX"):
            return
        if text.startswith("TORCH_FN"):
            self.walk(function)
        elif function.type in ("pointer_expression", "identifier", "qualified_identifier", "template_function"):
            row = table().rows["library", "impl"][0]
            begin: Piece = b"TORCH_BOX(" if text.startswith("&") else b"TORCH_BOX(&"
            self.apply(row, function, "m.impl()", "library", [begin, span(function), b")"])
            inner = part(function, "argument") if function.type == "pointer_expression" else None
            self.walk(inner) if inner else self.read_broken(function, self.parts(function))
        else:
            self.tell(function, "m.impl()", "library", "impl lambda", whole=True)
            self.walk(function)

    def string(self, node: Node) -> str | None:
        """Return the value of a string literal, of several in a row, or of the first argument of a call."""
        if node.type == "call_expression":
            arguments = part(node, "arguments")
            return self.string(arguments.named_children[0]) if arguments and arguments.named_children else None
        if node.type == "raw_string_literal":
            return self.text(node)[3:-2]
        if node.type not in ("string_literal", "concatenated_string"):
            return None
        return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', self.text(node)))

    def schema_of(self, name: str, function: Node) -> str | None:
        """Return the schema of a function, from its declarations, and find parameters that a schema widens."""
        target = self.text(function).lstrip("&").split("::")[-1].split("<")[0]
        found = None
        for source, node in self.project.functions.get(target, ()):
            other = Registrations(source, self.project, self.target, {})
            if schema := other.schema(name.split("::")[-1], node):
                self.findings += other.findings
                found = found or schema
        if found:
            self.schemas.append(found)
        return found

    def schema(self, name: str, node: Node) -> str | None:
        """Write the schema of a declaration, or return None if one of its types has none."""
        _, function = innermost(part(node, "declarator"))
        parameters, returns = part(function, "parameters"), self.schema_type(part(node, "type"))
        if parameters is None or returns is None:
            return None
        words = []
        letter = ord("a")
        for parameter in parameters.named_children:
            if parameter.type == "comment" or self.text(parameter) == "void":
                continue
            kind, declarator = self.schema_type(part(parameter, "type")), part(parameter, "declarator")
            inner, _ = innermost(declarator)
            if kind in (None, "()") or inner is None or declarator is None or declarator.type == "pointer_declarator":
                return None
            is_const = self.text(parameter).startswith("const")
            if kind in WIDE and not re.search(r"\b(u?int64_t|long|double)\b", self.text(parameter)):
                self.tell(parameter, self.text(parameter), "library", "parameter", to=WIDE[kind])
            if kind == "Tensor" and declarator.type == "reference_declarator" and not is_const:
                kind = f"Tensor({chr(letter)}!)"
                letter += 1
            words.append(f"{kind} {self.text(inner)}")
        return f"{name}({', '.join(words)}) -> {returns}"

    def schema_type(self, node: Node | None) -> str | None:
        """Return the name of a C++ type in a schema."""
        if node is None:
            return None
        nodes = self.parts(part(node, "type") or node)
        name = self.text(self.component(nodes[-1]))
        inner = [self.schema_type(x) for x in self.template(nodes[-1])]
        if name in ("optional", "vector", "ArrayRef", "tuple", "List") and inner and None not in inner:
            return {"optional": f"{inner[0]}?", "tuple": f"({', '.join(map(str, inner))})"}.get(name, f"{inner[0]}[]")
        with self.project.alias(name) as alias:
            if alias is not None and name not in SCHEMA:
                return Registrations(alias[0], self.project, self.target, {}).schema_type(part(alias[1], "type"))
        return SCHEMA.get(name)
