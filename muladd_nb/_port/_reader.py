"""Reads one C++ or CUDA file: its findings, and the edits that are mechanical.

If the stable ABI lacks the type of a variable, its declaration no longer compiles, nor does a line that uses it. The
report says that these lines follow from the first. At the end, torch's includes are removed, and the headers that the
file needs after the edits are added.
"""

from __future__ import annotations

import itertools
import re

from ._calls import Calls
from ._findings import OPTIONAL, Finding, must_run_once
from ._names import Variable
from ._source import EMPTY, HEADER, ROOTS, Node, above, innermost, is_member, named, part
from ._table import NAMES, ROWS, WORDS
from ._types import TUPLE, elements

STABLE = ("torch/csrc/stable/", "torch/headeronly/", "torch/csrc/inductor/aoti_torch/c/")
UNTYPED = ("parameter_declaration", "for_range_loop")  # their variables may be of torch's types
BOM = b"\xef\xbb\xbf"  # UTF-8's byte order mark, with which a file may begin
HEAD = re.compile(rb"#[ \t]*(include|pragma once|define \w+_(H|HH|HPP|CUH|INC)_*\s*?\n)")  # at the head of a file


class Reader(Calls):
    """Reads a file."""

    def read(self) -> None:
        """Walk the file, then the parts that were parsed alone. The includes depend on all edits, so they come last."""
        self.specialised = set[tuple[int, bytes, str]]()  # to find those that become one
        with self.scope():
            self.walk(self.source.root)
        for macro, names, body in self.source.fragments:
            before = len(self.findings)
            self.follow(body, macro, self.broken.get(f"in {macro}", ""))
            with self.scope(names):
                self.open(self.source.around(body))
                self.walk(body)
            if macro and (bad := self.unsolved(before)):  # a compiler may name the line that uses the macro
                self.newly_broken[macro] = bad.where
        words = set(re.findall(r"[A-Z]\w+", self.source.data.decode("ascii", "replace")))
        self.need(" ".join(words & WORDS["attribute"].keys()), self.source.root)  # the parser does not see these
        self.read_marks()
        self.read_includes()

    def read_marks(self) -> None:
        """Find __device__ and the like where g++ compiles them: nvcc includes CUDA's header itself, g++ does not."""
        files = self.project.around[self.source]
        is_compiled = any(file.path.suffix in (".cpp", ".cc", ".cxx") for file in files)
        marks = list(re.finditer(rb"\b__(device|host|global)__\b", self.source.data)) if is_compiled else []
        if marks and any(b"define __device__" in file.data for file in files):
            return
        for mark in marks:
            node = self.source.root.descendant_for_byte_range(*mark.span()) or EMPTY
            if node.type != "comment":
                self.need_header("c", "__device__", node)

    def on_identifier(self, node: Node) -> None:
        variable = self.variable(self.text(node))
        if variable.unused:  # no longer: this use of the options is not rewritten
            variable.origin = self.tell(variable.unused, self.text(node), ("options", "*")).where
            variable.unused = None
        self.read_name(node)

    on_qualified_identifier = on_type_identifier = on_template_type = on_template_function = on_identifier
    on_primitive_type = on_identifier  # such as int64_t, which has a header although the grammar knows it

    def on_field_identifier(self, node: Node) -> None:
        if node.prev_sibling is not None and node.prev_sibling.type in (".*", "->*"):  # x.*c, with a variable c
            self.read_name(node)
        elif self.project.named["field", name := self.text(node)]:
            self.follow(node, name, self.broken.get(f".{name}", ""))

    def on_enumerator(self, node: Node) -> None:
        self.walk(*(child for child in node.children if child != part(node, "name")))

    def on_preproc_include(self, node: Node) -> None:
        pass  # it is read at the end

    on_preproc_def = on_preproc_function_def = on_preproc_include  # these are parsed alone

    def on_preproc_if(self, node: Node) -> None:
        """Walk all branches. In the condition, find names that torch's headers define."""
        for i, child in enumerate(node.children):
            if node.field_name_for_child(i) not in ("condition", "name"):
                self.walk(child)
                continue
            for name in re.findall(r"\w+", self.text(child)):
                is_torchs = ("macro", name) in ROWS and name not in NAMES and name not in self.project.macros
                if is_torchs or ("condition", name) in ROWS:
                    self.tell(child, self.text(child), ("condition", "*" if is_torchs else name))
                    self.need(name, child)

    on_preproc_ifdef = on_preproc_elif = on_preproc_if

    def on_preproc_call(self, node: Node) -> None:
        """Find an #error under a condition that no longer holds."""
        around = {self.source.line(up.start_byte) for up in above(node)}
        origins = [x.where for x in self.findings if x.kind == "condition" and x.line in around]
        if origins and re.match(r"#\s*error", self.text(node)):
            self.follow(node, "#error", origins[-1])

    def on_compound_statement(self, node: Node) -> None:
        with self.scope():
            self.children(node)

    on_if_statement = on_for_statement = on_while_statement = on_do_statement = on_compound_statement

    def on_template_declaration(self, node: Node) -> None:
        """Walk a template in a scope with its type parameters: torch may have types with the same names."""
        parameters = [x for x in part(node, "parameters").named_children if "type_parameter" in x.type]
        with self.scope() as scope:
            for x in (x for x in parameters if x.named_children):
                scope[self.text(x.named_children[0])] = Variable(self.type_of_type(part(x, "default_type")))
            if bad := self.walk(*node.children[:2]):  # the word `template`, and the parameters
                self.breaks(named(node.children[-1]), bad)
            self.walk(*node.children[2:])

    def on_namespace_definition(self, node: Node) -> None:
        name = part(node, "name")
        path = self.source.path_of(name) if name is not EMPTY else ()
        if path[:1] == ("pybind11",):
            self.tell(node, "pybind11", ("name", "pybind11"))
        with self.scope():
            self.open(path)
            self.walk(part(node, "body"))

    def on_using_declaration(self, node: Node) -> None:
        """Remove a using declaration or an alias of a namespace of torch's. Its uses are written in full."""
        path, is_alias = self.source.path_of(node.named_children[-1]), node.type == "namespace_alias_definition"
        is_stable = path[:2] in (("torch", "stable"), ("torch", "headeronly"))
        is_mine = any(name[: len(path)] == path for name in self.mine)  # the extension adds to the namespace
        own = (x for x in self.project.named["namespace", path[-1]] if x[0] in self.visible)
        before = (file is not self.source or namespace.start_byte < node.start_byte for file, namespace in own)
        if is_member(node):  # it brings a member of the base class, such as its constructors
            self.children(node)
        elif path[0] == "pybind11" or (path[0] in ROOTS and not is_stable and not is_mine):
            self.tell(node, "::".join(path) if is_alias else self.text(node).rstrip("; "), ("using", "*"))
            self.remove_line(node)
        elif is_mine and not any(before):
            self.tell(node, self.text(node).rstrip("; "), ("using", "mine"))
        elif path[0] == "std":
            self.need_header("std", path[-1] if len(path) < 3 else path[1], node)
        else:
            self.follow(node, "::".join(path), self.broken.get(path[-1], ""))

    on_namespace_alias_definition = on_using_declaration

    def on_alias_declaration(self, node: Node) -> None:
        name = named(node)
        self.done.add(name.id)
        if bad := self.walk(*node.children):
            self.scopes[-1][self.text(name)] = Variable("bad", bad.where)
            self.breaks(name, bad)

    on_type_definition = on_concept_definition = on_alias_declaration

    def breaks(self, name: Node, bad: Finding) -> None:
        """Record that a name outside of functions does not get declared, because of a finding.

        The definition of a::name declares nothing.
        """
        word, around = self.text(name).split("<")[0], {up.type for up in above(name)}
        if name is EMPTY or "qualified_identifier" in around or self.in_function(name) or word in self.broken:
            return
        self.newly_broken.setdefault(word, bad.where)
        if "field_declaration_list" in around:  # for x.name and x.name()
            self.newly_broken.setdefault(f".{word}", bad.where)

    def on_return_statement(self, node: Node) -> None:
        self.children(node)
        function = next((up for up in above(node) if up.type in ("lambda_expression", "function_definition")), EMPTY)
        if (of := "".join(map(self.type_of, node.named_children[:1]))) not in ("", "other"):
            self.project.returned.setdefault(function.id, of)

    def on_lambda_capture_initializer(self, node: Node) -> None:
        self.walk(part(node, "right"))
        self.scopes[-1][self.text(part(node, "left"))] = Variable(self.type_of(part(node, "right")))

    def on_class_specifier(self, node: Node, variables: dict[str, Variable] | None = None) -> None:
        """Read a head, then a body. If the stable ABI lacks something in the head, the names that it declares break."""
        body, name = part(node, "body"), part(node, "name")
        if name.type == "template_type" and body is not EMPTY and node.parent and node.parent.parent:
            # Constraints tell apart specialisations whose arguments are the same.
            head = b"".join(self.source.data[node.parent.start_byte : node.start_byte].split())
            key = node.parent.parent.id, head, self.signature(node)
            if key in self.specialised:
                self.tell(name, self.text(name), ("function", "twin"))
            self.specialised.add(key)
        before = len(self.findings)
        self.done.add(name.id)
        bases = next((x.named_children for x in node.children if x.type == "base_class_clause"), [])
        if "Tensor" in map(self.type_of_type, bases):
            self.tell(name, self.text(name), ("class", "tensor"))
        with self.scope() as scope:
            scope |= variables or {}
            self.walk(*part(name, "arguments").children)
            # If the initializers of a constructor lack something, compilers report only their lines.
            initial = next((x for x in node.children if x.type == "field_initializer_list"), body)
            for child in node.children:
                if child == initial and (bad := self.unsolved(before)):
                    for variable in scope.values():
                        variable.origin = variable.origin if variable.type == "bad" else bad.where
                    self.breaks(named(node), bad)
                    if "specifier" in node.type:  # without its base, a class is dropped
                        bad.end_line = max(bad.end_line, self.source.line(body.end_byte - 1))
                self.walk(child)

    on_struct_specifier = on_lambda_expression = on_class_specifier

    def on_field_declaration_list(self, node: Node) -> None:
        """Read the fields of a class before the methods, which use them."""
        self.walk(*sorted(node.children, key=lambda child: child.type == "function_definition"))

    def on_for_range_loop(self, node: Node) -> None:
        """Record the types of the variables of a loop."""
        of, right = part(node, "type"), self.type_of(part(node, "right"))
        element = right.removeprefix("Dict") if right.startswith("Dict") else self.part_of(right, "[]", "")
        if part(node, "declarator").type == "pointer_declarator":  # auto*
            element = element.removesuffix("?")
        bad = self.walk(of)
        self.done.add(of.id)
        with self.scope() as variables:
            self.declare(node, part(node, "declarator"), self.type_of_type(of) or element, bad, "")
        self.on_class_specifier(node, variables)
        origin = bad.where if bad else ""
        block = next((up for up in above(node) if up.type == "compound_statement"), EMPTY)
        rest = [x for x in block.children if x.start_byte >= node.end_byte]
        for x in (*rest[:2], *rest[-1:]):  # compilers look for the rest of the loop there
            while x.children:
                x = x.children[0]
            self.follow(x, self.text(x), origin)

    def on_function_definition(self, node: Node) -> None:
        """Read a function, or TORCH_LIBRARY(ns, m) {...} or PYBIND11_MODULE(name, m) {...}, which are parsed as one."""
        name, function = innermost(part(node, "declarator"))
        macro, parameters = self.text(name), part(function, "parameters").named_children
        kind = "pybind" if macro.startswith("PYBIND11_MODULE") else "library" if "TORCH_LIBRARY" in macro else ""
        last = self.text(parameters[-1]).split()[-1] if kind and parameters else ""
        if part(node, "type") is EMPTY and (last or (self.is_macro(macro) and macro not in NAMES)):
            with self.scope() as scope:
                scope |= {last: Variable(kind)}
                self.read_macro(name, [], at=node if kind == "pybind" else EMPTY)
                self.walk(part(node, "body"))
            return
        signature = self.signature(node)
        for source, other in self.project.named["function", macro] if "Tensor" in signature else ():
            is_before = source is self.source and other.parent == node.parent and other.start_byte < node.start_byte
            if is_before and other.type == node.type and self.signature(other) == signature:
                self.tell(name, macro, ("function", "twin"))
        around = self.text(part(name.parent or EMPTY, "scope"))
        is_template = node.parent is not None and node.parent.type == "template_declaration"
        broken = macro if macro == "operator<<" and is_template else around.split("<")[0]  # such as that of a log
        self.follow(node, f"{around}::{macro}".lstrip(":"), self.broken.get(broken, ""))
        self.on_class_specifier(node)

    def signature(self, node: Node) -> str:
        """Return the name and the parameters of a function, or the name and the arguments of a class template.

        Types of tensors that become one type are the same word in it.
        """
        declarator, field = innermost(part(node, "declarator"))[1], "parameters"
        if declarator is EMPTY:
            declarator, field = part(node, "name"), "arguments"
        text = self.text(declarator)
        for x in part(declarator, field).named_children:
            of, name = part(x, "type"), self.text(innermost(part(x, "declarator"))[0])
            if "Tensor" in (word := self.type_of_type(of)):
                text = text.replace(self.text(of), word)
            text = re.sub(rf"\b{name}\b", "", text)
        return re.sub(r"\s", "", text)

    def on_declaration(self, node: Node) -> None:
        """Record the types of variables."""
        if any(x.is_error for x in node.children) and node.type == "parameter_declaration":
            # The parser takes the x.f<T>() of A a(x.f<T>()); for a parameter.
            self.walk(self.source.parsed(*node.byte_range))
            return
        before, lost, of = len(self.findings), "", part(node, "type")
        declarators = node.children_by_field_name("declarator")
        if ("guard", key := "::".join(self.resolve(self.words(of))[1:])) in ROWS:
            parts = [y for x in declarators for y in (part(x, "value"), part(innermost(x)[1], "parameters"))]
            inner = [argument for x in parts for argument in x.named_children]
            if (inner or "parameter" not in node.type) and not self.read_guard(of, key, inner):
                self.done.add(of.id)
        self.walk(of)
        bad, declared = self.unsolved(before), self.type_of_type(of)
        for child in declarators:
            lost = self.declare(node, child, declared, bad, lost) or lost
        self.walk(*(child for child in node.children if child != of and child not in declarators))

    on_field_declaration = on_parameter_declaration = on_optional_parameter_declaration = on_declaration

    def declare(self, node: Node, declarator: Node, declared: str, bad: Finding | None, lost: str) -> str:
        """Record the variables of one declarator; return the unsolved line that they depend on, if any."""
        (name, function), scope = innermost(declarator), self.scopes[-1]
        value = (
            declarator.child_by_field_name("value") or node.child_by_field_name("value") or part(node, "default_value")
        )
        left = part(declarator, "declarator") if declarator.type == "init_declarator" else declarator
        inner = left.named_children[-1] if left.type == "reference_declarator" else left
        is_binding = inner.type == "structured_binding_declarator"
        of = self.declares(left, declared) or self.type_of(value)
        is_local, is_function = node.type == "declaration", function is not EMPTY
        is_head = is_function and not self.in_function(name)  # without T, compilers drop f(T x), or take an int
        in_branch = node.parent is not None and node.parent.type.startswith("preproc_")  # in an #if or #else
        words, alone = {self.text(x) for x in node.children}, len(node.children_by_field_name("declarator")) == 1
        # Each branch of an #if may declare other options, and other files may use those that are in no function.
        is_alone = is_local and alone and not in_branch and self.in_function(name)
        may_go = is_alone and not must_run_once(value.text or b"")
        names = [self.text(x) for x in (inner.named_children if is_binding else [name] * (name is not EMPTY))]
        types = [of] * len(names)
        if is_binding:
            same = "Tensor" if of == "Tensor" or TUPLE.match(of) else ""
            types = inside if len(inside := elements(of)) == len(names) else [same] * len(names)
        elif is_function and not is_local:
            names = []
        elif is_head:  # not in a function, where Tensor x(y); is parsed as a function, too
            types = ["function"]
        elif of == "options" and may_go and names and self.read_options(value) is not None:
            scope[names[0]] = Variable("options", options=value, unused=node)
            if bad:
                del self.findings[self.findings.index(bad) :]  # with the lines that follow from it
            return ""
        elif of == "" and value is EMPTY and node.type not in UNTYPED and not is_function:
            types = ["other"] * len(names)
        constant = node.type == "field_declaration" or "const" in words  # a method may be const
        is_auto = declared == "" or part(node, "type").type == "placeholder_type_specifier"
        constant |= left.type == "reference_declarator" and is_auto  # auto& may be const, too
        for word, of in zip(names, types, strict=False):
            origin = scope[word].origin if in_branch and word in scope else ""
            scope[word] = Variable("bad" if bad else of, bad.where if bad else origin, constant)
        found = self.walk(declarator)
        if value.type in ("lambda_expression", "call_expression") and types in ([""], ["other"]) and not bad:
            scope[names[0]].type = self.type_of(value)  # a lambda is read by now
        is_constexpr = is_local and "constexpr" in words
        is_fixed = is_head or declarator.type == "array_declarator" or ("const" in words and declared == "int")
        guessed = found.where if found and (declared == "" or not is_local or is_constexpr or is_fixed) else ""
        if bad := bad or (found if is_head or is_constexpr else None):
            self.breaks(name, bad)
        for word in names if is_head or not is_function else ():  # after an error, compilers skip the rest
            scope[word].origin = scope[word].origin or lost or guessed
        return found.where if found else ""

    def read_includes(self) -> None:
        """Replace the first of torch's includes by the headers that are needed, and remove the others."""
        data, includes, tops = self.source.data, self.source.includes, {"translation_unit", "ERROR"}
        plain = {node: name for node, name in includes if {up.type for up in self.source.above(node)} <= tops}
        mine = {*plain.values(), *(name for _, name in includes if f"<{name}".startswith(OPTIONAL))}
        others = [(node, x) for node, x in includes if not self.project.included[x]]  # c10/mine.h is the extension's
        torch = [(node, x) for node, x in others if HEADER.match(x) and not x.startswith(STABLE)]
        for node, name in plain.items():
            self.keep(name, node)
        had_torch = any(file.uses_torch for file in self.project.around[self.source])
        some = sorted(x for x in self.headers if x.strip("<>") not in mine and (had_torch or x.startswith("<torch/")))
        code = [f"#include {x}" if self.headers[x] else f"#if __has_include({x})\n#include {x}\n#endif" for x in some]
        first = next((node for node, name in torch if node in plain and name != "Python.h"), None)
        for node, name in torch:
            if name != "Python.h" and not name.startswith("numpy/"):
                self.tell(node, name, ("header", "*"), to=", ".join(some) if node == first else "")
                self.remove_line(node)
            elif not self.limited:
                self.tell(node, name, ("name", "Python.h"))
        if code:
            at = self.end_of_head() if first is None else data.rfind(b"\n", 0, first.start_byte) + 1
            block = "".join(f"{lines}\n" for lines in code).encode()
            self.edits.append((at, at, [block.replace(b"\n", b"\r\n") if b"\r\n" in data else block]))

    def end_of_head(self) -> int:
        """Return where the line of the last include, or of the include guard, before the code ends."""
        data, end = self.source.data, len(BOM) * self.source.data.startswith(BOM)
        tops = [self.source.root, *(x for x in self.source.guards if x.parent == self.source.root)]
        for top in tops:
            nodes = (x for x in top.named_children if x != part(top, "name"))
            for x in itertools.takewhile(lambda x: x.type == "comment" or x.type.startswith("preproc_"), nodes):
                if HEAD.match(data, x.start_byte):
                    end = data.find(b"\n", x.end_byte - 1) + 1 or len(data)
        return end
