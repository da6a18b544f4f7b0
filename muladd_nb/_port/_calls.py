"""Calls: of a method, of a macro, of a function of torch's; and operators of tensors."""

from __future__ import annotations

import dataclasses
import re

from ._factories import Factories
from ._findings import span
from ._names import ROOTS, Word
from ._registrations import Registrations
from ._source import EMPTY, Node, innermost, part
from ._table import table

MACRO = re.compile(r"(TORCH|AT|C10|CAFFE2?|THC?|THO|PYBIND11|STD_TORCH|STD_CUDA)_[A-Z0-9_]+$")
CHECK = re.compile(r"^\w*(CHECK|ASSERT)\w*$")
OPERATORS = frozenset("+ - * / % == != < > <= >= & | ^ << >> += -= *= /= &= |= ^=".split())  # noqa: SIM905
WRAPPERS = ("initializer_list", "cast_expression", "parenthesized_expression", "compound_literal_expression")


@dataclasses.dataclass(eq=False)
class Calls(Factories, Registrations):
    """Deals with calls and operators."""

    def on_call_expression(self, node: Node) -> None:
        """Deal with a call."""
        function, arguments, before = part(node, "function"), part(node, "arguments"), len(self.findings)
        if function.type == "field_expression":
            self.read_member(node, function, arguments)
        elif function.type == "identifier" and self.is_macro(self.text(function)):
            self.read_macro(function, arguments)
            self.read_message(node, function, arguments.named_children[1:], "Tensor")
            self.walk(arguments)
        else:
            if self.text(function) in self.project.macros:
                self.read_message(node, function, arguments.named_children)
            self.read_function(node, function, arguments)
        if CHECK.search(self.text(function)) and (bad := self.unsolved(before)):  # an error may be where the call ends
            bad[-1].end_line = self.source.line(node.end_byte - 1)

    def read_message(self, node: Node, function: Node, words: list[Node], *more: str) -> None:
        """Find what the message of a check cannot print."""
        for word in words if CHECK.search(self.text(function)) else ():
            if self.type_of(word) in ("sizes", "device", "device type", "options", *more):
                self.tell(node, self.text(word), "operator", "message", whole=True)

    # Macros

    def is_macro(self, name: str) -> bool:
        """Tell whether a name is one of torch's macros."""
        return bool(MACRO.match(name) or ("macro", name) in table().rows) and name not in self.project.macros

    def read_macro(self, name: Node, arguments: Node = EMPTY, at: Node | None = None) -> None:
        """Replace a macro, with its arguments if it has any."""
        text, inner, is_call = self.text(name), _without_comments(arguments), arguments is not EMPTY
        call = name.parent if is_call and name.parent else name
        row = table().find("macro", text, len(inner) if is_call else None, 0, self.target)
        if row is None and not is_call:
            row = next(iter(table().rows.get(("macro", text), ())), None)
        if text in table().names or text == "TORCH_EXTENSION_NAME":
            self.need(text)
        elif row is None:
            self.tell(call, text, "macro", "*", whole=True)
            if not self.in_function(call):  # it may declare these
                self.newly_broken |= {self.text(x): self.findings[-1].where for x in inner if x.type == "identifier"}
        elif "$" in row.to and not is_call:
            self.tell(name, text, "name", "misread")
        elif is_call and ("$" in row.to or row.to.endswith("()")):
            self.apply(row, call, text, "macro", self.fill(row.to, inner))
        else:
            self.apply(row, name, text, "macro", at=at or (call if row.how != "mechanical" else name))

    def read_broken(self, node: Node, words: list[Word]) -> None:
        """Find a macro without arguments, or one that was not parsed as a call."""
        if len(words) == 1 and self.is_macro(self.text(node)):
            self.read_macro(node)
        else:
            super().read_broken(node, words)

    def on_ERROR(self, node: Node) -> None:
        """Find the prefixes of torch's names where the grammar gave up."""
        for child, after in zip(node.children, node.children[1:], strict=False):
            if after.type == "::" and self.text(child) in ROOTS:
                self.tell(child, self.text(child) + "::", "name", "misread")
        self.children(node)

    # Functions

    def read_function(self, node: Node, function: Node, arguments: Node) -> None:
        """Replace a function of torch's, with its arguments if the table's code has a place for them."""
        words, inner = self.words(function), _without_comments(arguments)
        full = self.resolve(words, called=True)
        by_types = full is None and len(words) == 1 and self.is_of_tensors(words[0].text, inner)
        full = ("at", words[0].text) if by_types else full or ("",)
        key, is_torchs = "::".join(full[1:]), full[0] in ROOTS and len(full) > 1
        row = table().find("name", key, len(inner), 0, self.target)
        if not is_torchs:
            self.walk(function)
        elif ("factory", key) in table().rows:
            self.read_factory(node, function, key, inner)
        elif row is not None and ("$" in row.to or row.args):
            self.apply(row, node, "::".join(full), "name", self.fill(row.to, inner))
        elif by_types and (alike := row or table().same(key)) is not None:
            self.apply(alike, function, key, "name")
        elif row is None and (by_types or key in table().aten):
            self.tell(function, "::".join(full), "name", self.without(full))
        else:
            self.read_name(function, called=arguments)
            if ("guard", key) in table().rows:
                self.read_guard(arguments)
        for argument in (x for word in words for x in word.template):
            if is_torchs:
                self.walk(argument)
            self.done.add(argument.id)
        self.walk(arguments)

    def is_of_tensors(self, name: str, inner: list[Node]) -> bool:
        """Tell whether a name without a prefix is torch's, by the types of its arguments."""
        if self.is_declared(name) or self.variable(name) or name in self.project.macros:
            return False
        types = {self.type_of(x) for x in inner}
        if types & {"device", "device type", "dtype", "options"}:
            return not any((kind, name) in table().rows for kind in ("std", "c"))
        return (name in table().aten or ("name", name) in table().rows) and bool(types & {"Tensor", "Tensor[]"})

    def read_guard(self, arguments: Node) -> None:
        """Give a guard the index of a device: x.device() becomes x.get_device_index()."""
        for argument in arguments.named_children:
            call = argument
            while call.type in WRAPPERS and call.named_children:
                call = call.named_children[-1]
            field, variable = part(part(call, "function"), "field"), self.variable(self.text(call))
            match = re.fullmatch(rb"(?:\w+::)*device_of\(([\s\S]+)\)", self.source.data[slice(*span(call))])
            if self.text(field) in ("device", "get_device"):
                self.replace(argument, (call.start_byte, field.start_byte), b"get_device_index()")
                self.done.add(field.id)
            elif match:  # parsed as a call, or as the type and the parameter of a function
                kept = (call.start_byte + match.start(1), call.start_byte + match.end(1))
                self.replace(argument, kept, b".get_device_index()")
                self.done |= {part(call, "function").id, part(call, "type").id}
            elif variable and variable.type == "device":
                self.replace(argument, span(call), b".index()")

    # Methods

    def read_member(self, node: Node, function: Node, arguments: Node) -> None:
        """Deal with the call of a method of a tensor, a library or a stream."""
        this, field = part(function, "argument"), part(function, "field")
        word, of, inner = self.word(field), self.type_of(this), _without_comments(arguments)
        name, root = word.text, self.local(self.root_of(this))
        key = name if (of, name) in table().rows else "*"
        if word.template:
            self.follow(field, f"x.{name}<>()", self.guess(this), "method")
        if root in ("library", "pybind"):
            self.walk(this)
            self.read_library(node, name, inner) if root == "library" else self.read_binding(node, name, inner)
            return
        tensor, inner_field = (part(part(this, "function"), x) for x in ("argument", "field"))
        is_type = self.text(inner_field) == "type" and self.type_of(tensor) in ("", "Tensor")
        if is_type and ("type", name) in table().rows:  # x.type().is_cuda()
            self.tell(field, f"type().{name}()", "type", name)
            self.replace(this, span(tensor))
            self.done.add(this.id)
            self.walk(tensor)
        elif self.is_of_tensor(of, name, function):
            self.read_method(node, this, field, inner)
        elif of == "" and name == "data_ptr" and word.template:  # the extension has a method of this name
            self.tell(field, f"x.{name}()", "method", "mine")
        elif (of, key) in table().rows and not (of == "options" and self.read_options(node) is not None):
            self.tell(field, f"{of}.{name}()", of, key)
            if (of, key) == ("stream", "stream"):
                self.replace(node, span(this))
        elif field.type == "field_identifier":
            self.on_field_identifier(field)
        self.walk(this, *word.template, arguments)

    def is_of_tensor(self, of: str, name: str, function: Node) -> bool:
        """Tell whether a method is a tensor's: by the type of the object, or else by its name."""
        if of:
            return of == "Tensor" or (of == "Tensor?" and function.children[1].type != ".")
        words, is_template = table().words, bool(self.word(part(function, "field")).template)
        known = name in table().aten or ("method", name) in table().rows or name in words["method"]
        mine = (self.is_method(node, template=is_template) for _, node in self.project.named("function", name))
        return known and name not in words["common"] and not any(mine)

    def is_method(self, node: Node, *, template: bool) -> bool:
        """Tell whether a declaration is in a class, or out of it with the class's name; and is a template if asked."""
        around, name = node.parent, innermost(part(node, "declarator"))[0]
        is_template = around is not None and around.type == "template_declaration"
        around = around.parent if around and is_template else around
        inside = around is not None and around.type == "field_declaration_list"
        outside = name.parent is not None and name.parent.type == "qualified_identifier"
        return (inside or outside) and (is_template or not template)

    def root_of(self, node: Node) -> Node:
        """Return the variable at the beginning of a chain of calls."""
        while node.type in ("call_expression", "field_expression", "pointer_expression"):
            node = part(node, "function" if node.type == "call_expression" else "argument")
        return node

    def read_method(self, node: Node, this: Node, field: Node, inner: list[Node]) -> None:
        """Deal with a method of a tensor."""
        _, name, template, _ = self.word(field)
        what, variable = f"x.{name}()", self.variable(self.text(this))
        takes_options = name == "to" and bool(inner) and self.type_of(inner[0]) == "options"
        plain = this.type == "identifier" and not (variable and variable.constant)
        kind = "method" if plain or ("const method", name) not in table().rows else "const method"
        row = table().find(kind, name, None if takes_options else len(inner), len(template), self.target)
        if row is None and f"torch::stable::Tensor::{name}" not in table().names:
            self.tell(field, what, "method", self.without(("at", name)))
        elif row and row.how == "mechanical":
            to = row.to
            if name in ("data_ptr", "data") and template:
                to = self.const_pointer(node, template[0]) or to
            if field.prev_sibling is not None and field.prev_sibling.type == "->":
                to = to.replace("$self.", "$self->") if "$self." in to else to.replace("$self", "*$self")
            self.apply(row, node, what, "method", self.fill(to, inner, template, this), at=field)
        elif row:
            self.apply(row, node, what, "method", at=field)

    def const_pointer(self, node: Node, template: Node) -> str:
        """Read through a const pointer, if that is what the result initialises."""
        parent, text = node.parent or EMPTY, self.text(template)
        if text.startswith("const "):
            return f"$self.const_data_ptr<{text.removeprefix('const ').strip()}>()"
        start = parent.parent.start_byte if parent.parent else parent.start_byte
        is_pointer = parent.type == "init_declarator" and part(parent, "declarator").type == "pointer_declarator"
        is_const = is_pointer and re.search(rb"\bconst\b", self.source.data[start : parent.start_byte])
        return "$self.const_data_ptr<$T>()" if is_const else ""

    # Operators, such as x + y, which the stable ABI does not have

    def on_binary_expression(self, node: Node) -> None:
        """Find x + y, and what a stream cannot print."""
        operator, right = part(node, "operator"), part(node, "right")
        symbol, sides = self.text(operator), [self.type_of(part(node, "left")), self.type_of(right)]
        if symbol in OPERATORS and ("Tensor" in sides or ("Tensor[]" in sides and symbol != "<<")):
            self.tell(operator, f"x {symbol} y", "operator", "+")
        elif symbol == "<<" and {"device", "device type", "sizes"} & set(sides):
            self.tell(operator, f"<< {self.text(right)}", "operator", "<<")
        self.children(node)

    def on_unary_expression(self, node: Node) -> None:
        """Find -x."""
        if self.type_of(node) == "Tensor":
            self.tell(node, self.text(node.children[0]) + "x", "operator", "+")
        self.children(node)

    def on_assignment_expression(self, node: Node) -> None:
        """Find x += y and x[i] = y, and options that change after their declaration."""
        operator, left = part(node, "operator"), part(node, "left")
        if self.type_of(left) == "Tensor" and self.text(operator) != "=":
            self.tell(operator, f"x {self.text(operator)} y", "operator", "+")
        if self.text(left) in self.options:
            self.keep_options(self.text(left))
        if left.type == "subscript_expression" and self.type_of(part(left, "argument")) == "Tensor":
            self.tell(left, "x[i] = y", "operator", "[]=", whole=True)
            self.tell(operator, "x[i] = y", "operator", "[]=")
            self.done.add(left.id)
        self.children(node)

    def on_subscript_expression(self, node: Node) -> None:
        """Write x[i] of a tensor as a select."""
        this, indices = part(node, "argument"), part(node, "indices").named_children
        row = table().rows["operator", "[]"][0]
        if self.type_of(this) == "Tensor" and len(indices) == 1:
            self.apply(row, node, "x[i]", "operator", self.fill(row.to, indices, this=this))
        self.children(node)


def _without_comments(arguments: Node) -> list[Node]:
    return [x for x in arguments.named_children if x.type != "comment"]
