"""C++ operators on tensors, such as x + y, which the stable ABI does not have."""

from __future__ import annotations

from ._factories import Factories
from ._source import Node, part
from ._table import table

OPERATORS = frozenset("+ - * / % == != < > <= >= & | ^ << >> += -= *= /= &= |= ^=".split())  # noqa: SIM905


class Operators(Factories):
    """Finds operators that have a tensor on one side."""

    def on_binary_expression(self, node: Node) -> None:
        """Find x + y, and what a stream cannot print."""
        operator, right = part(node, "operator"), part(node, "right")
        symbol, sides = self.text(operator), [self.type_of(part(node, "left")), self.type_of(right)]
        if symbol in OPERATORS and ("Tensor" in sides or ("Tensor[]" in sides and symbol != "<<")):
            self.tell(operator, f"x {symbol} y", "operator", "+")
        elif symbol == "<<" and {"device", "sizes"} & set(sides):
            self.tell(operator, f"<< {self.text(right)}", "operator", "<<")
        self.children(node)

    def on_unary_expression(self, node: Node) -> None:
        """Find -x."""
        if self.type_of(node) == "Tensor":
            self.tell(node, self.text(node.children[0]) + "x", "operator", "+")
        self.children(node)

    def on_assignment_expression(self, node: Node) -> None:
        """Find x += y and x[i] = y, and options that change after their declaration."""
        operator, left = part(node, "operator"), part(node, "left")
        if self.type_of(left) == "Tensor" and self.text(operator) != "=":
            self.tell(operator, f"x {self.text(operator)} y", "operator", "+")
        if self.text(left) in self.options:
            self.keep_options(self.text(left))
        if left.type == "subscript_expression" and self.type_of(part(left, "argument")) == "Tensor":
            self.tell(left, "x[i] = y", "operator", "[]=", whole=True)
            self.tell(operator, "x[i] = y", "operator", "[]=")
            self.done.add(left.id)
        self.children(node)

    def on_subscript_expression(self, node: Node) -> None:
        """Write x[i] of a tensor as a select."""
        this, indices, row = (
            part(node, "argument"),
            part(node, "indices").named_children,
            table().rows["operator", "[]"][0],
        )
        if self.type_of(this) == "Tensor" and len(indices) == 1:
            self.apply(row, node, "x[i]", "operator", self.fill(row.to, indices, this=this))
        self.children(node)
