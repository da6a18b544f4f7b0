"""The walk over a file, and what a name means: a variable, or a name of the extension or of torch."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from . import _table as table
from ._findings import Finding, Findings
from ._source import EMPTY, ROOTS, Node, Path, above, part
from ._table import ATEN, NAMES, ROWS, Row

MACRO = re.compile(r"(AT|ATEN|C10D?|CAFFE2?|PYBIND11|THC?|THO|(STD_)?TORCH|STD_CUDA)_(DE(CLAR|FIN)E_\w+|[A-Z0-9_]+)$")
GLOBAL = re.compile(r"THC?[A-Z][a-z]|\w+PackedParamsBase$|python_error$")  # they are in no namespace
FACTORY = re.compile("rand(n|int|perm)$|arange$|linspace$|logspace$|eye$")  # torch's functions without tensors
END_OF_LINE = re.compile(rb"(?:\(\))?[ \t]*(?://.*)?\r?\n")
STREAMED = re.compile(rb"\s*<<(?!<)")
ELSE = re.compile(rb"(?:[\s\\]|//.*|/\*[\s\S]*?\*/)*else\b")
TEMPLATES = ("template_type", "template_function", "template_method", "dependent_name")


class Word(NamedTuple):
    """One of the words that ``::`` joins into a name."""

    node: Node  # without template arguments
    text: str
    template: list[Node]
    end: int  # with template arguments


@dataclasses.dataclass
class Variable:
    """A variable, or a type that a function declares."""

    type: str = ""
    origin: str = ""  # the unsolved line on which its type or its value depends
    constant: bool = False
    options: Node | None = None  # the initial value, if it is a TensorOptions
    unused: Node | None = None  # the declaration, if all uses of these options are rewritten


UNKNOWN = Variable()


@dataclasses.dataclass(eq=False)
class Names(Findings):
    """Walks a file, and resolves its names."""

    here: Path = ()  # the namespace around the node that is read
    inside: set[Path] = field(default_factory=set)  # the namespaces of torch that the extension opens
    scopes: list[dict[str, Variable]] = field(default_factory=lambda: [{}])
    done: set[int] = field(default_factory=set)  # the ids of the nodes that are read already, to be skipped

    def __post_init__(self) -> None:
        self.visible = visible = self.project.visible[self.source]
        self.mine = self.project.mine[self.source]
        self.uses_torch = any(file.uses_torch for file in visible)
        self.torch = b"::torch::" if self.source in self.project.hides_torch else b"torch::"
        self.opened = {path for file in visible for path in file.usings}
        self.usings = {path for file in self.project.around[self.source] for path in file.usings if path[0] in ROOTS}
        self.std = ("std",) in self.opened
        self.has_python = any(name == "Python.h" for file in visible for _, name in file.includes)
        for path in self.project.inside[self.source]:
            self.open(path)
        self.aliases = {"py": ("pybind11",), "ska": ("c10", "ska"), "ska_ordered": ("c10", "ska_ordered")}
        self.aliases |= {k: v for file in visible for k, v in file.aliases.items()}

    def open(self, path: Path) -> None:
        """Open a namespace until the end of the scope. Inside torch's own, torch's names need no prefix."""
        self.here += path
        if self.here[:1] and self.here[0] in ROOTS:
            self.inside = self.inside | {self.here[: i + 1] for i in range(len(self.here))}

    def walk(self, *nodes: Node) -> Finding | None:
        """Call on_KIND for each node, or walk its children; return the first unsolved finding."""
        before = len(self.findings)
        for node in nodes:
            if node.id not in self.done:
                getattr(self, f"on_{node.type}", self.children)(node)
        return self.unsolved(before)

    def unsolved(self, before: int) -> Finding | None:
        """Return the first finding after the first ``before`` that needs a person."""
        return next((x for x in self.findings[before:] if x.how != "mechanical"), None)

    def children(self, node: Node) -> None:
        for child in node.children:  # CPython 3.12 limits the depth of calls with a `*`
            self.walk(child)

    @contextlib.contextmanager
    def scope(self, names: Iterable[str] = ()) -> Iterator[dict[str, Variable]]:
        """Open a scope with variables of unknown type. At its end, remove options whose uses are all rewritten."""
        self.scopes.append({name: Variable() for name in names})
        around = self.here, self.inside
        yield self.scopes[-1]
        self.here, self.inside = around
        for name, variable in self.scopes.pop().items():
            if variable.unused:
                self.tell(variable.unused, name, ("options", "unused"))
                self.remove_line(variable.unused)

    def variable(self, name: str) -> Variable:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), UNKNOWN)

    def words(self, node: Node) -> list[Word]:
        if node.type == "qualified_identifier" and (name := part(node, "name")) is not EMPTY:
            scope = node.child_by_field_name("scope")
            return [*(self.words(scope) if scope else ()), *self.words(name)]
        arguments, inner = EMPTY, node
        while inner.type in TEMPLATES:
            arguments, inner = part(inner, "arguments"), inner.named_children[0]
        text = self.text(inner)
        if inner.type == "field_identifier" and re.fullmatch(r"\w+", value := self.project.macros.get(text, "")):
            text = value  # a macro stands for the method's name
        return [Word(inner, text, arguments.named_children, node.end_byte)]

    def resolve(self, words: list[Word], *, called: bool = False) -> Path:
        """Return the full name, if torch, pybind11 or the standard library declares it, else ()."""
        names = tuple(word.text for word in words)
        if len(names) == 1 and self.variable(names[0]) is not UNKNOWN:
            return ()
        # Another namespace, or a function, may have the alias, and this namespace a type of the same name.
        around, declared = [self.here[: i + 1] for i in range(len(self.here))], self.project.declared[self.source]
        own = any((*path, names[0]) in declared for path in around)
        if len(names) > 1 and (own or any((*path, *names) in declared for path in around)):  # mine::at::empty
            return ()
        for _ in range(0 if names[0] in ROOTS or own else 2):  # `using T::A;` may use `namespace T = torch;`
            names = self.aliases.get(names[0], names[:1]) + names[1:]
        if any(names[:i] in self.mine for i in range(2, len(names) + 1)):
            return ()
        if names[0] in (*ROOTS, "pybind11", "std"):
            return names
        is_known = self.is_declared(names[0]) or (self.std and ("std", names[0]) in ROWS) or ("c", names[0]) in ROWS
        for path in () if is_known else sorted(self.usings | self.inside, key=lambda x: (-len(x), x)):
            full = path + names
            heads = ["::".join(full[1:i]) for i in range(2, len(full) + 1)]
            is_torchs = "::".join(full) in NAMES or self.is_in_header(path, names)
            is_torchs |= called and table.operator_of(heads[-1]) != ""
            if is_torchs or any((kind, x) in ROWS for x in heads for kind in ("name", "guard", "factory", "same")):
                return full
        return ()

    def is_in_header(self, path: Path, names: Path) -> bool:
        """Tell whether torch's headers declare a name in a namespace, and the extension does not, not even as a method.

        Names like at::min do not count: without a prefix, such a name is more likely to be another library's.
        """
        name, torchs = names[0], table.torchs()
        kinds, around = ("namespace", "type", "function", "field", "variable"), self.project.around[self.source]
        if any(file in around for kind in kinds for file, _ in self.project.named[kind, name]):
            return False
        if len(names) > 1 and "::".join((*path, name)) in torchs:  # a namespace in it
            return True
        own = len(path) > 1 or re.match("k?[A-Z]|[a-z]+_[a-z]", name) is not None
        return own and name in torchs.get("::".join(path), ())

    def is_declared(self, name: str) -> bool:
        """Tell whether the extension declares a name that is visible here."""
        paths = [*(self.here[:i] for i in range(len(self.here) + 1)), *self.opened, *self.inside]
        return any((*path, name) in self.project.declared[self.source] for path in paths)

    def read_name(self, node: Node, full: Path = (), call: Node = EMPTY, inner: Sequence[Node] = ()) -> None:
        """Find a name of torch's, and replace it, or the whole call if the replacement uses the arguments."""
        words = self.words(node)
        full = full or self.resolve(words, called=call is not EMPTY)
        whole = "::".join(full)
        if len(full) < 2:
            self.read_broken(node, words)
        elif full[0] == "std":
            self.need_header("std", full[-1] if len(full) < 3 else full[1], node)
            if ("complex", full[-1]) in ROWS and re.search(rb"c10::complex|COMPLEX", self.source.data):
                self.tell(node, whole, ("complex", full[-1]))
        elif full[0] == "pybind11":
            self.tell(node, whole, ("name", "pybind11"))
        elif whole.startswith(("torch::stable::", "torch::headeronly::")):
            self.keep(whole, node)
        # The longest part of the name that a table has: at::ScalarType in at::ScalarType::Float.
        elif not any(self.replace_name(node, words, full, count, call, inner) for count in range(len(full), 1, -1)):
            self.tell(node, whole, self.without("name", full))
            if "::".join(full[1:]) not in ATEN or words[0].text in self.aliases or FACTORY.match(full[-1]):
                self.qualify(words, full)  # otherwise floor(x) may mean the C library's
        self.walk(*(x for word in words for x in word.template))

    def replace_name(
        self, node: Node, words: list[Word], full: Path, count: int, call: Node, inner: Sequence[Node]
    ) -> bool:
        """Look up the first ``count`` words of a name in the tables; return whether they are there."""
        key, what, known = "::".join(full[1:count]), "::".join(full), NAMES.get("::".join(full[:count]))
        if known and not (known["builds"] > self.target and ("name", key) in ROWS):
            self.keep("::".join(full[:count]), node)
            if re.match("k?[A-Z]", key):  # not others: load(x) may be the extension's
                self.qualify(words, full)
            return True
        word = words[max(len(words) - 1 - len(full) + count, -1)]
        size, templates = None if call is EMPTY else len(inner), len(word.template)
        row = table.find([(kind, key) for kind in ("name", "guard", "same")], size, templates, self.target)
        if row and row.kind == "guard" and (node.parent or EMPTY).type == "type_descriptor":
            row = ROWS["guard", "*"][0]  # such as std::make_unique<CUDAGuard>(device)
        if row and "$T" not in row.to and ("$" in row.to or row.args):
            self.apply(row, call, what, inner=inner)
        elif row:
            said = "::".join(full[:count]) if row.how == "mechanical" else what
            self.apply(row, node, said, template=word.template, end=word.end if "$T" in row.to else word.node.end_byte)
            if row.how != "mechanical":
                self.qualify(words, full)
        return row is not None

    def keep(self, name: str, node: Node) -> None:
        """Include the header of a name that stays, or record that only newer headers than the target's have it."""
        known = NAMES.get(table.known(name))
        if known and known["builds"] > self.target:
            to = f"build with the headers of torch {known['builds']}"
            self.tell(node, known["name"], Row("name", known["name"], "", "decision", to))
        elif known:
            self.headers[f"<{known['header']}>"] = True

    def qualify(self, words: list[Word], full: Path) -> None:
        """Write a name in full, because the using declaration that brought it is removed."""
        is_alias = words[0].text in self.aliases
        is_open = full[: len(full) - len(words)] in self.inside
        if (is_alias or (len(full) > len(words) and not is_open)) and self.resolve(words, called=True) == full:
            self.edits.append((*words[0].node.byte_range, ["::".join(full[: len(full) - len(words) + 1]).encode()]))

    def without(self, kind: str, full: Path) -> Row:
        """Return the advice for a name that is not in the table, or that is there only as a call."""
        for row in ROWS.get((kind, "::".join(full[1:])), ()):
            code = re.sub(r"^([\w:]+\()\$.*", r"\1...)", row.to)
            if row.how == "mechanical" and "$" not in code:
                return dataclasses.replace(row, how="decision", to=code)
        name = table.operator_of(full[-1]) if len(full) == 2 else ""
        row = ROWS["aten" if name else "name", "*"][0]
        return Row(kind, "*", "", "none", row.to.replace("$name", name), row.source)

    def read_broken(self, node: Node, words: list[Word]) -> None:
        """Find a use of a name that another line declares with a type that the stable ABI lacks."""
        name, variable = words[-1].text, self.variable(words[0].text)
        is_variable = len(words) == 1 and variable is not UNKNOWN
        types = (word.text for word in reversed(words[:-1]) if not self.project.named["variable", word.text])
        broken = (self.variable(word).origin or self.broken.get(word, "") for word in (name, *types))
        origin = variable.origin if is_variable else next(filter(None, broken), "")
        if len(words) == 1 and self.is_macro(self.text(node)):  # it has no arguments, or was not parsed as a call
            self.read_macro(node, [])
        elif re.match("THP[A-Z]", name) or (name.startswith("PyInit_") and not self.limited):
            self.tell(node, name, ("name", name[:3] if name[0] == "T" else "PyInit"))
        elif origin:  # a macro may define names that its arguments use, such as scalar_t in a lambda
            call = (name in self.project.macros and node.parent) or EMPTY
            self.follow(call if node == part(call, "function") else node, name, origin)
        elif re.match("_?Py[A-Z_]", name) and not (self.has_python or is_variable or self.is_declared(name)):
            self.tell(node, name, ("name", "Python.h"))
        elif GLOBAL.match(name) and not self.is_declared(name):
            self.tell(node, name, ("name", "*"))
        elif not is_variable:
            whole = "::".join(word.text for word in words)
            self.need_header("posix", whole, node)  # even if declared, because extensions do that for Windows only
            if not self.is_declared(name):
                for kind in ("std", "c") if self.std and len(words) == 1 else ("c",):
                    self.need_header(kind, whole, node)

    def follow(self, node: Node, what: str, origin: str) -> None:
        """Record that a line compiles once another one does."""
        if origin and origin != f"{self.source.path}:{self.source.line(node.start_byte)}":
            self.tell(node, what, Row("name", what, "", "follows", f"follows from {origin}"))

    def is_macro(self, name: str) -> bool:
        """Tell whether a name is one of torch's macros."""
        known, is_torchs = ("macro", name) in ROWS or name in NAMES, bool(MACRO.match(name))
        is_mine = name in self.project.macros or self.project.named["variable", name]
        # An extension may define one of torch's macros itself, for a torch that does not have it yet.
        return known and is_torchs if is_mine else known or is_torchs

    def read_macro(self, name: Node, inner: list[Node], call: Node = EMPTY, at: Node = EMPTY) -> None:
        """Replace a macro, with its arguments if it has any."""
        text, is_call, whole = self.text(name), call is not EMPTY, name if call is EMPTY else call
        rows = ROWS.get(("macro", text)) or ROWS["macro", "*"]
        row = table.find([("macro", text), ("macro", "*")], len(inner), 0, self.target) if is_call else rows[0]
        if text in NAMES or text == "TORCH_EXTENSION_NAME" or row is None:
            self.keep(text, name)
            return
        if row.how == "mechanical" and STREAMED.match(self.source.data, whole.end_byte):
            told = self.tell(whole, text, ("macro", "<<"))  # TORCH_CHECK_EQ(x, y) << "text"
        elif "$" in row.to and not is_call:
            told = self.tell(name, text, ("name", "misread"))
        elif is_call and ("$" in row.to or row.to.endswith("()")):
            told = self.apply(row, call, text, inner=inner)
        else:
            told = self.apply(row, name, text, at=at if row.how == "mechanical" or at is not EMPTY else whole)
            if row.how != "mechanical" and END_OF_LINE.match(self.source.data, whole.end_byte):
                told.end_line += 1  # the macro ends a statement, so an error may be at what follows
        start, end = (call.parent or EMPTY).byte_range
        if row.to.startswith("STD_TORCH_CHECK") and ELSE.match(self.source.data, end):
            # This macro is an if, to which the else would belong.
            self.edits += [(start, start, [b"{ "]), (end, end, [b" }"])]
        if row.how == "none" and not self.in_function(whole):  # the macro may declare its arguments
            names = (self.text(x) for x in inner if x.type == "identifier")
            self.newly_broken |= {x: told.where for name in names for x in (name, f".{name}", f"FLAGS_{name}")}

    def in_function(self, node: Node) -> bool:
        return any(up.type in ("compound_statement", "parameter_list") for up in (node, *above(node)))
