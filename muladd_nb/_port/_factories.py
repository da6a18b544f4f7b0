"""Calls that make tensors: the parts of a ``TensorOptions`` become arguments.

::

    auto options = x.options().dtype(kLong);    // removed, if every use is rewritten
    auto y = torch::zeros({n}, options);

    auto y = torch::stable::new_zeros(x, {n}, torch::headeronly::ScalarType::Long);
"""

from __future__ import annotations

import re

from ._edits import Piece, span
from ._names import ROOTS
from ._source import Node, Project, Source, part
from ._table import table
from ._walk import Walk

Options = dict[str, Node]  # like (a tensor), dtype, device, index (of the device)
ARGUMENTS = {
    "new_empty": "like, size, dtype",
    "new_zeros": "like, size, dtype",
    "empty": "size, dtype, layout, device",
    "full": "size, value, dtype, layout, device",
}
VALUES = {"zeros": "0", "ones": "1"}


class Factories(Walk):
    """Rewrites empty, zeros, ones and full."""

    def __init__(self, source: Source, project: Project, target: str, broken: dict[str, str]) -> None:
        super().__init__(source, project, target, broken)
        self.options: dict[str, Node] = {}  # variables of type TensorOptions, and what they are initialised from
        self.unused: dict[str, Node] = {}  # the declarations of those whose uses are all rewritten
        self.rewritten: set[int] = set()  # the ids of the options that a call was rewritten with

    def read_factory(self, node: Node, function: Node, name: str, inner: list[Node]) -> None:
        """Rewrite a call, or report it if its options are more than a tensor's, a dtype and a device."""
        count = 2 if name == "full" else 1
        rest = inner[count:]
        options = {} if not rest else self.read_options(rest[0]) if len(rest) == 1 else None
        row = table().rows["factory", name][0]
        if options is None or len(inner) < count:
            self.apply(row, function, f"torch::{name}", "factory")
            for argument in rest:
                if argument.type == "identifier" and self.text(argument) in self.options:
                    self.keep_options(self.text(argument))
                    self.add(argument, self.text(argument), "name", "decision", row.to, row.source)
            return
        like = options.get("like")
        new = f"new_{name}" if like and name in ("empty", "zeros") else "empty" if name == "empty" else "full"
        pieces: list[Piece] = [f"torch::stable::{new}(".encode()]
        if like and new != "full":
            pieces += [span(like), b", "]
        pieces.append(span(inner[0]))
        dtype: list[Piece] = [span(options["dtype"])] if "dtype" in options else []
        device = self.device(options)
        if new == "full":
            pieces += [b", ", VALUES[name].encode() if name in VALUES else span(inner[1])]
            if like:
                dtype = dtype or [span(like), b".scalar_type()"]
                device = device or [span(like), b".device()"]
        if dtype or device:
            pieces += [b", ", *(dtype or [b"std::nullopt"])]
        if device:
            pieces += [b", std::nullopt, ", *device]
        to = f"torch::stable::{new}({ARGUMENTS[new].replace('value', VALUES.get(name, 'value'))})"
        row = table().row(name, "", "mechanical", to, row.source)
        self.apply(row, node, f"torch::{name}", "factory", [*pieces, b")"])
        self.need("torch::stable::Device std::nullopt")
        if rest and (rest[0].type != "identifier" or self.text(rest[0]) in self.options):
            for word in options.values():
                self.walk(word)
                self.done.add(word.id)
        self.done |= {argument.id for argument in rest}
        self.rewritten |= {argument.id for argument in rest}

    def device(self, options: Options) -> list[Piece]:
        """Return the device that options name."""
        if (device := options.get("device")) is None:
            return []
        if index := options.get("index"):
            return [b"torch::stable::Device(", span(device), b", ", span(index), b")"]
        if device.type == "qualified_identifier":
            return [b"torch::stable::Device(", span(device), b")"]
        return [span(device)]

    def read_options(self, node: Node) -> Options | None:
        """Return the parts of a TensorOptions, or None if it has other parts or its value is unknown."""
        if node.type == "identifier":
            value = self.options.get(self.text(node))
            if value is not None:
                return self.read_options(value)
            return {"dtype": node} if self.type_of(node) == "dtype" else None
        if node.type == "qualified_identifier":
            name = self.text(self.parts(node)[-1])
            full = self.resolve(self.parts(node), called=False)
            if not full or full[0] not in ROOTS or not (re.match(r"k[A-Z]", name) or "ScalarType" in full):
                return None
            return {"device" if name in ("kCPU", "kCUDA") else "dtype": node}
        if node.type in ("argument_list", "initializer_list") and len(node.named_children) == 1:
            return self.read_options(node.named_children[0])
        function, arguments = part(node, "function"), part(node, "arguments")
        if node.type != "call_expression" or function is None or arguments is None:
            return None
        inner = arguments.named_children
        if function.type == "field_expression":
            return self.read_option(node, function, inner)
        full = self.resolve(self.parts(function), called=True)
        if full and full[0] in ROOTS:
            if full[-1] == "TensorOptions":
                return {} if not inner else self.read_options(inner[0]) if len(inner) == 1 else None
            if full[-1] in ("dtype", "device"):
                return self.with_option({}, full[-1], inner)
        return None

    def read_option(self, node: Node, function: Node, inner: list[Node]) -> Options | None:
        """Return the parts that x.options(), x.dtype() and options.dtype(d) have."""
        this, field = part(function, "argument"), part(function, "field")
        if this is None or field is None:
            return None
        name = self.text(field)
        if name == "options" and not inner and self.type_of(this) in ("Tensor", ""):
            return {"like": this}
        if name in ("dtype", "scalar_type", "type") and not inner and self.type_of(this) == "Tensor":
            return {"dtype": node}
        before = self.read_options(this)
        return None if before is None else self.with_option(before, name, inner)

    def with_option(self, options: Options, name: str, inner: list[Node]) -> Options | None:
        """Return options and one more."""
        if name == "dtype" and len(inner) == 1:
            return options | {"dtype": inner[0]}
        if name == "device" and len(inner) in (1, 2):
            options.pop("index", None)
            return options | dict(zip(("device", "index"), inner, strict=False))
        if name == "requires_grad" and inner and self.text(inner[0]) == "false":
            return options
        return options if name == "layout" and self.text(inner[0]).endswith("kStrided") else None

    def keep_options(self, name: str) -> None:
        """Keep a variable, because a use of it is not rewritten."""
        if (declaration := self.unused.pop(name, None)) is not None:
            self.tell(declaration, name, "options", "*")

    def drop_options(self) -> None:
        """Remove the variables whose uses are all rewritten."""
        for name, declaration in self.unused.items():
            self.options.pop(name, None)
            self.tell(declaration, name, "options", "unused")
            self.remove_line(declaration)

    def is_rewritten(self, node: Node | None) -> bool:
        """Tell whether a node is in the options of a call that was rewritten."""
        while node is not None and node.type not in ("compound_statement", "translation_unit"):
            if node.id in self.rewritten:
                return True
            node = node.parent
        return False
