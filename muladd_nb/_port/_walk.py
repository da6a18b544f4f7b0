"""The walk over a file: each kind of node has a method ``on_KIND``, or its children are walked."""

from __future__ import annotations

from ._source import Node, Project, Source, descend
from ._types import Types


class Walk(Types):
    """Walks a file, and skips nodes that a node around them has dealt with."""

    def __init__(self, source: Source, project: Project, target: str, broken: dict[str, str]) -> None:
        super().__init__(source, project, target, broken)
        self.done: set[int] = set()  # the ids of the nodes to skip

    def walk(self, node: Node) -> None:
        """Deal with a node and all nodes below it."""
        if node.id not in self.done:
            getattr(self, f"on_{node.type}", self.children)(node)

    def children(self, node: Node) -> None:
        """Walk the children."""
        for child in node.children:
            self.walk(child)

    def scoped(self, node: Node) -> None:
        """Walk the children in a scope."""
        with self.scope():
            self.children(node)

    on_for_statement = on_compound_statement = on_if_statement = on_while_statement = scoped

    def on_qualified_identifier(self, node: Node) -> None:
        """Deal with a name, and with its template arguments."""
        self.read_name(node)
        for component in self.parts(node):
            for argument in self.template(component):
                self.walk(argument)

    on_type_identifier = on_identifier = on_template_type = on_template_function = on_qualified_identifier

    def on_field_identifier(self, node: Node) -> None:
        """Find a field whose type the stable ABI lacks."""
        if self.text(node) in self.project.fields:
            self.follow(node, self.text(node), self.broken.get(self.text(node)))

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

    def guess(self, node: Node | None) -> str | None:
        """Return the unsolved line on which the value of an expression depends."""
        names = (self.text(x) for x in (descend(node) if node is not None else ()) if x.type == "identifier")
        return next((self.guessed[name] for name in names if name in self.guessed), None)
