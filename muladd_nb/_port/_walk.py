"""The walk over a file: each kind of node has a method ``on_KIND``, or its children are walked."""

from __future__ import annotations

import dataclasses
from dataclasses import field

from ._source import Node, descend, part
from ._types import Types


@dataclasses.dataclass(eq=False)
class Walk(Types):
    """Walks a file, and skips nodes that a node around them has dealt with."""

    done: set[int] = field(default_factory=set)  # the ids of the nodes to skip
    defined: dict[int, tuple[str, ...]] = field(default_factory=dict)  # the conditions around the body of each macro

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

    def on_template_declaration(self, node: Node) -> None:
        """Walk a template in a scope with the types that are its parameters: torch may have these names, too."""
        parameters = [x for x in part(node, "parameters").named_children if "type_parameter" in x.type]
        names = [self.text(x.named_children[0]) for x in parameters if x.named_children]
        with self.scope(names):
            self.walk(*node.children)

    on_for_statement = on_compound_statement = on_if_statement = on_while_statement = scoped

    def on_qualified_identifier(self, node: Node) -> None:
        """Deal with a name, and with its template arguments."""
        self.read_name(node)
        for word in self.words(node):
            self.walk(*word.template)

    on_type_identifier = on_identifier = on_template_type = on_template_function = on_qualified_identifier

    def on_primitive_type(self, node: Node) -> None:
        """Find a type such as ``int64_t``, which has a header although the grammar knows it."""
        self.need_header("std", self.text(node))

    def on_field_identifier(self, node: Node) -> None:
        """Find a field whose type the stable ABI lacks."""
        if self.project.named("field", name := self.text(node)):
            self.follow(node, name, self.broken.get(name, ""))

    def on_preproc_def(self, node: Node) -> None:
        """Remember under which conditions a macro is defined: its body is walked last."""
        self.defined[part(node, "value").start_byte] = self.conditions

    on_preproc_function_def = on_preproc_include = on_preproc_def

    def on_preproc_if(self, node: Node) -> None:
        """Walk all branches; of the condition, find the version of torch."""
        outer, name = self.conditions, self.text(part(node, "name"))
        condition = f"{'!' * (node.children[0].type == '#ifndef')}defined({name})" if name else ""
        condition = condition or f"({self.text(part(node, 'condition'))})"
        for i, child in enumerate(node.children):
            if (branch := node.field_name_for_child(i)) not in ("condition", "name"):
                if not self.is_guard(node):
                    self.conditions = (*outer, "!" * (branch == "alternative") + condition)
                self.walk(child)
                self.conditions = outer
            elif any(self.text(x).startswith("TORCH_VERSION_") for x in descend(child)):
                self.tell(child, self.text(child), "macro", "TORCH_VERSION_MAJOR")
                self.need("TORCH_VERSION_MAJOR")

    on_preproc_ifdef = on_preproc_elif = on_preproc_if

    def is_guard(self, node: Node) -> bool:
        """Tell whether #ifndef X is followed by #define X."""
        name = part(node, "name")
        inner = [child for child in node.named_children if child != name and child.type != "comment"]
        is_define = node.children[0].type == "#ifndef" and bool(inner) and inner[0].type == "preproc_def"
        return is_define and self.text(part(inner[0], "name")) == self.text(name)

    def guess(self, node: Node) -> str:
        """Return the unsolved line on which the value of an expression depends."""
        variables = (self.variable(self.text(x)) for x in descend(node) if x.type == "identifier")
        return next((x.guessed for x in variables if x and x.guessed), "")
