"""The type of an expression, by its name in a schema, such as Tensor, Tensor[], int? or (Tensor, Tensor).

Types that schemas lack have our own words: sizes, options, dtype, layout, device, device type, stream, library, pybind,
other; "" is unknown. ``words.csv`` has the words for C++ types, and for the results of a tensor's methods.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ._findings import ELEMENT
from ._names import UNKNOWN, Names
from ._source import ROOTS, Node, Source, above, below, part
from ._table import ATEN, RARE, ROWS, WORDS

# The types in a tuple, a pair or a map, such as (other, Tensor[]) or Dict(str, (int, Tensor)), and each one of them.
TYPES = re.compile(r"(?:Dict)?\((.*[^(])\)\??")
EACH = re.compile(r"(?:\((?:[^()]|\([^()]*\))*\)|[^(),])+")
ITERATORS = ("begin", "end", "cbegin", "cend", "rbegin", "rend", "find")
LITERALS = ("true", "false", "sizeof_expression")
CHAINED = ("Tensor", "options", "library", "pybind")  # most of their methods return an object of the same type
TUPLE = re.compile(r"\((?:[^()]*, )?Tensor[,)]")  # a tuple with a Tensor among its own elements
TORCHS = re.compile(r"Tensor|sizes|options|device|stream")


def elements(of: str) -> list[str]:
    """Return the types in a tuple, a pair or a map, or [] if they are unknown, as in (Tensor, ...)."""
    found = TYPES.fullmatch(of)
    return [x.strip() for x in EACH.findall(found[1])] if found and of != "(Tensor, ...)" else []


class Types(Names):
    """Finds the type of an expression."""

    def type_of(self, node: Node) -> str:
        match node.type:
            case "identifier" | "type_identifier":
                variable = self.variable(name := self.text(node))
                fields = [x for x in self.project.named["field", name] if x[0] in self.visible]
                of = variable.type if variable is not UNKNOWN else self.agreed(fields).replace("other", "")
                return of or self.stands_for("macro", name, self.visible)
            case "pointer_expression" if self.text(node).startswith("&"):
                of = self.type_of(part(node, "argument"))
                return f"{of}?" if "Tensor" in of else "other"
            case "subscript_expression" | "pointer_expression":
                operator = "[]" if node.type == "subscript_expression" else "*"
                return self.part_of(self.type_of(part(node, "argument")), operator, "")
            case "binary_expression":
                sides = (self.type_of(part(node, "left")), self.type_of(part(node, "right")))
                is_tensor = "Tensor" in sides and self.text(part(node, "operator")) not in ("<<", "&&", "||")
                return "Tensor" if is_tensor else "other"
            case "field_expression":
                of, name = self.type_of(part(node, "argument")), self.text(part(node, "field"))
                if name in ("first", "second") and len(pair := elements(of)) == 2:
                    return pair[name == "second"]
                fields = self.project.named["field", name]
                if of == "(Tensor, ...)" and any(map(self.returns_parameter, fields)):  # the T x of Box<Tensor>
                    return "Tensor"
                return self.agreed(fields) if fields or self.uses_torch else "other"
            case "call_expression":
                return self.type_of_call(part(node, "function"), part(node, "arguments").named_children)
            case "initializer_list":
                return "Tensor[]" if "Tensor" in map(self.type_of, node.named_children) else ""
            case "parenthesized_expression" | "assignment_expression" | "unary_expression" | "conditional_expression":
                return next(filter(None, map(self.type_of, node.named_children[-2:])), "")
            case "lambda_expression":
                return f"{of}()" if (of := self.returned(node)) else "other"
            case "cast_expression":
                return self.type_of_cast(part(node, "type"))
            case "new_expression":
                return f"{of}?" if "Tensor" in (of := self.type_of_type(part(node, "type"))) else "other"
            case kind:
                return "other" if kind.endswith("_literal") or kind in LITERALS else ""

    def type_of_cast(self, node: Node) -> str:
        return self.declares(part(node, "declarator"), self.type_of_type(node))

    def returned(self, node: Node) -> str:
        """Return the type that a function or a lambda says that it returns, or that a return statement in it has."""
        said = [x for x in below(part(node, "declarator")) if x.type == "trailing_return_type"]
        return self.type_of_type(said[0].named_children[0]) if said else self.project.returned.get(node.id, "")

    def type_of_call(self, function: Node, arguments: Sequence[Node]) -> str:
        """Return the type that a call returns."""
        if function.type == "lambda_expression":
            return self.type_of(function).removesuffix("()").replace("other", "")
        is_method = function.type == "field_expression"
        words = self.words(part(function, "field") if is_method else function)
        name, template = words[-1].text, words[-1].template
        declarations = self.project.named["method" if is_method else "function", name]
        if len(template) == 1 and not declarations and TORCHS.match(cast := self.type_of_cast(template[0])):
            return self.type_of_type(function) if name in WORDS["template"] else cast
        if is_method:
            of = self.type_of(part(function, "argument"))
            own = declarations or self.project.named["field", name]  # a method, or a std::function
            if of in ("", "other", "int", "float", "bool") and own:  # m.at(i) of a map is not their own at()
                return self.agreed(own).removesuffix("()")
            of = "Tensor" if not of and name in RARE else of
            of = of.removesuffix("?") if function.children[1].type == "->" else of
            if of == "(Tensor, ...)" and any(map(self.returns_parameter, declarations)):  # T get(), of Box<Tensor>
                return "Tensor"
            if name in ITERATORS and "Tensor" in of:
                return f"{of.removesuffix('[]')}?" if of.endswith("[]") else of
            unknown = "" if "Tensor" in of or not of else "other"  # a method on tensors may return one of them
            return self.part_of(of, name, of if of in CHAINED else unknown)
        inner = [self.type_of(x) for x in arguments]
        full = self.resolve(words, called=True) or ("",)
        if full[0] == "std":
            first, makes_tuple = next(iter(inner), ""), name in ("make_tuple", "tie", "make_pair") and "Tensor" in inner
            cast = self.type_of_type(template[0]) if template else ""
            inside, which = {str(n): of for n, of in enumerate(elements(first))}, "".join(map(self.text, template))
            got = inside.get(which, "Tensor" if TUPLE.match(first) else "")
            known = {"move": first, "forward": first, "declval": cast, "get": got}
            made = f"({', '.join(x or 'other' for x in inner)})" if makes_tuple else ""
            return known.get(name, made or ("other" if {*inner} <= {"other"} else ""))
        if full[0] in ROOTS:
            is_tensor = full[:2] == ("torch", "stable") or name in ATEN or ("factory", name) in ROWS
            returned = "other" if WORDS["Tensor"].get(name) == "other" else "Tensor"
            return WORDS["function"].get(name, returned if is_tensor else "")
        variable = self.variable(name)
        if variable is not UNKNOWN and variable.type != "function":  # a std::function, or a lambda
            return variable.type.removesuffix("()") if variable.type.endswith("()") else ""
        if declarations:
            return self.agreed(declarations)
        return "Tensor" if "Tensor" in inner and name in ATEN & RARE else ""

    def returns_parameter(self, declaration: tuple[Source, Node]) -> bool:
        """Tell whether a method returns a type that is a parameter of the template around it."""
        source, node = declaration
        around = (source.text(part(up, "parameters")) for up in above(node) if up.type == "template_declaration")
        return any(source.text(part(node, "type")) in re.findall(r"\w+", parameters) for parameters in around)

    def part_of(self, of: str, name: str, default: str) -> str:
        """Return the type that a method or an operator of a type returns."""
        if name in ("[]", "at") and len(pair := elements(of)) == 2:
            return pair[1]
        if name in ELEMENT and of.endswith(("[]", "?")):
            return of.removesuffix("?") if of.endswith("?") else of.removesuffix("[]")
        return WORDS[of].get(name, default)

    def type_of_type(self, node: Node) -> str:
        """Return the word for a type: the schema's, if schemas have it."""
        words = self.words(node.child_by_field_name("type") or node)
        if node.type in ("placeholder_type_specifier", "auto", "decltype"):
            return ""
        if len(words) == 1 and (parameter := self.variable(words[0].text)) is not UNKNOWN:  # of a template
            return "Tensor" * (parameter.type == "Tensor")
        full = self.resolve(words)
        name = full[-1] if full else words[-1].text
        if name in ("Tensor", "Variable", "TensorBase") and full:
            return "Tensor"
        if name in WORDS["type"] and (full or not self.is_declared(name)):
            return WORDS["type"][name]
        if self.project.named["type", name]:
            return self.stands_for("type", name)
        around = [self.type_of_type(x) for word in words[:-1] for x in word.template]
        if "Tensor" in around:
            return "Tensor?" if name.endswith("iterator") else ""  # of std::vector<Tensor>::iterator
        inner = [self.type_of_cast(x) for x in words[-1].template]
        form = WORDS["template"].get(name, "(Tensor, ...)")
        if form in ("Tensor[]", "Tensor?") and "Tensor" in (first := next(iter(inner), "")):  # an array of arrays
            return form.replace("Tensor", first)
        inner = inner[: 99 if form in ("({})", "(Tensor, ...)") else 2 if "Dict" in form else 1]
        has_tensors = any("Tensor" in x for x in inner)
        is_known = has_tensors or (inner and not {"", "other"} & set(inner))
        if "Tensor" in inner or (is_known and "{}" in form):
            return form.format(", ".join(x or "other" for x in inner))
        return "" if has_tensors else "other"

    def stands_for(self, kind: str, name: str, files: Sequence[Source] = ()) -> str:
        """Return the type that an alias stands for, or the type of the expression that a macro stands for."""
        found, of = self.project.named.pop((kind, name), []), ""  # popped: in using A = b::A, b::A is no alias
        for source, node in [x for x in found if x[0] in (files or (x[0],))][:1]:
            there = self.in_file(source, node)
            of = there.type_of(node) if kind == "macro" else there.type_of_type(part(node, "type"))
        self.project.named[kind, name] = found
        return of

    def agreed(self, declarations: Sequence[tuple[Source, Node]]) -> str:
        """Return the type that all declarations of a name have, the nearest first, or "" if they differ."""
        found, here = set[str](), [x for x in declarations if x[0] is self.source]
        for source, node in here or [x for x in declarations if x[0] in self.visible] or declarations:
            there = self.in_file(source, node)
            of = there.type_of_type(part(node, "type")) or there.returned(node)
            found.add(self.declares(part(node, "declarator"), of))
        plain = found and all(found) and not any(map(TORCHS.search, found))  # the types differ, but none is torch's
        return found.pop() if len(found) == 1 else "other" if plain else ""

    def declares(self, declarator: Node, of: str) -> str:
        """Return the type that a declarator makes from another one: an array or a pointer."""
        shapes = {"array_declarator": "[]", "pointer_declarator": "?"}
        while "Tensor" in of and (shape := shapes.get(declarator.type.removeprefix("abstract_"))):
            of, declarator = of + shape, part(declarator, "declarator")
        return of

    def in_file(self, source: Source, node: Node) -> Types:
        """Return an object that resolves the names at a node of another file of the project."""
        other = Types(source, self.project, self.target)
        other.here = source.around(node)
        return other
