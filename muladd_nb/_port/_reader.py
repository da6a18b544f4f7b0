"""Reads one C++ or CUDA file: its findings, and the edits that are mechanical.

After the walk, torch's includes are removed, and the headers that the file needs after the edits are added.
"""

from __future__ import annotations

import re

from ._declarations import Declarations
from ._findings import Edit
from ._source import Node, above

HEADER = re.compile(r"(ATen|c10|caffe2|torch|pybind11|THC?|THCUNN)/|Python\.h$|numpy/")
STABLE = ("torch/csrc/stable/", "torch/headeronly/", "torch/csrc/inductor/aoti_torch/c/")


class Reader(Declarations):
    """Reads a file."""

    def read(self) -> None:
        """Walk the file, then what was parsed alone. The includes come last: they depend on all other edits."""
        self.walk(self.source.root)
        for names, body in self.source.fragments:
            self.conditions = self.defined.get(body.start_byte, ())
            with self.scope(names):
                self.walk(body)
        self.drop_options()
        self.read_includes()

    def read_includes(self) -> None:
        """Put what is needed in the place of the first of torch's headers, and remove the others."""
        mine = {name for _, name in self.source.includes}
        torch = [(node, x) for node, x in self.source.includes if HEADER.match(x) and not x.startswith(STABLE)]
        had_torch = any(map(HEADER.match, self.project.includes_seen(self.source)))
        some = {
            x: "" if () in places else " || ".join(sorted(map(" && ".join, places)))
            for x, places in self.optional.items()
        }
        some |= dict.fromkeys(self.headers, "")
        needed = sorted(x for x in some if x.strip("<>") not in mine and (had_torch or x.startswith("<torch/")))
        first = next((node for node, name in torch if self.is_unconditional(node) and name != "Python.h"), None)
        code = [f"#if {some[x]}\n#include {x}\n#endif" if some[x] else f"#include {x}" for x in needed]
        block = "\n".join(code).encode().replace(b"\n", self.source.newline)
        for node, name in torch:
            if name == "Python.h" or name.startswith("numpy/"):
                if not self.limited:
                    self.tell(node, name, "name", "Python.h")
            elif node == first and needed:
                self.tell(node, name, "header", "*", to=", ".join(needed))
                end = node.start_byte + len(self.source.data[node.start_byte : node.end_byte].rstrip())
                self.edits.append(Edit(node.start_byte, end, (block,)))
            else:
                self.tell(node, name, "header", "*")
                self.remove_line(node)
        if needed and first is None:
            at = self.place()
            self.edits.append(Edit(at, at, (block + self.source.newline,)))

    def place(self) -> int:
        """Return the byte after the last include that is always compiled, after the include guard, or 0."""
        data = self.source.data
        places = [node.end_byte for node, _ in self.source.includes if self.is_unconditional(node)]
        guard = re.search(rb"^[ \t]*#[ \t]*(pragma once|define \w+_(H|HH|HPP|CUH|INC)_*)\s*?\n", data, re.MULTILINE)
        at = max(places) if places else guard.end() if guard else 0
        return at if not at or data[at - 1 : at] == b"\n" else data.find(b"\n", at) + 1 or len(data)

    def is_unconditional(self, node: Node) -> bool:
        """Tell whether an include is always compiled: it is in nothing but an include guard."""
        return all(up.type == "translation_unit" or self.is_guard(up) for up in above(node))
