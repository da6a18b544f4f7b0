"""The walk over a file: each kind of node has a method ``on_KIND``, or its children are walked."""

from __future__ import annotations

import dataclasses
from dataclasses import field

from ._source import Node, descend
from ._types import Types


@dataclasses.dataclass(eq=False)
class Walk(Types):
    """Walks a file, and skips nodes that a node around them has dealt with."""

    done: set[int] = field(default_factory=set)  # the ids of the nodes to skip

    def walk(self, *nodes: Node) -> None:
        """Deal with some nodes and all nodes below them."""
        for node in nodes:
            if node.id not in self.done:
                getattr(self, f"on_{node.type}", self.children)(node)

    def children(self, node: Node) -> None:
        """Walk the children."""
        self.walk(*node.children)

    def scoped(self, node: Node) -> None:
        """Walk the children in a scope."""
        with self.scope():
            self.walk(*node.children)

    on_for_statement = on_compound_statement = on_if_statement = on_while_statement = scoped

    def on_qualified_identifier(self, node: Node) -> None:
        """Deal with a name, and with its template arguments."""
        self.read_name(node)
        for word in self.words(node):
            self.walk(*word.template)

    on_type_identifier = on_identifier = on_template_type = on_template_function = on_qualified_identifier

    def on_field_identifier(self, node: Node) -> None:
        """Find a field whose type the stable ABI lacks."""
        if self.project.named("field", name := self.text(node)):
            self.follow(node, name, self.broken.get(name, ""))

    def on_preproc_def(self, node: Node) -> None:
        """Skip it: the bodies of macros are walked last."""

    on_preproc_function_def = on_preproc_include = on_preproc_def

    def on_preproc_if(self, node: Node) -> None:
        """Walk all branches; of the condition, find the version of torch."""
        for i, child in enumerate(node.children):
            if node.field_name_for_child(i) not in ("condition", "name"):
                self.walk(child)
            elif any(self.text(x).startswith("TORCH_VERSION_") for x in descend(child)):
                self.tell(child, self.text(child), "macro", "TORCH_VERSION_MAJOR")
                self.need("TORCH_VERSION_MAJOR")

    on_preproc_ifdef = on_preproc_elif = on_preproc_if

    def guess(self, node: Node) -> str:
        """Return the unsolved line on which the value of an expression depends."""
        variables = (self.variable(self.text(x)) for x in descend(node) if x.type == "identifier")
        return next((x.guessed for x in variables if x and x.guessed), "")
