"""Calls of methods, of macros and of torch's functions, calls that register operators, and operators of tensors.

Calls that make tensors take their options one by one::

    auto options = x.options().dtype(kLong);    // removed, if every use is rewritten
    auto y = torch::zeros({n}, options);

    auto y = torch::stable::new_zeros(x, {n}, torch::headeronly::ScalarType::Long);
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from . import _table as table
from ._findings import before_dot
from ._names import UNKNOWN, Variable, Word
from ._source import EMPTY, ROOTS, Node, above, innermost, part
from ._table import ATEN, NAMES, RARE, ROWS, WORDS
from ._types import Types

Options = dict[str, list[Node]]  # keys: options (a tensor that has them), dtype, device (the arguments of each)
DEFAULTS = {"requires_grad": "false", "layout": "kStrided"}
WIDE = {"int": "int64_t, as the schema's int is", "float": "double, as the schema's float is"}
BOXED = ("pointer_expression", "identifier", "qualified_identifier", "template_function")
STRING = re.compile(r'R"\((.*?)\)"|"((?:[^"\\]|\\.)*)"', re.DOTALL)
# The first matches py::arg("x") = 1 and "x"_a = 1, the second the default values that a schema can have, too.
ARGUMENT = re.compile(r'(?:\barg\(\s*"(\w+)"\s*\)(?:\.\w+\(\w*\))*|"(\w+)"_a)\s*(?:=\s*(.+))?$', re.DOTALL)
DEFAULT = re.compile(r'(true|false|-?\d[\d.e+-]*|"[^"\\]*")f?|.*\bnone\(\)|.*\bnullopt')
SCHEMA = re.compile(r"(\b(Tensor|int|float|bool|str|Scalar|ScalarType|Device)\b|[][(), ?])+")
LOOPS = ("for_statement", "for_range_loop", "while_statement", "do_statement")
# Code after which one of the names may have another value. It has the same value after x = x.contiguous().
CHANGED = (
    r"(?<!\w)(NAMES)\s*(\+\+|--|[-+*/%&|^]?=(?!=)(?!\s*\1\.contiguous\())"
    r"|(\+\+|--)\s*(NAMES)(?!\w)|\b(move|swap|tie)\([^;]*(?<!\w)(NAMES)(?!\w)"
)
CONST_POINTER = re.compile(  # const T* p = x, or const T* p = condition ? x : x
    rb"\bconst\b[^;{}()]*\*\s*(?:(?:const|__restrict__|__restrict)\s+)?\w+\s*=\s*"
    rb"(?:(?:[^;{}()]|\([^()]*\))*[?:]\s*)?$"
)
USING = re.compile(rb"\busing\s+(\w+)\s*=\s*$")
CHECK = re.compile(r"^\w*(CHECK|ASSERT|ERROR)\w*$")
LARGE = re.compile(  # an integer that no double has: torch::stable::full and fill_ take a double
    r"\b(U?INT64|U?LL?ONG)_MAX\b|\d{16}|numeric_limits<(?! *(float|double|int|u?int(8|16|32)_t) *>)[^()]*>::max\b"
)
DEVICE_OF = re.compile(rb"(?:\w+::)*device_of\(([\s\S]+)\)$")
OPERATORS = frozenset("+ - * / % ! ~ == != < > <= >= & | ^ << >> += -= *= /= %= &= |= ^=".split())  # noqa: SIM905
FLOAT = re.compile(r"-?\d*\.")
OF_OPTIONS = {"device", "device type", "dtype", "options", "ScalarType"}  # types that only torch's functions take
UNPRINTABLE = {"sizes", "device", "device type", "layout"}


class Calls(Types):
    """Rewrites or reports calls and operators."""

    def on_call_expression(self, node: Node) -> None:
        function, arguments = part(node, "function"), part(node, "arguments")
        name, inner = self.text(function), [x for x in arguments.named_children if x.type != "comment"]
        is_macro = function.type == "identifier" and self.is_macro(name)
        is_check = CHECK.search(name) is not None
        for word in inner[is_macro:] if is_check and (is_macro or name in self.project.macros) else ():
            of = self.printed(word)
            if of in UNPRINTABLE or of == "options" or (is_macro and (of == "Tensor" or of.endswith("[]"))):
                self.tell(node, self.text(word), ("operator", "message"))
        self.done |= {word.id for i, word in enumerate(inner) if (name, i) in self.project.pasted}
        registers, before = ".impl(" in self.project.macros.get(name, ""), len(self.findings)
        for word in inner if registers else ():
            self.read_boxed(word)
        if function.type == "field_expression":
            self.read_member(node, function, inner)
        elif is_macro:
            self.read_macro(function, inner, node)
        else:
            if function.type == "call_expression" or self.variable(name) is not UNKNOWN:
                self.follow(node, name, self.broken.get("operator()", ""))
            self.read_function(node, function, inner)
        self.walk(arguments)
        if registers and (bad := self.unsolved(before)):  # compilers may report it in the macro
            self.newly_broken[f"in {name}"] = bad.where

    def printed(self, node: Node) -> str:
        """Return the type of what is printed: in a macro or a template, x.sizes() is a tensor's."""
        return self.type_of(node) or WORDS["Tensor"].get(self.text(part(part(node, "function"), "field")), "")

    def read_function(self, node: Node, function: Node, inner: list[Node]) -> None:
        """Replace a call of torch's function: with its arguments if the table's code uses them, else only the name."""
        words = self.words(function)
        full, name = self.resolve(words, called=True), words[0].text
        is_mine = self.is_declared(name) or name in self.project.macros or self.variable(name) is not UNKNOWN
        is_plain = function.type in ("identifier", "template_function") and not name.endswith("_cast")
        if is_plain and not (full or is_mine):
            if inner and ("at", name) in self.mine and not self.project.named["method", name]:  # found through them
                self.apply(ROWS["function", "mine"][0], words[0].node, name, inner=[words[0].node])
            elif self.is_of_tensors(name, inner):
                full = ("at", name)
        key = "::".join(full[1:])
        if not key or full[0] not in ROOTS:
            self.walk(function)
        elif ("factory", key) in ROWS:
            self.read_factory(node, function, key, inner)
        elif row := table.find(self.places(key, inner[1:]), None, 0, self.target):
            self.apply(row, function, "::".join(full))
        elif ("guard", key) not in ROWS or self.read_guard(function, key, inner):
            self.read_name(function, full, node, inner)

    def is_of_tensors(self, name: str, inner: list[Node]) -> bool:
        """Tell from the types of the arguments whether a function without a prefix is torch's."""
        types = {self.type_of(x) for x in inner}
        if types & OF_OPTIONS:
            return not name.isupper() and not any((kind, name) in ROWS for kind in ("std", "c"))
        return bool((table.operator_of(name) or ("name", name) in ROWS) and types & {"Tensor", "Tensor[]"})

    def read_guard(self, kind: Node, key: str, inner: list[Node]) -> bool:
        """Pass the index of a device to a guard, which takes no device. Return whether its type can be replaced."""
        if ROWS["guard", key][0].how != "mechanical":
            return True
        fits = bool(inner)
        for argument in inner:
            # The parser takes Guard guard(device); for a function, whose parameter has the type `device`.
            of = self.type_of(part(argument, "type") if argument.type == "parameter_declaration" else argument)
            if match := DEVICE_OF.match(self.source.data, *argument.byte_range):
                self.done |= {part(argument, x).id for x in ("function", "type")}  # parsed as a call, or as a parameter
            if match or of == "device" or self.text(argument).endswith(".device()"):
                span, to = (match.span(1), b".get_device_index()") if match else (argument.byte_range, b".index()")
                self.edits.append((*argument.byte_range, [*before_dot(self.source.data[slice(*span)], span), to]))
            elif of == "device?" or argument.type == "initializer_list":
                fits = False
        if not fits:
            self.tell(kind, self.text(kind), ("guard", "*"))
        return fits

    def read_member(self, node: Node, function: Node, inner: list[Node]) -> None:
        """Rewrite or report a method call on a tensor, a library or a stream."""
        this, field = part(function, "argument"), part(function, "field")
        (*scope, word), of = self.words(field), self.type_of(this)
        name = word.text
        if name == "impl" and len(inner) > 1 and not self.project.named["method", name]:
            of = of or "library"  # in a macro or a template, whose parameter is the library
        if of in ("library", "pybind"):
            self.walk(this)
            self.read_library(node, of, name, inner)
            self.done.add(part(node, "arguments").id)
            return
        called = part(this, "function")
        tensor, before = part(called, "argument"), f"{self.text(part(called, 'field'))}()"
        if self.type_of(tensor) in ("", "Tensor") and (row := ROWS.get((before, name))):  # x.type().is_cuda()
            this = tensor
            self.apply(row[0], node, f"{before}.{name}()", inner=inner, this=this, at=field)
        elif not scope and self.is_of_tensor(of, word, function):
            self.read_method(node, this, field, inner)
        elif of == "" and (name in RARE or (name in ATEN and any(map(self.is_option, inner)))):
            self.tell(field, f"x.{name}()", ("method", "mine"))
        elif of == "options" and self.read_options(node) is not None:
            pass  # rewritten where the options are used
        elif row := ROWS.get((of, name)) or ROWS.get((of, "*")):
            self.apply(row[0], node, f"{of}.{name}()", inner=inner, this=this, at=field)
        elif field.type == "field_identifier":
            self.walk(field)
            if self.project.named["method", name] and name not in WORDS["common"]:
                self.follow(field, name, self.broken.get(f".{name}", ""))
        self.walk(this, *word.template)

    def is_of_tensor(self, of: str, word: Word, function: Node) -> bool:
        """Tell whether a method is a tensor's, from the type of the object or, if that is unknown, from its name."""
        is_arrow = function.children[1].type != "."
        if of and not (of == "(Tensor, ...)" and is_arrow):  # a pointer of the extension's own
            return of == "Tensor" or (of == "Tensor?" and is_arrow)
        name, named = word.text, self.project.named
        is_mine = named["template method", name] or (not word.template and named["method", name])
        return name in RARE and not is_mine

    def is_option(self, node: Node) -> bool:
        return self.type_of(node) in OF_OPTIONS or bool(self.read_options(node))

    def read_method(self, node: Node, this: Node, field: Node, inner: list[Node]) -> None:
        """Rewrite or report a method call on a tensor."""
        ((_, name, template, _),) = self.words(field)
        what = f"x.{name}()"
        count = None if "options" in map(self.type_of, inner) else len(inner)
        keys = self.places(name, inner, node) + [("const method", name)] * self.may_be_constant(this)
        keys += [("method", f"{name}<{self.text(x)}>") for x in template]  # such as item<int>
        row = table.find([*keys, ("method", name)], count, len(template), self.target)
        if row is None:
            if f"torch::stable::Tensor::{name}" not in NAMES:
                self.tell(field, what, self.without("method", ("at", name)))
            return
        to = row.to
        if re.search(r"\bconst\b", "".join(map(self.text, template[:1]))):  # x.data_ptr<const T>()
            template = [*template, part(template[0], "type")]
            to = re.sub(r"\w+_data_ptr<\$T1>", f"const_data_ptr<$T{len(template)}>", to)
        if field.type == "dependent_name":  # x.template data_ptr<T>()
            to = re.sub(r"(\$self\.)(\w+<)", r"\1template \2", to)
        if field.prev_sibling is not None and field.prev_sibling.type == "->":
            to = to.replace("$self.", "$self->") if "$self." in to else to.replace("$self", "*$self")
        self.apply(dataclasses.replace(row, to=to), node, what, inner=inner, template=template, this=this, at=field)

    def may_be_constant(self, this: Node) -> bool:
        """Tell whether an object may be const: a variable may be in a method, and a lambda's copies are."""
        lambdas = {self.text(part(up, "captures")) for up in above(this) if up.type == "lambda_expression"}
        variable = self.variable(self.text(this))
        return variable is UNKNOWN or variable.constant or not lambdas <= {"[&]", "[]"}

    def places(self, name: str, inner: Sequence[Node], call: Node = EMPTY) -> list[tuple[str, str]]:
        """Return the keys of rows for arguments and places in the code that the usual replacement does not fit."""
        around = call.parent or EMPTY
        if around.type == "return_statement":
            around = next((up for up in above(call) if part(up, "declarator") is not EMPTY), EMPTY)
        is_dispatch = "DISPATCH" in self.text(part(around.parent or EMPTY, "function"))
        before = self.source.data[max(call.start_byte - 200, 0) : call.start_byte]
        kinds = [f"with {of}" for x in inner for of in (self.type_of(x), x.type)]
        kinds += ["with large"] * (("with large", name) in ROWS and any(map(self.is_large, inner)))
        kinds += ["in dispatch" if is_dispatch else f"in {part(around, 'declarator').type}"]
        kinds += ["for const pointer"] * (CONST_POINTER.search(before) is not None)
        return [(kind, name) for kind in kinds]

    def read_factory(self, node: Node, function: Node, name: str, inner: list[Node]) -> None:
        """Rewrite a call, or report it if its options have more than those of a tensor, a dtype and a device."""
        count = 2 if name == "full" else 1
        options = self.read_options(inner[count]) if len(inner) == count + 1 else None if inner[count:] else {}
        if options is None or len(inner) < count or self.makes_integers(name, inner, options):
            self.tell(function, f"torch::{name}", ("factory", name))
            return
        like, device = options.get("options", [EMPTY])[0], options.get("device", [])
        row = (ROWS.get(("make like" if "options" in options else "make", name)) or ROWS["make", name])[0]
        dtype, to = "$dtype" if "dtype" in options else "std::nullopt", "$device" if device else ""
        if len(device) == 2 or (device and device[0].type in ("qualified_identifier", "string_literal")):
            to = "torch::stable::Device($device)"
        if "options" in options and "$self" not in row.to:
            dtype, to = dtype.replace("std::nullopt", "$self.scalar_type()"), to or "$self.device()"
        rest = f", {dtype}, std::nullopt, {to}" if to else f", {dtype}" if dtype != "std::nullopt" else ""
        row = dataclasses.replace(row, to=row.to.replace("$options", rest))
        self.apply(row, node, f"torch::{name}", inner=inner, this=like, dtype=options.get("dtype", []), device=device)
        for word in (word for words in options.values() for word in words):
            self.walk(word)
            self.done.add(word.id)
        self.done |= {argument.id for argument in inner[count:]}

    def makes_integers(self, name: str, inner: list[Node], options: Options) -> bool:
        """Tell whether full(size, 1) takes its dtype from the 1, or takes an integer that is too large for a double."""
        known = options.keys() & {"dtype", "options"}
        return name == "full" and (self.is_large(inner[1]) or not (known or FLOAT.match(self.text(inner[1]))))

    def is_large(self, node: Node) -> bool:
        """Tell whether a number, or any value that this file or a macro gives to its name, is a large integer."""
        name = self.text(node)
        code = self.text(self.source.root) if node.type == "identifier" else ""
        values = re.findall(rf"\b{name}\s*[=({{]([^;]*)", code)
        return any(map(LARGE.search, [name, self.project.macros.get(name, ""), *values]))

    def read_options(self, node: Node) -> Options | None:
        """Return the parts of a TensorOptions, or None if it has other parts or its value is unknown."""
        function, inner = part(node, "function"), part(node, "arguments").named_children
        this, name = part(function, "argument"), self.text(part(function, "field"))
        if value := self.value_of(node):
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
        is_own = name == "layout" and "options" in options  # the tensor may be sparse
        is_default = this is not EMPTY and self.text(inner[0]).endswith(DEFAULTS.get(name, "?")) and not is_own
        return options if is_default else None

    def value_of(self, node: Node) -> Node | None:
        """Return the initial value of a variable with options, unless a name in it may have another value here."""
        name, hidden = self.text(node), set[str]()
        for scope in reversed(self.scopes):
            if name in scope:
                break
            hidden |= scope.keys()
        if (value := scope.get(name, UNKNOWN).options) is None:
            return None
        names = {name, *re.findall(r"\w+", self.text(value))}
        loops = (up for up in above(node) if up.type in LOOPS and up.start_byte > value.end_byte)
        end = max((loop.end_byte for loop in loops), default=node.start_byte)  # a loop comes back to what is before it
        since = self.source.data[value.end_byte : end].decode("utf-8", "surrogateescape")
        return None if hidden & names or re.search(CHANGED.replace("NAMES", "|".join(names)), since) else value

    def read_library(self, node: Node, kind: str, name: str, inner: list[Node]) -> None:
        """Read m.def(...) and m.impl(...) of a library, or m.def(...) of a pybind11 module."""
        texts = STRING.findall(self.text(inner[0])) if inner else []
        literal = "".join(raw or re.sub(r"\\\n\s*", "", text) for raw, text in texts)
        has_schema, count = "(" in literal, len(inner)
        if kind == "pybind":
            if name == "def" and literal and count > 1:
                said = filter(None, map(ARGUMENT.search, map(self.text, inner[2:])))
                schema = self.schema_of(literal, inner[1], [(x[1] or x[2], x[3] or "") for x in said])
                takes, _, returns = schema.rpartition("->")
                writes = "Tensor" in takes and "!" not in takes and "Tensor" not in returns  # or it does nothing
                to = schema and f'm.def("{schema}")' + ", with Tensor(a!) for a tensor that it writes" * writes
                self.tell(node, f'm.def("{literal}")', ("library", "pybind_def"), to=to)
            return
        if name == "impl" and count == 2:
            self.read_impl(inner.pop())
        elif name == "impl":
            self.tell(node, "m.impl(name, key, f)", ("library", "impl_key"))
        elif name == "def" and count == 2 and has_schema and inner[1].type == "initializer_list":
            if self.target < "2.12":
                self.tell(node, "m.def(schema, tags)", ("library", "def_tags"))
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
            self.tell(function, "m.impl()", ("library", "impl_lambda"))
        self.walk(inner)

    def read_boxed(self, function: Node) -> None:
        """Report a function that cannot be boxed."""
        text = self.text(function)
        for source, node in self.project.named["function", re.sub(r".*\(|[&\s)]", "", text).split("::")[-1]]:
            parameters = part(innermost(part(node, "declarator"))[1], "parameters").named_children
            types = [self.in_file(source, x).type_of_type(part(x, "type")) for x in parameters]
            is_reference = part(node, "declarator").type == "reference_declarator"
            if "sizes" in types or is_reference or "&" in source.text(part(node, "type")):
                self.tell(function, text, ("library", "boxed"))
                break

    def schema_of(self, name: str, function: Node, said: Sequence[tuple[str, str]] = ()) -> str:
        """Return the schema of a function from its declarations, and report parameters that a schema makes wider.

        ``said`` has the names and the defaults of the arguments, if the binding says them.
        """
        target, found = self.text(function).lstrip("&").split("::")[-1].split("<")[0], list[str]()
        for source, node in self.project.named["function", target]:
            other = Calls(source, self.project, self.target)
            if schema := other.schema(name.split("::")[-1], node, list(said)):
                self.findings += [x for x in other.findings if x.how != "follows"]
                found.append(schema)
        self.schemas += found[:1]
        return "".join(found[:1])

    def schema(self, name: str, node: Node, said: list[tuple[str, str]]) -> str:
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
            inner, value = said.pop(0) if said else (inner, "")
            if match := DEFAULT.fullmatch(value):
                value = {"true": "True", "false": "False", None: "None"}.get(match[1], match[1])
            words.append(f"{kind} {inner}" + f"={value if match else '...'}" * bool(value))
        return f"{name}({', '.join(words)}) -> {returns}" if returns and parameters.parent else ""

    def in_schema(self, node: Node) -> str:
        """Return the type that a schema has for a declaration, or ""."""
        word = self.type_of_type(part(node, "type")).replace("sizes", "int[]").replace("device", "Device")
        return word if SCHEMA.fullmatch(word) else ""

    def on_binary_expression(self, node: Node) -> None:
        """Find x + y, x += y and -x, which the stable ABI lacks, and values that a stream cannot print."""
        operator, right = part(node, "operator"), part(node, "right")
        sides = ("left", "right") if node.type == "binary_expression" else ("left", "argument")
        symbol, types = self.text(operator), {self.type_of(part(node, x)) for x in sides}
        if symbol in OPERATORS and ("Tensor" in types or ("Tensor[]" in types and symbol != "<<")):
            told = self.tell(operator, f"{symbol}x" if right is EMPTY else f"x {symbol} y", ("operator", "+"))
            self.newly_broken |= {"operator<<": told.where} if symbol == "<<" else {}
        elif symbol == "<<" and self.printed(right) in UNPRINTABLE:
            self.tell(operator, f"<< {self.text(right)}", ("operator", "<<"))
        self.children(node)

    on_unary_expression = on_binary_expression

    def on_assignment_expression(self, node: Node) -> None:
        """Find x[i] = y and x.f() = y, and using x = y; in the arguments of a macro."""
        left, before = part(node, "left"), len(self.findings)
        slices = {"subscript_expression": left, "call_expression": part(left, "function")}
        if self.type_of(part(slices.get(left.type, EMPTY), "argument")) == "Tensor":
            self.tell(left, "x[i] = y", ("operator", "[]="))
            self.done.add(left.id)
        self.on_binary_expression(node)
        start, end = max(node.start_byte - 9, 0), part(node, "right").start_byte
        if (alias := USING.search(self.source.data, start, end)) and (bad := self.unsolved(before)):
            self.scopes[-1][alias[1].decode()] = Variable("bad", bad.where)

    def on_subscript_expression(self, node: Node) -> None:
        """Write x[i] of a tensor as a select."""
        this, indices = part(node, "argument"), part(node, "indices").named_children
        row = table.find([*self.places("[]", indices), ("operator", "[]")], 1, 0, self.target)
        if row and self.type_of(this) == "Tensor" and len(indices) == 1:
            self.apply(row, node, "x[i]", inner=indices, this=this)
        self.children(node)
