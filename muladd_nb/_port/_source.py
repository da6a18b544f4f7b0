"""A C++ or CUDA source file, parsed by tree-sitter, and the names that a folder of such files declares."""

from __future__ import annotations

import bisect
import os
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import tree_sitter
import tree_sitter_cpp

from . import _mask

Node = tree_sitter.Node
Path = tuple[str, ...]  # of a name like a::b
ROOTS = ("at", "c10", "c10d", "torch", "caffe2")  # torch's namespaces
HEADER = re.compile(r"(ATen|c10|caffe2|torch|pybind11|THC?|THCUNN)/|Python\.h$|numpy/")
_USES_TORCH = re.compile(rf"\b(?:{'|'.join(ROOTS)})::|\b(?:AT|C10|TORCH)_|\b(?:Tensor|data_ptr)\b".encode())
_LANGUAGE = tree_sitter.Language(tree_sitter_cpp.language())
_HASH = re.compile(rb"\s*##\s*|#(?![ \t]*(?:define|el|endif|error|if|include|line|pragma|undef|warning))[ \t]*")
_DECLARES = tree_sitter.Query(
    _LANGUAGE,
    """[(ERROR) (MISSING)] @error (preproc_include path: (_) @include)
    (preproc_ifdef "#ifndef" name: (_) @name . (comment)* . (preproc_def name: (_) @same) (#eq? @name @same)) @guard
    [(preproc_def name: (_) value: (_)) (preproc_function_def name: (_) value: (_))] @macro
    (preproc_call directive: (_) @directive argument: (_) @pragma (#eq? @directive "#pragma"))
    (enumerator name: (_) @enumerator) (using_declaration) @using (namespace_alias_definition name: (_)) @alias
    (namespace_definition name: (_) @namespace)
    [(function_definition) (declaration) (field_declaration)] @declaration
    [(class_specifier name: (_) body: (_)) (struct_specifier name: (_) body: (_))
     (enum_specifier name: (_) body: (_)) (alias_declaration name: (_)) (type_definition)] @type""",
)
_IS_STATEMENT = re.compile(r"(?<!parameter_)declaration$|_statement$|_definition$|_loop$|_declaration_list$")
_IS_OUTSIDE = re.compile("translation_unit|ERROR|preproc_")
EMPTY = tree_sitter.Parser(_LANGUAGE).parse(b"").root_node  # stands for a part that a node does not have


class Source:
    """One file: its bytes, its tree, the trees of the bodies of its macros, and the names that it declares."""

    def __init__(self, path: pathlib.Path, data: bytes, attributes: set[bytes]) -> None:
        self.path, self.data = path, data
        self._ends_of_lines = [found.start() for found in re.finditer(b"\n", data)]
        code, branches = _mask.masked(data, attributes)
        self.root = tree_sitter.Parser(_LANGUAGE).parse(_mask.blanked(code, branches)).root_node
        found = defaultdict[str, list[Node]](list)
        for kind, nodes in tree_sitter.QueryCursor(_DECLARES).captures(self.root).items():
            found[kind] = sorted(nodes, key=lambda node: (node.start_byte, -node.end_byte))
        self.guards = found["guard"]  # #ifndef X, followed by #define X
        self.unparsed = sorted({self.line(node.start_byte) for node in found["error"]})
        self.includes = [(node.parent or EMPTY, self.text(node).strip('<>"')) for node in found["include"]]
        self.uses_torch = bool(_USES_TORCH.search(data)) or any(HEADER.match(name) for _, name in self.includes)
        self.macros = {self.text(part(node, "name")): self.text(part(node, "value")).strip() for node in found["macro"]}
        outside = [x for x in found["using"] if not is_member(x)]
        using = [(self.path_of(x.named_children[-1]), x.children[1].type == "namespace") for x in outside]
        self.usings = {path for path, is_namespace in using if is_namespace}
        # These tell which name a word stands for: `using a::word;` and `namespace word = a;` do so.
        self.aliases = {path[-1]: path for path, is_namespace in using if not is_namespace}
        self.aliases |= {self.text(part(x, "name")): self.path_of(x.named_children[-1]) for x in found["alias"]}
        self.declared: set[Path] = set()  # full names
        # Functions, methods, fields, variables and type aliases.
        self.names = [("variable", self.text(node), node) for node in found["enumerator"]]
        self.declared |= {(*self.around(node), word) for _, word, node in self.names}
        self.names += [("namespace", word, node) for node in found["namespace"] for word in self.path_of(node)]
        self._read_declarations(found)
        # In the body of a macro, a##b and #x are parsed as names.
        self._parse_fragments(_HASH.sub(lambda x: b"_" * len(x[0]), code), branches, found)

    def _read_declarations(self, found: dict[str, list[Node]]) -> None:
        """Record what functions, variables, fields and types are called."""
        for node in found["declaration"]:
            for inner, function in map(innermost, node.children_by_field_name("declarator")):
                name = self.text(inner)
                outer = next((up for up in above(node) if up.type != "template_declaration"), EMPTY)
                if function is not EMPTY:
                    is_template, is_qualified = outer != node.parent, "qualified" in (inner.parent or EMPTY).type
                    self.names.append(("function", name, node))
                    if outer.type == "field_declaration_list" or is_qualified:
                        self.names.append(("template method" if is_template else "method", name, node))
                    if inner.type == "identifier":
                        self.declared.add((*self.around(node), name))
                elif name:
                    self.names.append(("variable", name, node))
                    self.names += [("field", name, node)] * (node.type == "field_declaration")
        for node in found["type"]:
            if name := self.text(named(node)):
                is_torchs = "<" in name or self.path_of(part(node, "type"))[-1] == name  # a specialisation or alias
                self.declared |= set() if is_torchs else {(*self.around(node), name)}
                self.names += [("type", name, node)] * (node.type in ("type_definition", "alias_declaration"))

    def _parse_fragments(self, code: bytes, branches: list[tuple[int, int]], found: dict[str, list[Node]]) -> None:
        """Parse branches of #if, what follows #pragma, which may call a function, and the bodies of macros."""
        self._code = code
        alone = [*branches, *(node.byte_range for node in found["pragma"])]
        # A macro's name and parameters, or none.
        self.fragments = [("", list[str](), self.parsed(*span)) for span in alone]
        self.pasted: set[tuple[str, int]] = set()  # macros, and which of their arguments are pasted into names
        for node in found["macro"]:
            parameters = [self.text(x) for x in part(node, "parameters").named_children]
            name, value = self.text(part(node, "name")), part(node, "value")
            body = self.parsed(*value.byte_range)
            self.fragments.append((name, parameters, body))
            self.names += [("macro", name, inner) for x in body.named_children[:1] for inner in x.named_children[:1]]
            pasted = re.findall(r"(\w+)\s*(?=##)|##\s*(\w+)", self.text(value))
            self.pasted |= {(name, i) for i, x in enumerate(parameters) if any(x in pair for pair in pasted)}

    def parsed(self, start: int, end: int) -> Node:
        """Parse a range of the file alone."""
        where = tree_sitter.Range((0, 0), (0, 0), start, end)  # rows and columns are not used
        return tree_sitter.Parser(_LANGUAGE, included_ranges=[where]).parse(self._code).root_node

    def around(self, node: Node) -> Path:
        """Return the namespace around a node."""
        around = [self.path_of(part(up, "name")) for up in self.above(node) if up.type == "namespace_definition"]
        return tuple(word for path in reversed(around) for word in path if word)

    def above(self, node: Node) -> list[Node]:
        """Return the nodes around a node, which may be in the body of a macro. Include guards do not count."""
        inner = self.root.descendant_for_byte_range(*node.byte_range) or EMPTY
        return [up for up in above(inner) if up not in self.guards]

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def path_of(self, node: Node) -> Path:
        """Return the words of a name like a::b."""
        return tuple(self.text(node).replace(" ", "").strip(":").split("::"))

    def line(self, byte: int) -> int:
        return bisect.bisect_left(self._ends_of_lines, byte) + 1


class Project:
    """The files of the extension, and the names that they declare."""

    def __init__(self, paths: Iterable[pathlib.Path]) -> None:
        data = {path: path.read_bytes() for path in paths}
        attributes = _mask.attributes(data.values())
        self.sources = sources = [Source(path, data[path], attributes) for path in data]
        self.macros = {name: value for source in reversed(sources) for name, value in source.macros.items()}
        self.pasted = set[tuple[str, int]]().union(*(source.pasted for source in sources))
        self.named = defaultdict[tuple[str, str], list[tuple[Source, Node]]](list)  # by kind and name
        self.returned = dict[int, str]()  # the types that functions and lambdas return, by the ids of their nodes
        for source in sources:
            for kind, name, node in source.names:
                self.named[kind, name].append((source, node))
        files = [(source, f"/{source.path.as_posix()}") for source in sources]
        names = {name for source in sources for _, name in source.includes}
        self.included = {name: [x for x, at in files if at.endswith("/" + name.lstrip("./"))] for name in names}
        self.visible = {source: self._visible(source) for source in sources}
        # For each file: the files that it includes, those that include it, and all that these include.
        visible = self.visible.values()
        self.around = {source: {x for files in visible if source in files for x in files} for source in sources}
        self.inside: dict[Source, set[Path]] = {file: {()} for file in sources}  # the namespaces that include a file
        for source, node, name in ((x, node, name) for x in sources for node, name in x.includes if x.around(node)):
            for inner in (inner for file in self.brought(source, name) for inner in self.visible[file]):
                self.inside[inner].add(source.around(node))
        declared = {file: {(*path, *name) for path in self.inside[file] for name in file.declared} for file in sources}
        # For each file: the names that it and the files around it declare, and those of them in torch's namespaces.
        self.declared = {file: set[Path]().union(*(declared[x] for x in self.around[file])) for file in sources}
        self.mine = {file: {x for x in names if x[0] in ROOTS and len(x) > 1} for file, names in self.declared.items()}
        # If a namespace `mine` contains a namespace `torch`, then inside of it `torch` means mine::torch.
        self.hides_torch = {file for file in sources if any("torch" in name[1:-1] for name in self.declared[file])}

    def _visible(self, source: Source) -> list[Source]:
        """Return a file and the files of the project that it includes, directly or indirectly."""
        found = [source]
        for file in found:  # the list grows
            for _, name in file.includes:
                found += [x for x in self.brought(file, name) if x not in found]
        return found

    def brought(self, file: Source, name: str) -> list[Source]:
        """Return the file that an include means, if it is beside the file with the include, or all that it may mean."""
        every, beside = self.included[name], os.path.normpath(file.path.parent / name)
        return [x for x in every if os.path.normpath(x.path) == beside] or every


def part(node: Node, field: str) -> Node:
    """Return the child with this name in the grammar, or EMPTY."""
    return node.child_by_field_name(field) or EMPTY


def above(node: Node) -> Iterator[Node]:
    """Yield the nodes around one, the innermost first."""
    while node.parent is not None:
        yield (node := node.parent)


def below(node: Node) -> list[Node]:
    """Return a node and all nodes in it."""
    found = [node]
    for x in found:  # the list grows
        found += x.children
    return found


def statement(node: Node) -> list[tuple[int, int]]:
    """Return the ranges of the statement, declaration or head around a node, without the blocks in it."""
    whole = node
    for up in above(node):
        if _IS_OUTSIDE.match(up.type):
            break
        whole = up
        if _IS_STATEMENT.search(up.type):
            break
    starts, ends, inner = [whole.start_byte], list[int](), [whole]
    for child in (child for x in inner for child in x.children):  # the list grows
        if _IS_STATEMENT.search(child.type):
            starts.append(child.end_byte - 1)
            ends.append(child.start_byte + 1)
        else:
            inner.append(child)
    parts = zip(sorted(starts), sorted([*ends, whole.end_byte]), strict=True)
    return [(first, end) for first, end in parts if first == whole.start_byte or first < whole.end_byte - 1]


def is_member(node: Node) -> bool:
    """Tell whether a declaration is in the body of a class."""
    return node.parent is not None and node.parent.type == "field_declaration_list"


def is_misread(node: Node) -> bool:
    """Tell whether the parser failed in a node, not counting the blocks in it."""
    inner = (child for child in node.children if child.has_error and child.type != "compound_statement")
    return node.is_error or node.is_missing or any(map(is_misread, inner))


def named(node: Node) -> Node:
    """Return the name that a node declares, or EMPTY."""
    return part(node, "name") if part(node, "declarator") is EMPTY else innermost(part(node, "declarator"))[0]


def innermost(node: Node) -> tuple[Node, Node]:
    """Return the identifier that a declarator declares, and its function declarator; or EMPTY for each."""
    function = EMPTY
    while node is not EMPTY:
        if node.type == "function_declarator":
            is_pointer = part(node, "declarator").type == "parenthesized_declarator"  # int (*f)() declares a variable
            function = function if is_pointer else node
        if node.type in ("identifier", "field_identifier", "type_identifier", "operator_name", "destructor_name"):
            return node, function
        if node.type in ("reference_declarator", "parenthesized_declarator", "variadic_declarator"):
            node = node.named_children[-1] if node.named_children else EMPTY
        else:
            node = part(node, "name" if node.type == "qualified_identifier" else "declarator")
    return EMPTY, EMPTY
