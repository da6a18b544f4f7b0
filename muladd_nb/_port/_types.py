"""The type of an expression, as far as a port needs it, in one word.

Tensor, Tensor[], Tensor?, tuple (of tensors), sizes, options, dtype, device, stream, library, pybind; other; or "" if
it is unknown. ``words.csv`` has the words of torch's types, and of what the methods of a tensor return.
"""

from __future__ import annotations

import dataclasses

from ._names import ROOTS, Names
from ._source import EMPTY, Node, Source, part
from ._table import table

LITERALS = ("true", "false", "lambda_expression", "new_expression", "cast_expression", "sizeof_expression")


@dataclasses.dataclass(eq=False)
class Types(Names):
    """Finds the type of an expression."""

    def type_of(self, node: Node) -> str:
        """Return the type of an expression."""
        argument, function = part(node, "argument"), part(node, "function")
        of = self.type_of(argument) if argument is not EMPTY else ""
        match node.type:
            case "identifier":
                return self.local(node)
            case "parenthesized_expression":
                return self.type_of(node.named_children[0]) if node.named_children else ""
            case "assignment_expression" | "unary_expression":
                return of or self.type_of(part(node, "left"))
            case "conditional_expression":
                return self.type_of(part(node, "consequence")) or self.type_of(part(node, "alternative"))
            case "subscript_expression":
                return "Tensor" if of in ("Tensor", "Tensor[]") else "other" if of == "sizes" else ""
            case "pointer_expression":
                return "Tensor" if of == "Tensor?" else ""
            case "binary_expression":
                sides = (self.type_of(part(node, "left")), self.type_of(part(node, "right")))
                is_tensor = "Tensor" in sides and self.text(part(node, "operator")) not in ("<<", "&&", "||")
                return "Tensor" if is_tensor else "other"
            case "field_expression":
                return self.agreed(self.project.named("field", self.text(part(node, "field"))))
            case "call_expression" if function.type == "lambda_expression":  # what --write writes
                words = {"get_current_cuda_stream": "stream", "torch::stable::Tensor self_": "Tensor"}
                return next((words[word] for word in words if word in self.text(function)), "")
            case "call_expression" if function.type == "field_expression":
                return self.type_of_method(function)
            case "call_expression":
                return self.type_of_call(node)
            case kind:
                return "other" if kind.endswith("_literal") or kind in LITERALS else ""

    def type_of_method(self, function: Node) -> str:
        """Return what the call of a method returns."""
        name, of = self.word(part(function, "field")).text, self.type_of(part(function, "argument"))
        if of == "Tensor?" and function.children[1].type == "->":
            of = "Tensor"
        if of == "Tensor" or (not of and name in table().aten and name not in table().words["common"]):
            return table().words["method"].get(name, "Tensor")
        if of in ("Tensor?", "Tensor[]"):
            return "Tensor" if name in ("value", "value_or", "at", "front", "back", "get") else "other"
        if of == "device" and name == "type":
            return "device type"
        return of if of in ("", "options") else "other"

    def type_of_call(self, node: Node) -> str:
        """Return what the call of a function returns."""
        words = self.words(part(node, "function"))
        full, name = self.resolve(words, called=True) or ("",), words[-1].text
        inner = [self.type_of(x) for x in part(node, "arguments").named_children]
        returned = table().words["method"].get(name, "Tensor")
        if full[0] == "std":
            if name == "get":
                return "Tensor" if inner[:1] == ["tuple"] else ""
            if name in ("move", "forward") and inner:
                return inner[0]
            return "tuple" if name in ("make_tuple", "tie", "make_pair") and "Tensor" in inner else "other"
        if full[0] in ROOTS:
            if name in table().words["function"]:
                return table().words["function"][name]
            is_tensor = full[:2] == ("torch", "stable") or name in table().aten or ("factory", name) in table().rows
            return "" if not is_tensor else "Tensor" if returned != "other" else "other"
        if self.variable(name):
            return ""
        if declarations := self.project.named("function", name):
            return self.agreed(declarations)
        return "Tensor" if "Tensor" in inner and name in table().aten and name not in table().words["common"] else ""

    def type_of_type(self, node: Node) -> str:
        """Return the word for a type."""
        if node.type in ("placeholder_type_specifier", "auto", "decltype"):
            return ""
        if node.type == "type_descriptor":
            return self.type_of_type(part(node, "type"))
        words = self.words(node)
        if len(words) == 1 and self.variable(words[0].text):  # a parameter of a template
            return ""
        full = self.resolve(words)
        name = full[-1] if full else words[-1].text
        if name in ("Tensor", "Variable", "TensorBase") and full:
            return "Tensor"
        if name in table().words["type"]:
            return table().words["type"][name]
        inner = [self.type_of_type(x) for x in words[-1].template]
        with self.project.alias(name) as alias:
            if alias is not None:
                return self.agreed([alias])
        if "Tensor" in inner:
            return table().words["template"].get(name, "tuple")
        if "Tensor[]" in inner and name == "optional":
            return "Tensor[]"
        return "" if {"Tensor?", "Tensor[]", "tuple"} & set(inner) else "other"

    def agreed(self, declarations: list[tuple[Source, Node]]) -> str:
        """Return the type that all declarations of a name have, or "" if they differ."""
        found = {self.in_file(source).type_of_type(part(node, "type")) for source, node in declarations}
        return found.pop() if len(found) == 1 else ""

    def in_file(self, source: Source) -> Types:
        """Return what resolves the names of another file of the project."""
        return self if source is self.source else Types(source, self.project, self.target, {})
