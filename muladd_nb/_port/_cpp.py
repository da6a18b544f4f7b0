"""What in one C++ or CUDA file ties it to one torch or one CPython, and the edits that are mechanical."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ._source import Node, Project, Source, descend, innermost
from ._table import Row, table

Piece = bytes | tuple[int, int]  # text, or a range of the file, whose own edits are made
ROOTS = ("at", "c10", "torch", "caffe2")
MACRO = re.compile(r"(TORCH|AT|C10|CAFFE2?|THC?|THO|PYBIND11|STD_TORCH|STD_CUDA)_[A-Z0-9_]+$")
HEADER = re.compile(r"(ATen|c10|caffe2|torch|pybind11|THC?|THCUNN)/|Python\.h$|numpy/")
# Methods of a tensor that return something else; all others return tensors.
RETURNS = {
    "device": "device", "dtype": "dtype", "scalar_type": "dtype", "type": "dtype", "options": "options",
    "sizes": "sizes", "strides": "sizes", "unbind": "Tensor[]", "chunk": "Tensor[]", "split": "Tensor[]",
    "accessor": "accessor", "packed_accessor32": "accessor", "packed_accessor64": "accessor",
} | dict.fromkeys(
    """size stride dim ndimension numel nbytes itemsize element_size get_device get_device_index is_cuda is_cpu defined
    is_contiguous data_ptr data mutable_data_ptr const_data_ptr item layout storage_offset requires_grad is_sparse
    has_storage storage unsafeGetTensorImpl toString name use_count is_same is_floating_point is_complex""".split(),  # noqa: SIM905
    "other",
)  # fmt: skip
# Methods that other things have too: on an object of unknown type, we leave them alone.
COMMON = frozenset(
    """size data begin end at back front push_back emplace_back value has_value value_or find insert erase resize clear
    count first second sum min max index swap get reset type copy fill exp log sqrt abs str c_str substr empty apply
    name add mul sub div stream id to set write read open close load store update item map all any length rank run
    pop push top lock unlock join def impl arg layout device view select sort split t""".split()  # noqa: SIM905
)
OPERATORS = frozenset("+ - * / % == != < > <= >= & | ^ << >> += -= *= /= &= |= ^=".split())  # noqa: SIM905
STABLE_METHODS = frozenset(
    name.removeprefix("torch::stable::Tensor::") for name in table().names if name.startswith("torch::stable::Tensor::")
)


@dataclasses.dataclass(frozen=True)
class Edit:
    """What replaces a range of bytes."""

    start: int
    end: int
    pieces: tuple[Piece, ...]


@dataclasses.dataclass
class Finding:
    """A line that ties the extension to one torch, or one CPython."""

    path: str
    line: int
    end_line: int
    what: str
    kind: str
    how: str  # mechanical, decision, none; or follows: it is right when another line is
    to: str
    since: str
    source: str
    builds: str = ""


class Reader:
    """Walks one file. ``broken`` holds what other lines declare with a type that has no replacement."""

    def __init__(self, source: Source, project: Project, target: str, broken: dict[str, str]) -> None:
        self.source, self.project, self.target = source, project, target
        self.text = source.text
        self.broken = broken
        self.findings: list[Finding] = []
        self.edits: list[Edit] = []
        self.scopes: list[dict[str, str]] = [{}]
        self.guessed: dict[str, str] = {}  # variables of type auto whose value is not there, and where that is
        self.options: dict[str, Node | None] = {}  # variables of options, by name: the expression
        self.unused: dict[str, Node] = {}  # their declarations, while all uses are replaced
        self.done: set[int] = set()  # the ids of nodes that were dealt with by what they are in
        self.headers: set[str] = set()  # what the file needs after the edits
        self.operators: list[tuple[str, str]] = []  # schemas, and the functions that implement them
        self.newly_broken: dict[str, str] = {}
        visible = project.visible(source)
        self.usings = {path for file in visible for path in file.usings if path[0] in ROOTS}
        self.std = any(path == ("std",) for file in visible for path in file.usings)
        self.using_names = {k: v for file in visible for k, v in file.using_names.items()}
        self.aliases = {"py": ("pybind11",)} | {k: v for file in visible for k, v in file.aliases.items()}
        self.had_torch = any(HEADER.match(name) for file in visible for _, name in file.includes)

    def read(self) -> None:
        """Find everything."""
        self.walk(self.source.root)
        for _, parameters, body in self.source.macros:
            self.scopes.append(dict.fromkeys(parameters, ""))
            self.walk(body)
            self.scopes.pop()
        for name, declaration in self.unused.items():
            self.options.pop(name)
            self.add(declaration, "options", "name", "mechanical", "nothing: the options stand in the calls", "")
            self.remove_line(declaration)
        self.read_includes()

    # What is said, and what is changed

    def add(
        self,
        node: Node,
        what: str,
        kind: str,
        how: str,
        to: str,
        source: str,
        row: Row | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Record a finding, at the line on which a node begins, or all its lines."""
        line = self.source.line(node.start_byte)
        end = self.source.line(max(node.end_byte - 1, node.start_byte)) if whole else line
        since, builds = (row.runs, row.builds) if row else ("", "")
        if row and how == "mechanical" and _newer(row.runs, self.target):
            how, to = "decision", f"{to}, which torch {row.runs} has and {self.target} has not"
        self.findings.append(Finding(str(self.source.path), line, end, what, kind, how, to, since, source, builds))

    def apply(
        self,
        row: Row,
        node: Node,
        what: str,
        kind: str,
        pieces: list[Piece] | None = None,
        at: Node | None = None,
        end: int | None = None,
    ) -> None:
        """Record what a row says of a node, and if it is mechanical, its edit."""
        shown = (
            "".join(p.decode() if isinstance(p, bytes) else self.brief(p) for p in pieces)
            if pieces and "$" in row.to
            else row.to
        )
        self.add(
            at or node, what, kind, row.how, shown, row.source, row, whole=row.how != "mechanical" and kind == "macro"
        )
        if row.how == "mechanical" and not _newer(row.runs, self.target):
            self.edits.append(Edit(node.start_byte, end or node.end_byte, tuple(pieces or [row.to.encode()])))
            self.need(row.to)

    def brief(self, span: tuple[int, int]) -> str:
        """Return what stands in a range if it is short."""
        text = self.source.data[slice(*span)].decode("utf-8", "replace")
        return text if len(text) <= 40 and "\n" not in text else "..."

    def need(self, text: str) -> None:
        """Include what declares the names in a text."""
        for name in re.findall(r"[A-Za-z_][\w:]*", text):
            while name and name not in table().names:
                name = name.rpartition("::")[0]
            if name:
                self.headers.add(f"<{table().names[name]['header']}>")
        for name in re.findall(r"std::(\w+)", text):
            self.headers.update(row.to for row in table().rows.get(("std", name), ()))

    def remove_line(self, node: Node) -> None:
        """Remove a statement, with its line if nothing else is on it."""
        data, start, end = self.source.data, node.start_byte, node.end_byte
        first = data.rfind(b"\n", 0, start) + 1
        last = data.find(b"\n", end)
        last = len(data) if last < 0 else last + 1
        if not data[first:start].strip() and not data[end:last].strip():
            start, end = first, last
        self.edits.append(Edit(start, end, (b"",)))

    def fill(self, to: str, arguments: list[Node], template: list[Node], this: Node | None) -> list[Piece]:
        """Return the pieces of a row's code, with a call's own arguments in it."""
        span = (arguments[0].start_byte, arguments[-1].end_byte) if arguments else None
        pieces: list[Piece] = []
        for part in re.split(r"(\$self|\$,\*|\$\*|\$T\d?|\$\d)", to):
            if part == "$self" and this is not None:
                pieces += [(this.start_byte, this.end_byte)]
            elif part == "$,*":
                pieces += [b", ", span] if span else []
            elif part == "$*":
                pieces += [span] if span else []
            elif part.startswith("$T"):
                node = template[int(part[2:] or 1) - 1]
                pieces.append((node.start_byte, node.end_byte))
            elif part.startswith("$") and part[1:].isdigit():
                node = arguments[int(part[1:]) - 1]
                pieces.append((node.start_byte, node.end_byte))
            else:
                pieces.append(part.encode())
        return pieces

    # Names

    def local(self, name: str) -> str | None:
        """Return the type of a variable, or None if it is none."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

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

    def resolve(self, nodes: list[Node], *, called: bool) -> tuple[str, ...] | None:
        """Return the full name of what torch, pybind11 or the standard library declares, or None."""
        names = tuple(self.text(self.component(node)) for node in nodes)
        if len(names) == 1 and (self.local(names[0]) is not None or names[0] in self.source_types):
            return None
        if names[0] in self.aliases and names[0] not in ROOTS:
            names = self.aliases[names[0]] + names[1:]
        if names[0] in self.using_names:
            names = self.using_names[names[0]] + names[1:]
        if names[0] in (*ROOTS, "pybind11", "std"):
            return names
        if names[0] in self.project.declared:
            return None
        usings = sorted(self.usings | self.inside)
        for path in usings:
            if self.known(path[1:] + names, path[0], called=called):
                return (*path, *names)
        return None

    source_types: frozenset[str] = frozenset()
    inside: set[tuple[str, ...]] = set()  # noqa: RUF012 (replaced, never changed)

    def known(self, names: tuple[str, ...], root: str, *, called: bool) -> bool:
        """Tell whether torch has something of this name, as far as the tables know."""
        key = "::".join(names)
        rows = table().rows
        heads = ["::".join(names[: i + 1]) for i in range(len(names))]
        if any((kind, head) in rows for kind in ("name", "guard", "factory") for head in heads):
            return True
        if f"{root}::{key}" in table().names or any(table().same(head) for head in heads):
            return True
        return called and key in table().aten

    def read_name(self, node: Node, *, called: Node | None = None) -> str:
        """Deal with a name; return what it is: portable, mechanical, bad, or nothing of torch's."""
        nodes = self.parts(node)
        full = self.resolve(nodes, called=called is not None)
        if full is None or full == ("torch",):
            return self.read_broken(node, nodes)
        if full[0] == "std" or (len(full) == 1 and self.std):
            for row in table().rows.get(("std", full[-1] if len(full) < 3 else full[1]), ()):
                self.headers.add(row.to)
            return ""
        if full[0] == "pybind11":
            self.apply(table().rows["name", "pybind11"][0], node, "::".join(full), "name")
            return "bad"
        whole = "::".join(full)
        if whole.startswith(("torch::stable::", "torch::headeronly::")) or whole in table().names:
            self.need(whole)
            return "portable"
        for count in range(len(full), 1, -1):
            key = "::".join(full[1:count])
            component = nodes[len(nodes) - (len(full) - count) - 1] if len(full) - count < len(nodes) else nodes[-1]
            end = self.component(component).end_byte
            if "::".join(full[:count]) in table().names:
                self.need("::".join(full[:count]))
                return "portable"
            for kind in ("name", "guard"):
                arguments = called.named_children if called else None
                template = self.template(component)
                size = len(arguments) if arguments is not None else None
                size = len(template) if "$T" in self.to_of(kind, key) else size
                found = table().find(kind, key, size, len(template), self.target)
                if found and "$" not in found.to:
                    self.apply(found, node, whole, kind, end=end)
                    if found.how != "mechanical":
                        self.qualify(node, nodes, full)
                    return "mechanical" if found.how == "mechanical" else "bad"
                if found and called is None and "$T" in found.to:
                    pieces = self.fill(found.to, [], template, None)
                    self.apply(found, node, whole, kind, pieces, end=component.end_byte)
                    return "mechanical"
            if (alike := table().same(key)) is not None:
                self.apply(alike, node, whole, "name", end=end)
                return "mechanical"
        self.add(node, whole, "name", "none", *self.without(full, called))
        self.qualify(node, nodes, full)
        return "bad"

    def qualify(self, node: Node, nodes: list[Node], full: tuple[str, ...]) -> None:
        """Write a name in full where a using declaration that is removed has brought it."""
        if len(full) > len(nodes) and not any(full[: len(path)] == path for path in self.inside):
            first = self.component(nodes[0])
            prefix = "::".join(full[: len(full) - len(nodes) + 1])
            self.edits.append(Edit(first.start_byte, first.end_byte, (prefix.encode(),)))

    def to_of(self, kind: str, key: str) -> str:
        """Return the code of the first row of a name."""
        return next((row.to for row in table().rows.get((kind, key), ())), "")

    def without(self, full: tuple[str, ...], called: Node | None) -> tuple[str, str]:
        """Return what to do about a name that has no row."""
        if full[-1] in table().aten and len(full) == 2:
            return (
                f'torch_call_dispatcher("aten::{full[-1]}", ...), or the same in Python',
                "torch/csrc/stable/c/shim.h",
            )
        return ("nothing has this name in the stable ABI: C++ of your own, or Python", "docs:ship/migrate")

    def template(self, node: Node) -> list[Node]:
        """Return the template arguments of a component."""
        arguments = node.child_by_field_name("arguments")
        return arguments.named_children if arguments is not None and arguments.type == "template_argument_list" else []

    def read_broken(self, node: Node, nodes: list[Node]) -> str:
        """Name a line that uses what another line declares and cannot have yet."""
        name = self.text(self.component(nodes[-1]))
        kind = self.local(name) if len(nodes) == 1 else None
        origin = (
            kind[4:]
            if kind and kind.startswith("bad:")
            else self.broken.get(name)
            if kind is None
            else self.guessed.get(name)
        )
        if origin is None and len(nodes) > 1:
            origin = self.broken.get(self.text(self.component(nodes[0])))
        if origin is None:
            if self.std and len(nodes) == 1:
                self.headers.update(row.to for row in table().rows.get(("std", name), ()))
            self.headers.update(row.to for row in table().rows.get(("c", name), ()))
            return ""
        if origin != f"{self.source.path}:{self.source.line(node.start_byte)}":
            self.add(node, name, "name", "follows", f"follows from {origin}", "")
        return "bad"

    # Types

    def type_of_type(self, node: Node | None) -> str:
        """Return what a type is to us: Tensor, Tensor[], Tensor?, another word of ours, other, or unknown ("")."""
        if node is None:
            return "other"
        if node.type in ("placeholder_type_specifier", "auto", "decltype"):
            return ""
        if node.type == "type_descriptor":
            return self.type_of_type(node.child_by_field_name("type"))
        nodes = self.parts(node)
        full = self.resolve(nodes, called=False)
        name = full[-1] if full else self.text(self.component(nodes[-1]))
        if name in ("Tensor", "Variable", "TensorBase") and full:
            return "Tensor"
        if name in ("TensorList", "variable_list", "tensor_list"):
            return "Tensor[]"
        if name == "TensorOptions":
            return "options"
        if name in ("IntArrayRef", "IntHeaderOnlyArrayRef"):
            return "sizes"
        if name == "Device":
            return "device"
        if name == "CUDAStream":
            return "stream"
        inner = [self.type_of_type(x) for x in self.template(nodes[-1])]
        if "Tensor" in inner:
            return {
                "optional": "Tensor?",
                "vector": "Tensor[]",
                "ArrayRef": "Tensor[]",
                "array": "Tensor[]",
                "HeaderOnlyArrayRef": "Tensor[]",
            }.get(name, "tuple")
        return "other"

    def type_of(self, node: Node | None) -> str:
        """Return the type of an expression, in the same words."""
        if node is None:
            return ""
        kind = node.type
        if kind == "identifier":
            return self.local(self.text(node)) or ""
        if kind in ("parenthesized_expression",):
            return self.type_of(node.named_children[0] if node.named_children else None)
        if kind == "assignment_expression":
            return self.type_of(node.child_by_field_name("left"))
        if kind == "conditional_expression":
            return self.type_of(node.child_by_field_name("consequence")) or self.type_of(
                node.child_by_field_name("alternative")
            )
        if kind == "subscript_expression":
            of = self.type_of(node.child_by_field_name("argument"))
            return "Tensor" if of in ("Tensor", "Tensor[]") else "other" if of == "sizes" else ""
        if kind == "pointer_expression":
            return {"Tensor?": "Tensor"}.get(self.type_of(node.child_by_field_name("argument")), "")
        if kind == "binary_expression":
            sides = (self.type_of(node.child_by_field_name("left")), self.type_of(node.child_by_field_name("right")))
            operator = self.text(node.child_by_field_name("operator") or node)
            return "Tensor" if "Tensor" in sides and operator not in ("<<", "&&", "||") else "other"
        if kind == "unary_expression":
            return self.type_of(node.child_by_field_name("argument"))
        if kind == "field_expression":
            field = node.child_by_field_name("field")
            found = (
                {self.declared_type(s, d) for s, d in self.project.fields.get(self.text(field), ())} if field else set()
            )
            return found.pop() if len(found) == 1 else ""
        if kind == "call_expression":
            return self.type_of_call(node)
        if kind.endswith("_literal") or kind in (
            "true",
            "false",
            "lambda_expression",
            "new_expression",
            "cast_expression",
            "sizeof_expression",
        ):
            return "other"
        return ""

    def type_of_call(self, node: Node) -> str:
        """Return what a call returns."""
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None or arguments is None:
            return ""
        if function.type == "field_expression":
            this, field = function.child_by_field_name("argument"), function.child_by_field_name("field")
            if this is None or field is None:
                return ""
            name, of = self.text(self.component(field)), self.type_of(this)
            if of in ("Tensor", "Tensor?") and function.children[1].type == "->":
                of = "Tensor"
            if of == "Tensor" or (not of and name in table().aten and name not in COMMON):
                return RETURNS.get(name, "Tensor")
            if of == "options":
                return "options"
            if of in ("Tensor?", "Tensor[]"):
                return "Tensor" if name in ("value", "value_or", "at", "front", "back", "get") else "other"
            if of == "device" and name == "type":
                return "device type"
            return "other" if of else ""
        nodes = self.parts(function)
        full = self.resolve(nodes, called=True)
        name = self.text(self.component(nodes[-1]))
        inner = [self.type_of(x) for x in arguments.named_children]
        if full and full[0] == "std":
            if name == "get":
                return "Tensor" if inner and inner[0] == "tuple" else ""
            return (
                inner[0]
                if name in ("move", "forward") and inner
                else "tuple"
                if name in ("make_tuple", "tie", "make_pair") and "Tensor" in inner
                else "other"
            )
        if full and full[0] in ROOTS:
            if name in ("Tensor", "Variable"):
                return "Tensor"
            if name in ("TensorOptions", "dtype", "device"):
                return "options"
            if name == "getCurrentCUDAStream":
                return "stream"
            if full[:2] == ("torch", "stable") or name in table().aten or (("factory", name) in table().rows):
                return "Tensor" if RETURNS.get(name, "Tensor") != "other" else "other"
            return ""
        found = {self.declared_type(s, d) for s, d in self.project.functions.get(name, ())}
        if found:
            return found.pop() if len(found) == 1 else ""
        return "Tensor" if "Tensor" in inner and name in table().aten and name not in COMMON else ""

    def declared_type(self, source: Source, node: Node) -> str:
        """Return the type that a declaration names, in this file or another."""
        reader = self if source is self.source else Reader(source, self.project, self.target, {})
        return reader.type_of_type(node.child_by_field_name("type"))

    # The walk

    def walk(self, node: Node) -> None:
        """Deal with a node and all under it."""
        if node.id in self.done:
            return
        handler = getattr(self, f"on_{node.type}", None)
        if handler:
            handler(node)
        else:
            self.children(node)

    def children(self, node: Node) -> None:
        """Walk on."""
        for child in node.children:
            self.walk(child)

    def scoped(self, node: Node) -> None:
        """Walk on in a scope of its own."""
        self.scopes.append({})
        self.children(node)
        self.scopes.pop()

    on_for_statement = on_compound_statement = on_if_statement = on_while_statement = scoped

    def on_lambda_expression(self, node: Node) -> None:
        """Read a lambda: without one of its parameters, all are lost."""
        self.scopes.append({})
        before = len(self.findings)
        for child in node.children:
            if child == node.child_by_field_name("body"):
                self.check_signature(None, node, before)
            self.walk(child)
        self.scopes.pop()

    def on_preproc_def(self, node: Node) -> None:
        """Leave it: the bodies of macros come later."""

    on_preproc_function_def = on_preproc_include = on_preproc_call = on_preproc_def

    def on_preproc_if(self, node: Node) -> None:
        """Walk all branches, but not the condition."""
        for i, child in enumerate(node.children):
            if node.field_name_for_child(i) not in ("condition", "name"):
                self.walk(child)

    on_preproc_ifdef = on_preproc_elif = on_preproc_if

    def on_namespace_definition(self, node: Node) -> None:
        """Inside torch's own namespaces, its names need no prefix."""
        name, before = node.child_by_field_name("name"), self.inside
        path = tuple(self.text(name).replace(" ", "").split("::")) if name else ()
        if path and path[0] in ROOTS:
            self.inside = before | {path[: i + 1] for i in range(len(path))}
        if body := node.child_by_field_name("body"):
            self.scoped(body)
        self.inside = before

    def on_function_definition(self, node: Node) -> None:
        """Read a function in a scope of its own; the body of a registration is one, too."""
        self.scopes.append({})
        declarator = node.child_by_field_name("declarator")
        name, function = innermost(declarator)
        before = len(self.findings)
        options = self.options, self.unused
        self.options, self.unused = {}, {}
        registration = name is not None and function is not None and self.on_registration(node, name, function)
        if not registration:
            body = node.child_by_field_name("body")
            for child in node.children:
                if child == body:
                    self.check_signature(name, node, before)
                self.walk(child)
        for variable, declaration in self.unused.items():
            self.options.pop(variable, None)
            self.add(
                declaration,
                variable,
                "name",
                "mechanical",
                "nothing: its parts stand in the calls",
                "torch/csrc/stable/ops.h",
            )
            self.remove_line(declaration)
        self.options, self.unused = options
        self.scopes.pop()

    def check_signature(self, name: Node | None, node: Node, before: int) -> None:
        """Without its types a function is not declared: those that call it follow."""
        bad = [x for x in self.findings[before:] if x.how in ("decision", "none", "follows")]
        if bad:
            self.guessed |= dict.fromkeys(self.scopes[-1], f"{self.source.path}:{bad[0].line}")
        if bad and name is not None:
            self.newly_broken.setdefault(self.text(name), f"{self.source.path}:{bad[0].line}")
            declarator = node.child_by_field_name("declarator")
            for x in bad[:1]:
                x.end_line = max(x.end_line, self.source.line(declarator.end_byte if declarator else node.start_byte))

    def on_registration(self, node: Node, name: Node, function: Node) -> bool:
        """Read TORCH_LIBRARY(ns, m) { ... } and PYBIND11_MODULE(name, m) { ... }."""
        macro = self.text(name)
        parameters = function.child_by_field_name("parameters")
        if node.child_by_field_name("type") is not None or parameters is None:
            return False
        if macro.startswith(("TORCH_LIBRARY", "STABLE_TORCH_LIBRARY", "PYBIND11_MODULE")) and parameters.named_children:
            words = [self.text(x) for x in parameters.named_children]
            self.scopes[-1][words[-1].split()[-1]] = "pybind" if macro.startswith("PYBIND") else "library"
            self.read_macro(name, None)
            if body := node.child_by_field_name("body"):
                self.walk(body)
            return True
        if MACRO.match(macro) and macro not in self.project.macros and macro not in table().names:
            self.read_macro(name, None)
            self.walk(node.child_by_field_name("body") or node)
            return True
        return False

    def on_parameter_declaration(self, node: Node) -> None:
        """Give a parameter its type."""
        self.on_declaration(node)

    on_optional_parameter_declaration = on_parameter_declaration

    def on_for_range_loop(self, node: Node) -> None:
        """Give the variable of a loop its type."""
        self.scopes.append({})
        name, _ = innermost(node.child_by_field_name("declarator"))
        of = self.type_of_type(node.child_by_field_name("type"))
        if name is not None:
            right = self.type_of(node.child_by_field_name("right"))
            self.scopes[-1][self.text(name)] = of or {"Tensor[]": "Tensor", "Tensor": "Tensor"}.get(right, "")
        before = len(self.findings)
        for child in node.children:
            if child == node.child_by_field_name("body"):
                found = [x for x in self.findings[before:] if x.how in ("none", "decision", "follows")]
                for part in descend(node.child_by_field_name("declarator") or node):
                    if found and part.type == "identifier":
                        self.scopes[-1].setdefault(self.text(part), "")
                        self.guessed[self.text(part)] = f"{self.source.path}:{found[0].line}"
            self.walk(child)
        self.scopes.pop()

    def on_declaration(self, node: Node) -> None:
        """Give variables their types; one whose type is not there is not there either."""
        type_node = node.child_by_field_name("type")
        before = len(self.findings)
        if type_node is not None:
            self.walk(type_node)
        bad = [x for x in self.findings[before:] if x.how in ("decision", "none", "follows")]
        guard = bool(self.findings[before:]) and self.findings[-1].kind == "guard"
        declared = self.type_of_type(type_node)
        lost = None
        for i, child in enumerate(node.children):
            if child == type_node:
                continue
            if node.field_name_for_child(i) == "declarator":
                origin = self.declare(node, child, declared, bad, guard=guard)
                name, _ = innermost(child)
                if lost and name is not None:  # after an error a compiler skips the rest of a declaration
                    self.guessed[self.text(name)] = lost
                lost = lost or origin
            else:
                self.walk(child)
        if bad and any(innermost(x)[1] is not None for x in node.children_by_field_name("declarator")):
            self.check_signature(innermost(node.child_by_field_name("declarator"))[0], node, before)

    on_field_declaration = on_declaration

    def declare(self, node: Node, declarator: Node, declared: str, bad: list[Finding], *, guard: bool) -> str | None:
        """Record one variable, after what it is initialised from; return the line that it follows from, if any."""
        name, function = innermost(declarator)
        value = declarator.child_by_field_name("value")
        of = declared or self.type_of(value)
        if (function is None and declarator.type == "structured_binding_declarator") or (
            declarator.named_children and declarator.named_children[0].type == "structured_binding_declarator"
        ):
            binding = declarator if declarator.type == "structured_binding_declarator" else declarator.named_children[0]
            for part in binding.named_children:
                self.scopes[-1][self.text(part)] = "Tensor" if of in ("tuple", "Tensor") else ""
        if guard and value is not None:
            self.read_guard(value)
        elif guard and function is not None:  # Guard guard(device); is parsed as a function, too
            for parameter in (function.child_by_field_name("parameters") or function).named_children:
                if self.local(self.text(parameter)) == "device":
                    self.edits.append(Edit(parameter.end_byte, parameter.end_byte, (b".index()",)))
        before = len(self.findings)
        if name is not None and function is None:
            text = self.text(name)
            single = node.type == "declaration" and len(node.children_by_field_name("declarator")) == 1
            if of == "options" and value is not None and single and self.read_options(value) is not None:
                self.options[text], self.unused[text] = value, node
                self.scopes[-1][text] = "options"
                self.findings = [x for x in self.findings if x not in bad]
                return None
            if bad:
                of = f"bad:{self.source.path}:{bad[0].line}"
                if len(self.scopes) == 1 or node.type == "field_declaration":
                    self.newly_broken.setdefault(text, of[4:])
            self.scopes[-1][text] = of
            if of == "" and value is None and node.type != "parameter_declaration":
                self.scopes[-1][text] = "other"
        if function is not None and name is not None and len(self.scopes) > 1 and node.type == "declaration":
            # A variable with arguments is parsed as a function: Tensor x(y);
            self.scopes[-1][self.text(name)] = f"bad:{self.source.path}:{bad[0].line}" if bad else of
        self.walk(declarator)
        found = [x for x in self.findings[before:] if x.how in ("none", "decision", "follows")]
        names = (
            [name]
            if name is not None
            else [
                x
                for x in descend(declarator)
                if (x.type == "identifier" and value is None)
                or (x.parent is not None and x.parent.type == "structured_binding_declarator")
            ]
        )
        origin = f"{self.source.path}:{found[0].line}" if found else self.guess(value)
        for part in names:
            self.guessed.pop(self.text(part), None)
            if origin and (declared == "" or node.type != "declaration") and function is None:
                self.guessed[self.text(part)] = origin
        return origin

    def guess(self, node: Node | None) -> str | None:
        """Return where it is said what the value of an expression lacks, by a variable of type auto in it."""
        for inner in descend(node) if node is not None else ():
            if inner.type == "identifier" and self.text(inner) in self.guessed:
                return self.guessed[self.text(inner)]
        return None

    def read_guard(self, value: Node) -> None:
        """Give a guard the index of a device: x.device() becomes x.get_device_index()."""
        for argument in value.named_children:
            call = argument
            while (
                call.type
                in ("initializer_list", "cast_expression", "parenthesized_expression", "compound_literal_expression")
                and call.named_children
            ):
                call = call.named_children[-1]
            if call.type == "identifier" and self.type_of(call) == "device":
                self.edits.append(
                    Edit(argument.start_byte, argument.end_byte, ((call.start_byte, call.end_byte), b".index()"))
                )
            if call.type != "call_expression":
                continue
            function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
            if function is None or arguments is None:
                continue
            if function.type == "field_expression" and (field := function.child_by_field_name("field")):
                if self.text(field) in ("device", "get_device"):
                    self.edits.append(
                        Edit(
                            argument.start_byte,
                            argument.end_byte,
                            ((call.start_byte, field.start_byte), b"get_device_index()"),
                        )
                    )
                    self.done.add(field.id)
            elif self.text(function).endswith("device_of") and len(arguments.named_children) == 1:
                inner = arguments.named_children[0]
                self.edits.append(
                    Edit(
                        argument.start_byte,
                        argument.end_byte,
                        ((inner.start_byte, inner.end_byte), b".get_device_index()"),
                    )
                )
                self.done.add(function.id)

    def on_alias_declaration(self, node: Node) -> None:
        """Record an alias of what is not there."""
        before = len(self.findings)
        if type_node := node.child_by_field_name("type"):
            self.walk(type_node)
        bad = [x for x in self.findings[before:] if x.how in ("decision", "none", "follows")]
        if bad and (name := node.child_by_field_name("name")):
            origin = f"{self.source.path}:{bad[0].line}"
            if len(self.scopes) == 1:
                self.newly_broken.setdefault(self.text(name), origin)
            else:
                self.scopes[-1][self.text(name)] = f"bad:{origin}"

    def on_class_specifier(self, node: Node) -> None:
        """Record a class whose base is not there."""
        before = len(self.findings)
        body = node.child_by_field_name("body")
        for child in node.children:
            if child == body:
                bad = [x for x in self.findings[before:] if x.how in ("decision", "none", "follows")]
                name = node.child_by_field_name("name")
                if bad and name is not None:
                    self.newly_broken.setdefault(self.text(name).split("<")[0], f"{self.source.path}:{bad[0].line}")
                self.scoped(child)
            elif node.child_by_field_name("name") != child:
                self.walk(child)

    on_struct_specifier = on_class_specifier

    def on_using_declaration(self, node: Node) -> None:
        """Remove what imports torch's names: each use is written in full."""
        parts = self.parts(node.named_children[-1])
        names = [self.text(x) for x in parts]
        if names[0] not in ROOTS or "::".join(names).startswith(("torch::stable", "torch::headeronly")):
            return
        if (
            len(names) == 1
            or not any(child.type == "namespace" for child in node.children)
            or "::".join(names) in self.project.declared
        ):
            row = Row("using", "", "mechanical", "nothing: each name is written in full", "", "2.10", "2.10")
            self.add(node, "using " + "::".join(names), "name", "mechanical", row.to, "docs:ship/migrate")
            self.remove_line(node)
        else:
            self.add(
                node,
                "using namespace " + "::".join(names),
                "name",
                "mechanical",
                "nothing: what it brings is named where it is used",
                "docs:ship/migrate",
            )
            self.remove_line(node)

    def on_namespace_alias_definition(self, node: Node) -> None:
        """Name an alias of a namespace of torch's."""
        names = self.text(node.named_children[-1]).replace(" ", "").split("::")
        if names[0] in (*ROOTS, "pybind11"):
            self.add(
                node,
                "::".join(names),
                "name",
                "mechanical",
                "nothing: what it brings is named where it is used",
                "docs:ship/migrate",
            )
            self.remove_line(node)

    def on_qualified_identifier(self, node: Node) -> None:
        """Deal with a name, and with its template arguments."""
        self.read_name(node)
        for part in self.parts(node):
            for argument in self.template(part):
                self.walk(argument)

    on_type_identifier = on_identifier = on_template_type = on_template_function = on_qualified_identifier

    def on_field_identifier(self, node: Node) -> None:
        """Name a field whose type is not there."""
        origin = self.broken.get(self.text(node)) if self.text(node) in self.project.fields else None
        if origin and origin != f"{self.source.path}:{self.source.line(node.start_byte)}":
            self.add(node, self.text(node), "name", "follows", f"follows from {origin}", "")

    def on_preproc_arg(self, node: Node) -> None:
        """Leave it."""

    def on_subscript_expression(self, node: Node) -> None:
        """x[i] of a tensor is a select."""
        this, indices = node.child_by_field_name("argument"), node.child_by_field_name("indices")
        if this is not None and indices is not None and self.type_of(this) == "Tensor":
            inner = indices.named_children
            if len(inner) == 1:
                row = table().row(
                    "[]", "", "mechanical", "torch::stable::select($self, 0, $1)", "torch/csrc/stable/ops.h"
                )
                self.apply(row, node, "x[i]", "operator", self.fill(row.to, inner, [], this))
        self.children(node)

    def on_binary_expression(self, node: Node) -> None:
        """There are no operators of tensors."""
        operator = node.child_by_field_name("operator")
        sides = [self.type_of(node.child_by_field_name(side)) for side in ("left", "right")]
        if operator is not None and self.text(operator) in OPERATORS:
            if "Tensor" in sides or ("Tensor[]" in sides and self.text(operator) != "<<"):
                what = f"x {self.text(operator)} y"
                self.add(
                    operator,
                    what,
                    "operator",
                    "none",
                    "no operators of tensors: in Python, or torch_call_dispatcher",
                    "torch/csrc/stable/c/shim.h",
                )
            elif self.text(operator) == "<<" and {"device", "sizes"} & set(sides):
                self.add(
                    operator,
                    f"<< {self.text(node.child_by_field_name('right') or node)}",
                    "operator",
                    "none",
                    "write its numbers one by one",
                    "torch/csrc/stable/tensor_struct.h",
                )
        self.children(node)

    def on_assignment_expression(self, node: Node) -> None:
        """There are none that compute, either; and an option that changes has to be said."""
        operator, left = node.child_by_field_name("operator"), node.child_by_field_name("left")
        if operator is not None and left is not None:
            of = self.type_of(left)
            if of == "Tensor" and self.text(operator) != "=":
                self.add(
                    operator,
                    f"x {self.text(operator)} y",
                    "operator",
                    "none",
                    "no operators of tensors: in Python, or torch_call_dispatcher",
                    "torch/csrc/stable/c/shim.h",
                )
            if left.type == "identifier" and self.text(left) in self.options:
                self.keep_options(self.text(left))
            if left.type == "subscript_expression" and self.type_of(left.child_by_field_name("argument")) == "Tensor":
                self.add(
                    left,
                    "x[i] = y",
                    "operator",
                    "none",
                    "torch::stable::copy_ or fill_ of a select, or a pointer",
                    "torch/csrc/stable/ops.h",
                    whole=True,
                )
                self.add(
                    operator,
                    "x[i] = y",
                    "operator",
                    "none",
                    "torch::stable::copy_ or fill_ of a select, or a pointer",
                    "torch/csrc/stable/ops.h",
                )
                self.done.add(left.id)
        self.children(node)

    def on_unary_expression(self, node: Node) -> None:
        """Negation is one of them."""
        if self.type_of(node.child_by_field_name("argument")) == "Tensor":
            self.add(
                node,
                self.text(node.children[0]) + "x",
                "operator",
                "none",
                "no operators of tensors: in Python, or torch_call_dispatcher",
                "torch/csrc/stable/c/shim.h",
            )
        self.children(node)

    # Calls

    def on_call_expression(self, node: Node) -> None:
        """Deal with a call: a method, a macro, a function of torch's."""
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None or arguments is None:
            self.children(node)
        elif function.type == "field_expression":
            self.on_method(node, function, arguments)
        elif (
            function.type == "identifier"
            and (MACRO.match(self.text(function)) or ("macro", self.text(function)) in table().rows)
            and self.text(function) not in self.project.macros
        ):
            self.read_macro(function, arguments)
            if "CHECK" in self.text(function) or "ASSERT" in self.text(function):
                self.check_message(arguments)
            self.walk(arguments)
        else:
            self.read_function(node, function, arguments)

    def check_message(self, arguments: Node) -> None:
        """Name what a stable message cannot take: a stream prints no devices and no shapes."""
        for argument in arguments.named_children[1:]:
            of = self.type_of(argument)
            if of in ("sizes", "device", "options", "Tensor"):
                self.add(
                    argument,
                    self.text(argument),
                    "operator",
                    "decision",
                    "a message takes numbers and text: write its numbers one by one",
                    "torch/headeronly/util/Exception.h",
                )

    def read_macro(self, name: Node, arguments: Node | None) -> None:
        """Deal with a macro of torch's."""
        text = self.text(name)
        if text in table().names:
            self.need(text)
            return
        call = name.parent if arguments is not None and name.parent is not None else name
        inner = [x for x in arguments.named_children if x.type != "comment"] if arguments else []
        row = table().find("macro", text, len(inner) if arguments else None, 0, self.target)
        if row is None and not arguments:
            row = next(iter(table().rows.get(("macro", text), ())), None)
        if row is None:
            if text != "TORCH_EXTENSION_NAME":
                self.add(
                    call,
                    text,
                    "macro",
                    "none",
                    "no such macro in torch/headeronly: write what it stands for",
                    "docs:ship/migrate",
                    whole=True,
                )
        elif "$" in row.to and arguments:
            self.apply(row, call, text, "macro", self.fill(row.to, inner, [], None))
        else:
            whole = name.parent if text.startswith("PYBIND11_MODULE") else None
            if whole is not None and whole.parent is not None and whole.parent.type == "function_definition":
                whole = whole.parent
            self.apply(row, name, text, "macro", at=whole or (call if row.how != "mechanical" else name))

    def read_function(self, node: Node, function: Node, arguments: Node) -> None:
        """Deal with a call of a function that may be torch's."""
        nodes = self.parts(function)
        full = self.resolve(nodes, called=True)
        inner = [x for x in arguments.named_children if x.type != "comment"]
        is_found_by_types = full is None and len(nodes) == 1 and self.is_of_tensors(nodes[0], inner)
        if is_found_by_types:
            full = ("at", self.text(self.component(nodes[0])))
        if full and full[0] in ROOTS and len(full) > 1:
            key = "::".join(full[1:])
            if ("factory", key) in table().rows:
                self.read_factory(node, function, key, inner)
                self.walk(arguments)
                return
            row = table().find("name", key, len(inner), 0, self.target)
            if row is not None and "$" in row.to:
                self.apply(row, node, "::".join(full), "name", self.fill(row.to, inner, [], None))
            elif row is None and key in table().aten:
                self.add(function, "::".join(full), "name", "none", *self.without(("at", key), node))
            elif row is not None and row.args and "$" not in row.to:
                self.apply(row, node, "::".join(full), "name")
            elif is_found_by_types and full:
                if (alike := table().same(key)) is not None:
                    self.apply(alike, function, key, "name")
                else:
                    self.add(function, "::".join(full), "name", "none", *self.without(full, node))
            else:
                self.read_name(function, called=arguments)
                if key in ("cuda::CUDAGuard", "cuda::OptionalCUDAGuard", "DeviceGuard"):
                    self.read_guard(arguments)
        elif function.id not in self.done:
            if function.type in ("qualified_identifier", "identifier", "template_function", "template_type"):
                self.on_qualified_identifier(function)
            else:
                self.walk(function)
        if function.type in ("qualified_identifier", "template_function"):
            for part in nodes:
                for argument in self.template(part):
                    if argument.id not in self.done:
                        self.done.add(argument.id)
                        if full and full[0] in ROOTS:
                            self.walk(argument)
        self.walk(arguments)

    def is_of_tensors(self, name: Node, inner: list[Node]) -> bool:
        """Tell whether a name without a prefix is torch's, by the types of its arguments."""
        text = self.text(self.component(name))
        if text in self.project.declared or self.local(text) is not None or text in self.project.macros:
            return False
        types = {self.type_of(x) for x in inner}
        if types & {"device", "device type", "dtype", "options"}:
            return not any((kind, text) in table().rows for kind in ("std", "c"))
        return (text in table().aten or ("name", text) in table().rows) and bool(types & {"Tensor", "Tensor[]"})

    def on_method(self, node: Node, function: Node, arguments: Node) -> None:
        """Deal with a method: of a tensor, of a library, of a stream."""
        this, field = function.child_by_field_name("argument"), function.child_by_field_name("field")
        if this is None or field is None:
            self.children(node)
            return
        name, of = self.text(self.component(field)), self.type_of(this)
        inner = [x for x in arguments.named_children if x.type != "comment"]
        if self.template(field) and (origin := self.guess(this)) is not None:
            self.add(field, f"x.{name}<>()", "method", "follows", f"follows from {origin}", "")
        root = self.root_of(this)
        if root in ("library", "pybind"):
            self.read_library(node, function, name, inner, root)
            return
        if of == "stream":
            if name == "stream":
                self.add(
                    field,
                    "stream.stream()",
                    "method",
                    "mechanical",
                    "the stream itself",
                    "torch/csrc/stable/accelerator.h",
                )
                self.edits.append(Edit(node.start_byte, node.end_byte, ((this.start_byte, this.end_byte),)))
            else:
                self.add(
                    field,
                    f"stream.{name}()",
                    "method",
                    "decision",
                    "the CUDA runtime's function of a cudaStream_t",
                    "CUDA runtime",
                )
        elif name in ("is_cuda", "is_cpu") and self.ends_in_type(this):
            before = this.child_by_field_name("function").child_by_field_name("argument")  # type: ignore[union-attr]
            self.add(
                field, f"type().{name}()", "method", "mechanical", f"x.{name}()", "torch/csrc/stable/tensor_struct.h"
            )
            self.edits.append(Edit(this.start_byte, this.end_byte, ((before.start_byte, before.end_byte),)))  # type: ignore[union-attr]
            self.done.add(this.id)
            self.walk(before)  # type: ignore[arg-type]
            self.walk(arguments)
            return
        elif (of in ("Tensor", "Tensor?") and not (of == "Tensor?" and function.children[1].type == ".")) or (
            of == ""
            and name not in COMMON
            and (name in table().aten or ("method", name) in table().rows or name in RETURNS)
            and name not in self.project.functions
        ):
            self.read_method(node, this, field, name, inner)
        elif of == "options" and self.read_options(node) is None:
            self.add(
                field,
                f"options.{name}()",
                "method",
                "decision",
                "no options: dtype, layout and device one by one",
                "torch/csrc/stable/ops.h",
            )
        elif of == "dtype" and name not in ("",):
            self.add(
                field,
                f"dtype.{name}()",
                "method",
                "decision",
                "x.element_size(), or torch::headeronly::toString(x.scalar_type())",
                "torch/csrc/stable/tensor_struct.h",
            )
        elif of == "device" and name in (
            "str",
            "is_xpu",
            "is_mps",
            "is_hip",
            "is_meta",
            "is_privateuseone",
            "is_xla",
            "is_mkldnn",
            "supports_as_strided",
        ):
            self.add(
                field,
                f"device.{name}()",
                "method",
                "decision",
                "compare device.type() with torch::headeronly::DeviceType",
                "torch/csrc/stable/device_struct.h",
            )
        elif field.type == "field_identifier":
            self.on_field_identifier(field)
        self.walk(this)
        for argument in self.template(field):
            self.walk(argument)
        self.walk(arguments)

    def root_of(self, node: Node) -> str:
        """Return the type of the variable at the beginning of a chain of calls."""
        while node.type in ("call_expression", "field_expression"):
            inner = node.child_by_field_name("function" if node.type == "call_expression" else "argument")
            if inner is None:
                break
            node = inner
        return (self.local(self.text(node)) or "") if node.type == "identifier" else ""

    def ends_in_type(self, node: Node) -> bool:
        """Tell whether an expression is x.type() of what is no device."""
        function = node.child_by_field_name("function") if node.type == "call_expression" else None
        if function is None or function.type != "field_expression":
            return False
        field, this = function.child_by_field_name("field"), function.child_by_field_name("argument")
        return field is not None and self.text(field) == "type" and self.type_of(this) in ("", "Tensor")

    def read_method(self, node: Node, this: Node, field: Node, name: str, inner: list[Node]) -> None:
        """Deal with a method of a tensor."""
        template = self.template(field)
        row = table().find("method", name, len(inner), len(template), self.target)
        if name in ("data_ptr", "mutable_data_ptr", "const_data_ptr", "is_contiguous") and not template and not inner:
            return
        if name in STABLE_METHODS and row is None:
            return
        if row is not None and row.how == "mechanical":
            to = row.to
            if name in ("data_ptr", "data") and template:
                to = self.const_pointer(node, template[0]) or to
            self.apply(row, node, f"x.{name}()", "method", self.fill(to, inner, template, this), at=field)
            if name == "to" and inner and self.type_of(inner[0]) == "options":
                self.edits.pop()
                self.findings.pop()
                self.add(
                    field,
                    "x.to()",
                    "method",
                    "decision",
                    "torch::stable::to(x, dtype, layout, device)",
                    "torch/csrc/stable/ops.h",
                )
        elif name == "options":
            if not self.is_read(node):
                self.apply(row, node, "x.options()", "method", at=field) if row else None
        elif row is not None:
            self.apply(row, node, f"x.{name}()", "method", at=field)
        elif name in STABLE_METHODS:
            self.add(
                field,
                f"x.{name}()",
                "method",
                "decision",
                "the same method, without these arguments",
                "torch/csrc/stable/tensor_struct.h",
            )
        elif name in ("new_empty", "new_zeros", "new_full", "new_ones"):
            self.add(
                field,
                f"x.{name}()",
                "method",
                "decision",
                f"torch::stable::{name}(x, size, dtype, layout, device)",
                "torch/csrc/stable/ops.h",
            )
        else:
            self.add(field, f"x.{name}()", "method", "none", *self.without(("at", name), node))

    def const_pointer(self, node: Node, template: Node) -> str | None:
        """Read through a const pointer, where that is what a pointer is for."""
        text = self.text(template)
        if text.startswith("const "):
            return f"$self.const_data_ptr<{text.removeprefix('const ').strip()}>()"
        parent = node.parent
        if parent is not None and parent.type == "init_declarator" and parent.parent is not None:
            declared = self.source.data[parent.parent.start_byte : parent.start_byte]
            pointer = parent.child_by_field_name("declarator")
            if re.search(rb"\bconst\b", declared) and pointer is not None and pointer.type == "pointer_declarator":
                return "$self.const_data_ptr<$T>()"
        return None

    # Factories, whose options become arguments

    def is_read(self, node: Node) -> bool:
        """Tell whether a factory that a node stands in has taken it for its options."""
        parent: Node | None = node
        while parent is not None and parent.type not in ("compound_statement", "translation_unit"):
            if parent.id in self.read_nodes:
                return True
            parent = parent.parent
        return False

    def read_options(self, node: Node) -> dict[str, Any] | None:
        """Return what options say: the tensor they are like, dtype and device; None if it is more than that."""
        if node.type == "identifier":
            value = self.options.get(self.text(node))
            if value is not None:
                return self.read_options(value)
            return {"dtype": node} if self.type_of(node) == "dtype" else None
        if node.type in ("qualified_identifier",):
            name = self.text(self.parts(node)[-1])
            full = self.resolve(self.parts(node), called=False)
            is_dtype = full and full[0] in ROOTS and (re.match(r"k[A-Z]", name) or "ScalarType" in full)
            if not is_dtype:
                return None
            return {"device": node} if name in ("kCPU", "kCUDA") else {"dtype": node}
        if node.type in ("argument_list", "initializer_list") and len(node.named_children) == 1:
            return self.read_options(node.named_children[0])
        if node.type != "call_expression":
            return None
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None or arguments is None:
            return None
        inner = arguments.named_children
        if function.type == "field_expression":
            this, field = function.child_by_field_name("argument"), function.child_by_field_name("field")
            if this is None or field is None:
                return None
            name = self.text(field)
            if name == "options" and not inner and self.type_of(this) in ("Tensor", ""):
                return {"like": this}
            if name in ("dtype", "scalar_type", "type") and not inner and self.type_of(this) == "Tensor":
                return {"dtype": node}
            before = self.read_options(this)
            return None if before is None else self.with_option(before, name, inner)
        full = self.resolve(self.parts(function), called=True)
        if full and full[0] in ROOTS:
            if full[-1] == "TensorOptions":
                return {} if not inner else self.read_options(inner[0]) if len(inner) == 1 else None
            if full[-1] in ("dtype", "device"):
                return self.with_option({}, full[-1], inner)
        return None

    def with_option(self, options: dict[str, Any], name: str, inner: list[Node]) -> dict[str, Any] | None:
        """Return options and one more."""
        if name == "dtype" and len(inner) == 1:
            return options | {"dtype": inner[0]}
        if name == "device" and len(inner) in (1, 2):
            return options | {"device": inner[0], "index": inner[1] if len(inner) == 2 else None}
        if name == "requires_grad" and (not inner or self.text(inner[0]) == "false") and inner:
            return options
        return options if name == "layout" and self.text(inner[0]).endswith("kStrided") else None

    read_nodes: set[int] = set()  # noqa: RUF012 (replaced in the first factory)

    def read_factory(self, node: Node, function: Node, name: str, inner: list[Node]) -> None:
        """Write empty, zeros, ones and full with their options as arguments."""
        count = 2 if name == "full" else 1
        options = {} if len(inner) == count else self.read_options(inner[count]) if len(inner) == count + 1 else None
        row = table().rows["factory", name][0]
        if options is None or len(inner) < count:
            self.apply(row, function, f"torch::{name}", "factory")
            for argument in inner[count:]:
                if argument.type == "identifier" and self.text(argument) in self.options:
                    self.keep_options(self.text(argument))
                    self.add(argument, self.text(argument), "name", "decision", row.to, row.source)
            return
        size: list[Piece] = [(inner[0].start_byte, inner[0].end_byte)]
        like = options.get("like")

        def span(key: str) -> list[Piece] | None:
            part = options.get(key)
            if part is None:
                return None
            if key == "device" and options.get("index") is not None:
                return [
                    b"torch::stable::Device(",
                    (part.start_byte, part.end_byte),
                    b", ",
                    (options["index"].start_byte, options["index"].end_byte),
                    b")",
                ]
            if key == "device":
                return (
                    [b"torch::stable::Device(", (part.start_byte, part.end_byte), b")"]
                    if part.type == "qualified_identifier"
                    else [(part.start_byte, part.end_byte)]
                )
            return [(part.start_byte, part.end_byte)]

        dtype, device = span("dtype"), span("device")
        if (name == "empty" and like is not None) or (name == "zeros" and like is not None):
            pieces: list[Piece] = [
                f"torch::stable::new_{name}(".encode(),
                (like.start_byte, like.end_byte),
                b", ",
                *size,
            ]
        elif name == "empty":
            pieces = [b"torch::stable::empty(", *size]
        else:
            known: dict[str, list[Piece]] = {"zeros": [b"0"], "ones": [b"1"]}
            value: list[Piece] = known.get(name) or [(inner[1].start_byte, inner[1].end_byte)]
            pieces = [b"torch::stable::full(", *size, b", ", *value]
            if like is not None:
                self_like: Piece = (like.start_byte, like.end_byte)
                dtype = dtype or [self_like, b".scalar_type()"]
                device = device or [self_like, b".device()"]
        if dtype or device:
            pieces += [b", ", *(dtype or [b"std::nullopt"])]
        if device:
            pieces += [b", std::nullopt, ", *device]
        shown = {
            "empty": "torch::stable::new_empty(like, size, dtype)"
            if like is not None
            else "torch::stable::empty(size, dtype, layout, device)",
            "zeros": "torch::stable::new_zeros(like, size, dtype)"
            if like is not None
            else "torch::stable::full(size, 0, dtype, layout, device)",
        }.get(name, "torch::stable::full(size, value, dtype, layout, device)")
        new = table().row(name, "", "mechanical", shown, row.source)
        self.read_nodes = self.read_nodes | {argument.id for argument in inner[count:]}
        self.apply(new, node, f"torch::{name}", "factory", [*pieces, b")"])
        self.need("torch::stable::Device std::nullopt")
        # What is left of the options is not walked twice.
        for argument in inner[count:]:
            for key in ("dtype", "device", "index"):
                if options.get(key) is not None and argument.type != "identifier":
                    self.walk(options[key])
            self.done.add(argument.id)
        if inner[count:] and inner[count].type == "identifier":
            variable = self.options.get(self.text(inner[count]))
            for key in ("dtype", "device", "index", "like"):
                if variable is not None and options.get(key) is not None and options[key].id not in self.done:
                    self.walk(options[key])
                    self.done.add(options[key].id)
        elif like is not None:
            self.walk(like)

    def keep_options(self, name: str) -> None:
        """Keep a variable of options, for not all that uses it is replaced."""
        if (declaration := self.unused.pop(name, None)) is not None:
            self.add(
                declaration,
                name,
                "name",
                "decision",
                "no options: dtype, layout and device one by one",
                "torch/csrc/stable/ops.h",
            )

    # Registrations

    def read_library(self, node: Node, function: Node, name: str, inner: list[Node], root: str) -> None:
        """Read m.def(...) and m.impl(...), also in a chain."""
        this, field = function.child_by_field_name("argument"), function.child_by_field_name("field")
        assert this is not None and field is not None
        self.walk(this)
        literal = self.string(inner[0]) if inner else None
        if root == "pybind":
            if name == "def" and literal is not None and len(inner) > 1:
                schema = self.schema_of(literal, inner[1])
                to = f'm.def("{schema}")' if schema else "a schema: tensors, numbers, strings and lists of them"
                self.add(
                    node,
                    f'm.def("{literal}")',
                    "macro",
                    "decision",
                    to,
                    "https://docs.pytorch.org/tutorials/advanced/cpp_custom_ops.html",
                    whole=True,
                )
            return
        if name == "def" and literal is not None and "(" in literal:
            self.operators.append((literal, ""))
        if name == "impl" and len(inner) == 2:
            self.read_impl(inner[1])
            return
        if name == "def" and len(inner) == 2:
            if literal is not None and "(" in literal and inner[1].type == "initializer_list":
                row = table().row(
                    "def", "", "mechanical", "torch::stable::detail::StableLibrary::def", "torch/csrc/stable/library.h"
                )
                if _newer("2.12", self.target):
                    self.add(
                        node,
                        "m.def(schema, tags)",
                        "macro",
                        "decision",
                        "m.def(schema): torch 2.12 takes tags; before, register them in Python",
                        row.source,
                    )
            else:
                schema = literal if literal is not None and "(" in literal else self.schema_of(literal or "", inner[1])
                impl = f'm.impl("{(literal or "").split("(")[0]}", TORCH_BOX(&f))'
                to = f'm.def("{schema}"), and {impl} in STABLE_TORCH_LIBRARY_IMPL(..., CPU or CUDA, m)'
                self.add(node, "m.def(name, f)", "macro", "decision", to, "torch/csrc/stable/library.h", whole=True)
        elif name == "set_python_module":
            if _newer("2.13", self.target):
                self.add(
                    node,
                    "m.set_python_module()",
                    "macro",
                    "decision",
                    "leave it out: torch 2.13 has it",
                    "torch/csrc/stable/library.h",
                )
        elif name not in ("def", "impl"):
            self.add(
                node,
                f"m.{name}()",
                "macro",
                "none",
                "m.def(schema) and m.impl(name, TORCH_BOX(&f)) are all there is",
                "torch/csrc/stable/library.h",
                whole=True,
            )
        for argument in inner:
            self.walk(argument)

    def read_impl(self, function: Node) -> None:
        """Box what implements an operator."""
        text = self.text(function)
        if text.startswith("TORCH_BOX"):
            return
        if function.type in ("pointer_expression", "identifier", "qualified_identifier", "template_function"):
            row = table().row("impl", "", "mechanical", "TORCH_BOX(&f)", "torch/csrc/stable/library.h")
            before = b"" if text.startswith("&") else b"&"
            self.apply(
                row,
                function,
                "m.impl()",
                "macro",
                [b"TORCH_BOX(" + before, (function.start_byte, function.end_byte), b")"],
            )
            inner = function.child_by_field_name("argument") if function.type == "pointer_expression" else function
            self.walk(inner or function) if inner is not None and inner != function else self.read_broken(
                function, self.parts(function)
            )
        elif text.startswith("TORCH_FN"):
            self.walk(function)
        else:
            self.add(
                function,
                "m.impl()",
                "macro",
                "decision",
                "TORCH_BOX(&f) of a function with a name",
                "torch/csrc/stable/library.h",
                whole=True,
            )
            self.walk(function)

    def string(self, node: Node) -> str | None:
        """Return the value of a string literal, or of several in a row."""
        if (
            node.type == "call_expression"
            and (arguments := node.child_by_field_name("arguments"))
            and arguments.named_children
        ):
            return self.string(arguments.named_children[0])
        if node.type not in ("string_literal", "concatenated_string", "raw_string_literal"):
            return None
        return (
            "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', self.text(node)))
            if node.type != "raw_string_literal"
            else self.text(node)[3:-2]
        )

    def schema_of(self, name: str, function: Node) -> str | None:
        """Return the schema of a function, by its declaration."""
        target = self.text(function).lstrip("&").split("::")[-1].split("<")[0]
        for source, node in self.project.functions.get(target, ()):
            reader = self if source is self.source else Reader(source, self.project, self.target, {})
            schema = reader.schema(name.split("::")[-1], node)
            if schema:
                self.operators.append((schema, target))
                return schema
        return None

    def schema(self, name: str, node: Node) -> str | None:
        """Write the schema of a declaration, or None if a type of it has none."""
        _, function = innermost(node.child_by_field_name("declarator"))
        parameters = function.child_by_field_name("parameters") if function else None
        returns = self.schema_type(node.child_by_field_name("type"))
        if parameters is None or returns is None:
            return None
        words = []
        letter = ord("a")
        for parameter in parameters.named_children:
            if parameter.type == "comment" or self.text(parameter) == "void":
                continue
            kind = self.schema_type(parameter.child_by_field_name("type"))
            declarator = parameter.child_by_field_name("declarator")
            inner, _ = innermost(declarator)
            if (
                kind in (None, "()")
                or inner is None
                or (declarator is not None and declarator.type == "pointer_declarator")
            ):
                return None
            is_written = (
                declarator is not None
                and declarator.type == "reference_declarator"
                and not self.text(parameter).startswith("const")
                and "Tensor" in str(kind)
            )
            words.append(f"{kind}{f'({chr(letter)}!)' if is_written and kind == 'Tensor' else ''} {self.text(inner)}")
            letter += is_written
        return f"{name}({', '.join(words)}) -> {returns}"

    def schema_type(self, node: Node | None) -> str | None:
        """Return what a schema calls a C++ type."""
        if node is None:
            return None
        nodes = self.parts(node)
        name = self.text(self.component(nodes[-1]))
        inner = [self.schema_type(x.child_by_field_name("type") or x) for x in self.template(nodes[-1])]
        if name in ("optional", "vector", "ArrayRef", "tuple", "List") and inner and None not in inner:
            return {"optional": f"{inner[0]}?", "tuple": f"({', '.join(map(str, inner))})"}.get(name, f"{inner[0]}[]")
        return {
            "Tensor": "Tensor", "Variable": "Tensor", "TensorList": "Tensor[]", "variable_list": "Tensor[]",
            "void": "()",
            "int": "int", "int64_t": "int", "long": "int", "size_t": "int", "int32_t": "int", "uint64_t": "int",
            "unsigned": "int", "double": "float", "float": "float", "bool": "bool", "string": "str",
            "string_view": "str",
            "IntArrayRef": "int[]", "ScalarType": "ScalarType", "Device": "Device", "Scalar": "Scalar",
        }.get(name)  # fmt: skip

    def on_string_literal(self, node: Node) -> None:
        """Leave it."""

    on_comment = on_raw_string_literal = on_char_literal = on_string_literal

    # Includes

    def read_includes(self) -> None:
        """Replace torch's headers by those that the file needs afterwards."""
        mine = {name for _, name in self.source.includes}
        torch = [(node, name) for node, name in self.source.includes if HEADER.match(name) and not self.is_stable(name)]
        needed = sorted(
            h for h in self.headers if h.strip("<>") not in mine and (self.had_torch or h.startswith("<torch/"))
        )
        first = next((node for node, name in torch if self.is_unconditional(node) and name != "Python.h"), None)
        block = self.source.newline.join(b"#include " + h.encode() for h in needed)
        for node, name in torch:
            if name == "Python.h" or name.startswith("numpy/"):
                row = table().rows["name", "Python.h"][0]
                if not self.limited:
                    self.add(node, name, "header", row.how, row.to, row.source)
                continue
            shown = (
                ", ".join(needed) if node == first and needed else "nothing: what it declares is named where it is used"
            )
            self.add(node, name, "header", "mechanical", shown, "docs:ship/migrate")
            if node == first and needed:
                line_end = node.end_byte - len(self.text(node)) + len(self.text(node).rstrip())
                self.edits.append(Edit(node.start_byte, line_end, (block,)))
            else:
                self.remove_line_of(node)
        if needed and first is None:
            self.insert(block)

    limited = False

    def is_stable(self, name: str) -> bool:
        """Tell whether the stable ABI has a header."""
        return name.startswith(("torch/csrc/stable/", "torch/headeronly/", "torch/csrc/inductor/aoti_torch/c/"))

    def is_unconditional(self, node: Node) -> bool:
        """Tell whether an include is always compiled: it is in nothing but an include guard."""
        parent = node.parent
        while parent is not None and parent.type != "translation_unit":
            if parent.type not in ("preproc_ifdef",) or not self.is_guard(parent):
                return False
            parent = parent.parent
        return True

    def is_guard(self, node: Node) -> bool:
        """Tell whether #ifndef X is followed by #define X."""
        name = node.child_by_field_name("name")
        inner = [child for child in node.named_children if child != name and child.type != "comment"]
        return (
            node.children[0].type == "#ifndef"
            and bool(inner)
            and inner[0].type == "preproc_def"
            and self.text(inner[0].child_by_field_name("name") or inner[0]) == self.text(name or node)
        )

    def remove_line_of(self, node: Node) -> None:
        """Remove an include, with its end of line."""
        end = node.end_byte
        if not self.source.data[node.start_byte : end].endswith(b"\n"):
            found = self.source.data.find(b"\n", end)
            end = len(self.source.data) if found < 0 else found + 1
        self.edits.append(Edit(node.start_byte, end, (b"",)))

    def insert(self, block: bytes) -> None:
        """Insert includes after the last one that is always compiled, or at the top."""
        data, newline = self.source.data, self.source.newline
        places = [node.end_byte for node, _ in self.source.includes if self.is_unconditional(node)]
        if places:
            at = max(places)
        elif match := re.search(
            rb"^[ \t]*#[ \t]*(pragma once|define \w+_(H|HPP|CUH|H_|HPP_)\w*)[^\n]*\n", data, re.MULTILINE
        ):
            at = match.end()
        else:
            at = 0
        if at and data[at - 1 : at] != b"\n":
            found = data.find(b"\n", at)
            at = len(data) if found < 0 else found + 1
        self.edits.append(Edit(at, at, (block + newline,)))


def _newer(version: str, target: str) -> bool:
    return tuple(map(int, version.split("."))) > tuple(map(int, target.split(".")))


def rewritten(source: Source, edits: list[Edit]) -> bytes:
    """Return the file with all edits made; one inside of another is made in what is kept of the outer range."""
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end > edit.start, -edit.end))

    def render(start: int, end: int, skip: Edit | None) -> bytes:
        out, at = [], start
        for edit in ordered:
            if edit is skip or edit.start < at or edit.end > end or (edit.start >= end and edit.end > edit.start):
                continue
            if skip is not None and (edit.start, edit.end) == (skip.start, skip.end):
                continue
            out.append(source.data[at : edit.start])
            out += [piece if isinstance(piece, bytes) else render(*piece, edit) for piece in edit.pieces]
            at = edit.end
        return b"".join([*out, source.data[at:end]])

    return render(0, len(source.data), None)
