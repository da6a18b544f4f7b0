"""Calls that make tensors, and calls that register operators.

::

    auto options = x.options().dtype(kLong);    // removed, if every use is rewritten
    auto y = torch::zeros({n}, options);

    auto y = torch::stable::new_zeros(x, {n}, torch::headeronly::ScalarType::Long);
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import field

from ._findings import Piece
from ._names import UNKNOWN
from ._source import EMPTY, ROOTS, Node, innermost, part
from ._table import ROWS
from ._types import Types

Options = dict[str, list[Node]]  # keys: options (a tensor that has them), dtype, device (the arguments of each)
DEFAULTS = {"requires_grad": "false", "layout": "kStrided"}
WIDE = {"int": "int64_t, as the schema's int is", "float": "double, as the schema's float is"}
BOXED = ("pointer_expression", "identifier", "qualified_identifier", "template_function")
STRING = re.compile(r'R"\((.*?)\)"|"((?:[^"\\]|\\.)*)"', re.DOTALL)
SCHEMA = re.compile(r"(\b(Tensor|int|float|bool|str|Scalar|ScalarType|Device)\b|[][(), ?])+")


@dataclasses.dataclass(eq=False)
class Operators(Types):
    """Rewrites empty, zeros, ones and full, and reads method calls on a library and on a pybind11 module."""

    schemas: list[str] = field(default_factory=list)

    def read_factory(self, node: Node, function: Node, name: str, inner: list[Node]) -> None:
        """Rewrite a call, or report it if its options have more than those of a tensor, a dtype and a device."""
        count = 2 if name == "full" else 1
        rest = inner[count:]
        options = self.read_options(rest[0]) if len(rest) == 1 else None if rest else {}
        if options is None or len(inner) < count:
            self.tell(function, f"torch::{name}", ("factory", name))
            return
        like, device = options.get("options", [EMPTY])[0], options.get("device", [])
        dtype: list[Piece] = [x.byte_range for x in options.get("dtype", [])]
        to: list[Piece] = [(device[0].start_byte, device[-1].end_byte)] if device else []
        if len(device) == 2 or (device and device[0].type == "qualified_identifier"):
            to = [b"torch::stable::Device(", *to, b")"]
        row = ROWS.get(("make like" if "options" in options else "make", name)) or ROWS["make", name]
        if "options" in options and "$self" not in row[0].to:
            dtype, to = dtype or [like.byte_range, b".scalar_type()"], to or [like.byte_range, b".device()"]
        pieces: list[Piece] = [b", ", *(dtype or [b"std::nullopt"])] if dtype or to else []
        pieces += [b", std::nullopt, ", *to] if to else []
        self.apply(row[0], node, f"torch::{name}", inner=inner, this=like, options=pieces)
        self.need("torch::stable::Device std::nullopt", node)
        for word in (word for words in options.values() for word in words):
            self.walk(word)
            self.done.add(word.id)
        self.done |= {argument.id for argument in rest}

    def read_options(self, node: Node) -> Options | None:
        """Return the parts of a TensorOptions, or None if it has other parts or its value is unknown."""
        function, inner = part(node, "function"), part(node, "arguments").named_children
        this, name = part(function, "argument"), self.text(part(function, "field"))
        if node.type in ("argument_list", "initializer_list"):
            return self.read_options(node.named_children[0]) if len(node.named_children) == 1 else None
        if value := self.variable(self.text(node)).options:
            return self.read_options(value)
        if self.type_of(node) == "dtype":
            return {"dtype": [node]}
        if name == "options" and not inner and self.type_of(this) in ("Tensor", ""):
            return {"options": [this]}
        options: Options | None = {}
        if this is not EMPTY:
            options = self.read_options(this)
        else:
            is_call = function is not EMPTY
            full = self.resolve(self.words(function if is_call else node), called=is_call)
            name = full[-1] if full and full[0] in ROOTS else ""
            if name and not is_call and (re.match(r"k[A-Z]", name) or "ScalarType" in full):
                return {"device" if name in ("kCPU", "kCUDA") else "dtype": [node]}
            if name == "TensorOptions" and len(inner) < 2:
                return self.read_options(inner[0]) if inner else {}
        if name == "device" and len(inner) == 1 and inner[0].type == "initializer_list":
            inner = inner[0].named_children
        if options is None or not inner or len(inner) > 1 + (name == "device"):
            return None
        if name in ("dtype", "device"):
            return options | {name: inner}
        is_default = this is not EMPTY and self.text(inner[0]).endswith(DEFAULTS.get(name, "?"))
        return options if is_default else None

    # Registrations

    def read_library(self, node: Node, kind: str, name: str, inner: list[Node]) -> None:
        """Read m.def(...) and m.impl(...) of a library, or m.def(...) of a pybind11 module."""
        texts = STRING.findall(self.text(inner[0])) if inner else []
        literal = "".join(raw or re.sub(r"\\\n\s*", "", text) for raw, text in texts)
        has_schema, count = "(" in literal, len(inner)
        if kind == "pybind":
            if name == "def" and literal and count > 1:
                schema = self.schema_of(literal, inner[1])
                self.tell(node, f'm.def("{literal}")', ("library", "pybind def"), to=schema and f'm.def("{schema}")')
            return
        if name == "impl" and count == 2:
            self.read_impl(inner.pop())
        elif name == "impl":
            self.tell(node, "m.impl(name, key, f)", ("library", "impl key"))
        elif name == "def" and count == 2 and has_schema and inner[1].type == "initializer_list":
            if self.target < "2.12":
                self.tell(node, "m.def(schema, tags)", ("library", "def tags"))
        elif name == "def" and count == 2:
            schema = literal if has_schema else self.schema_of(literal, inner[1]) or f"{literal}(...) -> ..."
            to = ROWS["library", "def"][0].to.replace("$schema", schema).replace("$name", literal.split("(")[0])
            self.tell(node, "m.def(name, f)", ("library", "def"), to=to)
        elif name != "def" and (name != "set_python_module" or self.target < "2.13"):
            self.tell(node, f"m.{name}()", ("library", name if ("library", name) in ROWS else "*"))
        self.schemas += [literal] * (name == "def" and has_schema)
        self.walk(*inner)

    def read_impl(self, function: Node) -> None:
        """Box the function that implements an operator."""
        self.read_boxed(function)
        inner, row = part(function, "argument"), ROWS["library", "impl"][0]
        inner = function if inner is EMPTY else inner
        if self.variable(self.text(function)) is UNKNOWN and function.type in BOXED:
            to = row.to.replace("&$1", "(&$1)") if "," in self.text(inner) else row.to  # TORCH_BOX is a macro
            self.apply(dataclasses.replace(row, to=to), function, "m.impl()", inner=[inner])
        elif not self.text(function).startswith(("TORCH_FN", "TORCH_BOX")):  # it may be the parameter of a macro
            self.tell(function, "m.impl()", ("library", "impl lambda"))
        self.walk(inner)

    def read_boxed(self, function: Node) -> None:
        """Report a function that cannot be boxed."""
        text = self.text(function)
        for source, node in self.project.named["function", re.sub(r".*\(|[&\s)]", "", text).split("::")[-1]]:
            parameters = part(innermost(part(node, "declarator"))[1], "parameters").named_children
            types = [self.in_file(source, x).type_of_type(part(x, "type")) for x in parameters]
            if "sizes" in types or part(node, "declarator").type == "reference_declarator":
                self.tell(function, text, ("library", "boxed"))
                break

    def schema_of(self, name: str, function: Node) -> str:
        """Return the schema of a function from its declarations, and report parameters that a schema makes wider."""
        target, found = self.text(function).lstrip("&").split("::")[-1].split("<")[0], list[str]()
        for source, node in self.project.named["function", target]:
            other = Operators(source, self.project, self.target)
            if schema := other.schema(name.split("::")[-1], node):
                self.findings += other.findings
                found.append(schema)
        self.schemas += found[:1]
        return "".join(found[:1])

    def schema(self, name: str, node: Node) -> str:
        """Write the schema of a declaration, or "" if one of its types has none."""
        parameters, returns = part(innermost(part(node, "declarator"))[1], "parameters"), self.in_schema(node)
        words, letter = [], ord("a")
        for parameter in (x for x in parameters.named_children if x.type != "comment" and self.text(x) != "void"):
            text, declarator = self.text(parameter), part(parameter, "declarator")
            kind, inner = self.in_schema(parameter), self.text(innermost(declarator)[0])
            if kind in ("", "()") or not inner or declarator.type == "pointer_declarator":
                return ""
            if kind in WIDE and not re.search(r"\b(u?int64_t|long|double)\b", text):
                self.tell(parameter, text, ("library", "parameter"), to=WIDE[kind])
            if kind == "Tensor" and declarator.type == "reference_declarator" and not text.startswith("const"):
                kind, letter = f"Tensor({chr(letter)}!)", letter + 1
            words.append(f"{kind} {inner}")
        return f"{name}({', '.join(words)}) -> {returns}" if returns and parameters.parent else ""

    def in_schema(self, node: Node) -> str:
        """Return the type that a schema has for a declaration, or ""."""
        word = self.type_of_type(part(node, "type")).replace("sizes", "int[]").replace("device", "Device")
        return word if SCHEMA.fullmatch(word) else ""
