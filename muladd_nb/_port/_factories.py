"""Calls that make tensors: the parts of a ``TensorOptions`` become arguments.

::

    auto options = x.options().dtype(kLong);    // removed, if every use is rewritten
    auto y = torch::zeros({n}, options);

    auto y = torch::stable::new_zeros(x, {n}, torch::headeronly::ScalarType::Long);
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import field

from ._findings import Piece, span
from ._names import ROOTS
from ._source import Node, part
from ._table import table
from ._walk import Walk

Options = dict[str, Node]  # like (a tensor), dtype, device, index (of the device)


@dataclasses.dataclass(eq=False)
class Factories(Walk):
    """Rewrites empty, zeros, ones and full."""

    options: dict[str, Node] = field(default_factory=dict)  # variables of TensorOptions, and their initial values
    unused: dict[str, Node] = field(default_factory=dict)  # the declarations of those whose uses are all rewritten

    def read_factory(self, node: Node, function: Node, name: str, inner: list[Node]) -> None:
        """Rewrite a call, or report it if its options are more than a tensor's, a dtype and a device."""
        count = 2 if name == "full" else 1
        rest, advice = inner[count:], table().rows["factory", name][0]
        options = self.read_options(rest[0]) if len(rest) == 1 else None if rest else {}
        if options is None or len(inner) < count:
            self.apply(advice, function, f"torch::{name}", "factory")
            for argument in rest:
                if self.text(argument) in self.options:
                    self.keep_options(self.text(argument))
                    self.tell(argument, self.text(argument), "name", advice)
            return
        like, device = options.get("like"), self.device(options)
        dtype: list[Piece] = [span(options["dtype"])] if "dtype" in options else []
        row = (table().rows.get(("make like", name)) if like else None) or table().rows["make", name]
        if like and "$self" not in row[0].to:
            dtype = dtype or [span(like), b".scalar_type()"]
            device = device or [span(like), b".device()"]
        more = [b", ", *(dtype or [b"std::nullopt"])] if dtype or device else []
        more += [b", std::nullopt, ", *device] if device else []
        self.apply(row[0], node, f"torch::{name}", "factory", self.fill(row[0].to, inner, [], like, more))
        self.need("torch::stable::Device std::nullopt")
        if rest and (rest[0].type != "identifier" or self.text(rest[0]) in self.options):
            self.walk(*options.values())
            self.done |= {word.id for word in options.values()}
        self.done |= {argument.id for argument in rest}

    def device(self, options: Options) -> list[Piece]:
        """Return the device that options name."""
        if (device := options.get("device")) is None:
            return []
        if index := options.get("index"):
            return [b"torch::stable::Device(", span(device), b", ", span(index), b")"]
        is_type = device.type == "qualified_identifier"
        return [b"torch::stable::Device(", span(device), b")"] if is_type else [span(device)]

    def read_options(self, node: Node) -> Options | None:
        """Return the parts of a TensorOptions, or None if it has other parts or its value is unknown."""
        function, inner = part(node, "function"), part(node, "arguments").named_children
        this, name = part(function, "argument"), self.text(part(function, "field"))
        if node.type == "identifier":
            if value := self.options.get(self.text(node)):
                return self.read_options(value)
            return {"dtype": node} if self.type_of(node) == "dtype" else None
        if node.type in ("argument_list", "initializer_list"):
            return self.read_options(node.named_children[0]) if len(node.named_children) == 1 else None
        if function.type == "field_expression":
            if name == "options" and not inner and self.type_of(this) in ("Tensor", ""):
                return {"like": this}
            if name in ("dtype", "scalar_type", "type") and not inner and self.type_of(this) == "Tensor":
                return {"dtype": node}
            return self.with_option(self.read_options(this), name, inner)
        is_call = node.type == "call_expression"
        full = self.resolve(self.words(function if is_call else node), called=is_call) or ("",)
        if full[0] not in ROOTS:
            return None
        if not is_call:
            is_dtype = re.match(r"k[A-Z]", full[-1]) or "ScalarType" in full
            return {"device" if full[-1] in ("kCPU", "kCUDA") else "dtype": node} if is_dtype else None
        if full[-1] == "TensorOptions":
            return {} if not inner else self.read_options(inner[0]) if len(inner) == 1 else None
        return self.with_option({}, full[-1], inner) if full[-1] in ("dtype", "device") else None

    def with_option(self, options: Options | None, name: str, inner: list[Node]) -> Options | None:
        """Return options and one more, or None."""
        if options is not None and name == "dtype" and len(inner) == 1:
            return options | {"dtype": inner[0]}
        if name == "device" and len(inner) == 1 and inner[0].type == "initializer_list":
            inner = inner[0].named_children
        if options is not None and name == "device" and len(inner) in (1, 2):
            options.pop("index", None)
            return options | dict(zip(("device", "index"), inner, strict=False))
        default = {"requires_grad": "false", "layout": "kStrided"}.get(name)
        return options if default and inner and self.text(inner[0]).endswith(default) else None

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
