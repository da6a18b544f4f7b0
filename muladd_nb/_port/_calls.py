"""Calls: of a method, of a macro, of a function of torch's."""

from __future__ import annotations

import re

from ._edits import span
from ._names import ROOTS
from ._operators import Operators
from ._registrations import Registrations
from ._source import Node, innermost, part
from ._table import table
from ._types import COMMON, RETURNS

MACRO = re.compile(r"(TORCH|AT|C10|CAFFE2?|THC?|THO|PYBIND11|STD_TORCH|STD_CUDA)_[A-Z0-9_]+$")
WRAPPERS = ("initializer_list", "cast_expression", "parenthesized_expression", "compound_literal_expression")
STABLE_METHODS = frozenset(
    name.removeprefix("torch::stable::Tensor::") for name in table().names if name.startswith("torch::stable::Tensor::")
)


class Calls(Operators, Registrations):
    """Deals with calls."""

    def on_call_expression(self, node: Node) -> None:
        """Deal with a call."""
        function, arguments = part(node, "function"), part(node, "arguments")
        if function is None or arguments is None:
            self.children(node)
        elif function.type == "field_expression":
            self.read_member(node, function, arguments)
        elif function.type == "identifier" and self.is_macro(self.text(function)):
            self.read_macro(function, arguments)
            self.read_message(node, function, arguments.named_children[1:], "Tensor")
            self.walk(arguments)
        else:
            if self.text(function) in self.project.macros:
                self.read_message(node, function, arguments.named_children)
            self.read_function(node, function, arguments)

    def read_message(self, node: Node, function: Node, words: list[Node], *more: str) -> None:
        """Find what the message of a check cannot print."""
        if "CHECK" in self.text(function) or "ASSERT" in self.text(function):
            for word in words:
                if self.type_of(word) in ("sizes", "device", "options", *more):
                    self.tell(node, self.text(word), "operator", "message", whole=True)

    # Macros

    def is_macro(self, name: str) -> bool:
        """Tell whether a name is one of torch's macros."""
        known = MACRO.match(name) or ("macro", name) in table().rows
        return bool(known) and name not in self.project.macros

    def read_macro(self, name: Node, arguments: Node | None) -> None:
        """Replace a macro, with its arguments if it has any."""
        text = self.text(name)
        if text in table().names or text == "TORCH_EXTENSION_NAME":
            self.need(text)
            return
        call = name.parent if arguments is not None and name.parent is not None else name
        inner = _without_comments(arguments) if arguments else []
        row = table().find("macro", text, len(inner) if arguments else None, 0, self.target)
        if row is None and not arguments:
            row = next(iter(table().rows.get(("macro", text), ())), None)
        if row is None:
            self.tell(call, text, "macro", "*", whole=True)
            if not self.in_function(call):  # it may declare these
                self.newly_broken |= {self.text(x): self.findings[-1].where for x in inner if x.type == "identifier"}
        elif "$" in row.to and not arguments:
            self.tell(name, text, "name", "misread")
        elif arguments and ("$" in row.to or row.to.endswith("()")):
            self.apply(row, call, text, "macro", self.fill(row.to, inner, [], None))
        else:
            whole = name.parent if text.startswith("PYBIND11_MODULE") else None
            if whole is not None and whole.parent is not None and whole.parent.type == "function_definition":
                whole = whole.parent
            self.apply(row, name, text, "macro", at=whole or (call if row.how != "mechanical" else name))

    def read_broken(self, node: Node, nodes: list[Node]) -> None:
        """Find a macro without arguments, or one that was not parsed as a call."""
        if len(nodes) == 1 and self.is_macro(self.text(node)):
            self.read_macro(node, None)
        else:
            super().read_broken(node, nodes)

    def on_ERROR(self, node: Node) -> None:
        """Find the prefixes of torch's names where the grammar gave up."""
        for child, after in zip(node.children, node.children[1:], strict=False):
            if after.type == "::" and self.text(child) in ROOTS:
                self.tell(child, self.text(child) + "::", "name", "misread")
        self.children(node)

    # Functions

    def read_function(self, node: Node, function: Node, arguments: Node) -> None:
        """Deal with a call of a function that may be torch's."""
        nodes, inner = self.parts(function), _without_comments(arguments)
        full = self.resolve(nodes, called=True)
        by_types = full is None and len(nodes) == 1 and self.is_of_tensors(nodes[0], inner)
        if by_types:
            full = ("at", self.text(self.component(nodes[0])))
        if full and full[0] in ROOTS and len(full) > 1:
            key = "::".join(full[1:])
            if ("factory", key) in table().rows:
                self.read_factory(node, function, key, inner)
                self.walk(arguments)
                return
            self.replace_function(node, function, arguments, full, by_types=by_types)
        elif function.id not in self.done:
            named = ("qualified_identifier", "identifier", "template_function", "template_type")
            self.on_qualified_identifier(function) if function.type in named else self.walk(function)
        if function.type in ("qualified_identifier", "template_function"):
            for argument in (x for component in nodes for x in self.template(component)):
                if full and full[0] in ROOTS:
                    self.walk(argument)
                self.done.add(argument.id)
        self.walk(arguments)

    def replace_function(
        self, node: Node, function: Node, arguments: Node, full: tuple[str, ...], *, by_types: bool
    ) -> None:
        """Replace a function of torch's, with its arguments if the table's code has a place for them."""
        key, name, inner = "::".join(full[1:]), "::".join(full), _without_comments(arguments)
        row = table().find("name", key, len(inner), 0, self.target)
        if row is not None and ("$" in row.to or row.args):
            self.apply(row, node, name, "name", self.fill(row.to, inner, [], None))
        elif row is None and key in table().aten:
            self.add(function, name, "name", "none", *self.without(("at", key)))
        elif by_types and (alike := row or table().same(key)) is not None:
            self.apply(alike, function, key, "name")
        elif by_types:
            self.add(function, name, "name", "none", *self.without(full))
        else:
            self.read_name(function, called=arguments)
            if key in ("cuda::CUDAGuard", "cuda::OptionalCUDAGuard", "DeviceGuard"):
                self.read_guard(arguments)

    def is_of_tensors(self, name: Node, inner: list[Node]) -> bool:
        """Tell whether a name without a prefix is torch's, by the types of its arguments."""
        text = self.text(self.component(name))
        if self.is_declared(text) or self.local(text) is not None or text in self.project.macros:
            return False
        types = {self.type_of(x) for x in inner}
        if types & {"device", "device type", "dtype", "options"}:
            return not any((kind, text) in table().rows for kind in ("std", "c"))
        return (text in table().aten or ("name", text) in table().rows) and bool(types & {"Tensor", "Tensor[]"})

    def read_guard(self, value: Node) -> None:
        """Give a guard the index of a device: x.device() becomes x.get_device_index()."""
        for argument in value.named_children:
            call = argument
            while call.type in WRAPPERS and call.named_children:
                call = call.named_children[-1]
            if call.type == "identifier" and self.type_of(call) == "device":
                self.replace(argument, span(call), b".index()")
            function, arguments = part(call, "function"), part(call, "arguments")
            if call.type != "call_expression" or function is None or arguments is None:
                continue
            if function.type == "field_expression" and (field := part(function, "field")):
                if self.text(field) in ("device", "get_device"):
                    self.replace(argument, (call.start_byte, field.start_byte), b"get_device_index()")
                    self.done.add(field.id)
            elif self.text(function).endswith("device_of") and len(arguments.named_children) == 1:
                self.replace(argument, span(arguments.named_children[0]), b".get_device_index()")
                self.done.add(function.id)

    # Methods

    def read_member(self, node: Node, function: Node, arguments: Node) -> None:
        """Deal with the call of a method of a tensor, a library or a stream."""
        this, field = part(function, "argument"), part(function, "field")
        if this is None or field is None:
            self.children(node)
            return
        name, of, inner = self.text(self.component(field)), self.type_of(this), _without_comments(arguments)
        key = name if (of, name) in table().rows else "*"
        if self.template(field) and (origin := self.guess(this)) is not None:
            self.add(field, f"x.{name}<>()", "method", "follows", f"follows from {origin}", "")
        root = self.root_of(this)
        match self.local(self.text(root)) if root is not None else "":
            case "library":
                self.read_library(node, function, name, inner)
                return
            case "pybind":
                self.read_binding(node, function, name, inner)
                return
        if name in ("is_cuda", "is_cpu") and (tensor := self.tensor_of_type(this)) is not None:
            self.tell(field, f"type().{name}()", "type", name)
            self.replace(this, span(tensor))
            self.done.add(this.id)
            self.walk(tensor)
        elif self.is_of_tensor(of, name, function):
            self.read_method(node, this, field, name, inner)
        elif of == "" and name == "data_ptr" and self.template(field):  # the extension has a method of this name
            self.tell(field, f"x.{name}()", "method", "mine")
        elif (of, key) in table().rows and not (of == "options" and self.read_options(node) is not None):
            self.tell(field, f"{of}.{name}()", of, key)
            if (of, key) == ("stream", "stream"):
                self.replace(node, span(this))
        elif field.type == "field_identifier":
            self.on_field_identifier(field)
        for rest in (this, *self.template(field), arguments):
            self.walk(rest)

    def is_of_tensor(self, of: str, name: str, function: Node) -> bool:
        """Tell whether a method is a tensor's: by the type of the object, or else by its name."""
        if of == "":
            known = name in table().aten or ("method", name) in table().rows or name in RETURNS
            is_template = bool(self.template(function.child_by_field_name("field") or function))
            mine = (self.is_method(node, template=is_template) for _, node in self.project.functions.get(name, ()))
            return known and name not in COMMON and not any(mine)
        return of == "Tensor" or (of == "Tensor?" and function.children[1].type != ".")

    def is_method(self, node: Node, *, template: bool) -> bool:
        """Tell whether a declaration is in a class, or out of it with the class's name; and is a template if asked."""
        around = node.parent
        is_template = around is not None and around.type == "template_declaration"
        if is_template and around is not None:
            around = around.parent
        name, _ = innermost(part(node, "declarator"))
        outside = name is not None and name.parent is not None and name.parent.type == "qualified_identifier"
        return (outside or (around is not None and around.type == "field_declaration_list")) and (
            is_template or not template
        )

    def root_of(self, node: Node | None) -> Node | None:
        """Return the variable at the beginning of a chain of calls."""
        while node is not None and node.type in ("call_expression", "field_expression", "pointer_expression"):
            node = part(node, "function" if node.type == "call_expression" else "argument")
        return node if node is not None and node.type == "identifier" else None

    def tensor_of_type(self, node: Node) -> Node | None:
        """Return the tensor x if an expression is x.type()."""
        function = part(node, "function") if node.type == "call_expression" else None
        this, field = part(function, "argument"), part(function, "field")
        if field is None or self.text(field) != "type" or self.type_of(this) not in ("", "Tensor"):
            return None
        return this

    def read_method(self, node: Node, this: Node, field: Node, name: str, inner: list[Node]) -> None:
        """Deal with a method of a tensor."""
        template, what = self.template(field), f"x.{name}()"
        takes_options = name == "to" and bool(inner) and self.type_of(inner[0]) == "options"
        plain = this.type == "identifier" and self.text(this) not in self.constant
        kind = "method" if plain or ("const method", name) not in table().rows else "const method"
        row = table().find(kind, name, None if takes_options else len(inner), len(template), self.target)
        if name in ("data_ptr", "mutable_data_ptr", "const_data_ptr", "is_contiguous") and not template and not inner:
            return
        if row is None and name in STABLE_METHODS:
            return
        if row is None:
            self.add(field, what, "method", "none", *self.without(("at", name)))
        elif row.how == "mechanical":
            to = row.to
            if name in ("data_ptr", "data") and template:
                to = self.const_pointer(node, template[0]) or to
            if field.prev_sibling is not None and field.prev_sibling.type == "->":
                to = to.replace("$self.", "$self->") if "$self." in to else to.replace("$self", "*$self")
            self.apply(row, node, what, "method", self.fill(to, inner, template, this), at=field)
        elif name != "options" or not self.is_rewritten(node):
            self.apply(row, node, what, "method", at=field)

    def const_pointer(self, node: Node, template: Node) -> str | None:
        """Read through a const pointer, if that is what the result initialises."""
        text = self.text(template)
        if text.startswith("const "):
            return f"$self.const_data_ptr<{text.removeprefix('const ').strip()}>()"
        parent = node.parent
        if parent is not None and parent.type == "init_declarator" and parent.parent is not None:
            declared = self.source.data[parent.parent.start_byte : parent.start_byte]
            pointer = part(parent, "declarator")
            if re.search(rb"\bconst\b", declared) and pointer is not None and pointer.type == "pointer_declarator":
                return "$self.const_data_ptr<$T>()"
        return None


def _without_comments(arguments: Node) -> list[Node]:
    return [x for x in arguments.named_children if x.type != "comment"]
