"""The type of an expression, as far as a port needs it, in one word.

Tensor, Tensor[], Tensor?, tuple (of tensors), sizes, options, dtype, device, stream; other; or "" if it is unknown.
"""

from __future__ import annotations

from ._names import ROOTS, Names
from ._source import Node, Source, part
from ._table import table

TYPES = {
    "TensorList": "Tensor[]", "variable_list": "Tensor[]", "tensor_list": "Tensor[]", "TensorOptions": "options",
    "IntArrayRef": "sizes", "IntHeaderOnlyArrayRef": "sizes", "Device": "device", "CUDAStream": "stream",
}  # fmt: skip
OF_TENSORS = {
    "optional": "Tensor?", "vector": "Tensor[]", "ArrayRef": "Tensor[]", "array": "Tensor[]",
    "HeaderOnlyArrayRef": "Tensor[]", "shared_ptr": "Tensor?", "unique_ptr": "Tensor?", "MaybeOwned": "Tensor?",
}  # fmt: skip
# Methods of a tensor that return something else. We assume that all others return tensors.
RETURNS = {
    "device": "device", "dtype": "dtype", "scalar_type": "dtype", "type": "dtype", "options": "options",
    "sizes": "sizes", "strides": "sizes", "unbind": "Tensor[]", "chunk": "Tensor[]", "split": "Tensor[]",
    "accessor": "accessor", "packed_accessor32": "accessor", "packed_accessor64": "accessor",
} | dict.fromkeys(
    """size stride dim ndimension numel nbytes itemsize element_size get_device get_device_index is_cuda is_cpu defined
    is_contiguous data_ptr data mutable_data_ptr const_data_ptr item layout storage_offset requires_grad is_sparse
    has_storage storage unsafeGetTensorImpl toString name use_count is_same is_floating_point is_complex""".split(),  # noqa: SIM905
    "other",
)  # fmt: skip
# Methods that other classes have too. If the type of the object is unknown, it does not count as a tensor.
COMMON = frozenset(
    """size data begin end at back front push_back emplace_back value has_value value_or find insert erase resize clear
    count first second sum min max index swap get reset type copy fill exp log sqrt abs str c_str substr empty apply
    name add mul sub div stream id to set write read open close load store update item map all any length rank run
    pop push top lock unlock join def impl arg layout device view select sort split t""".split()  # noqa: SIM905
)
LITERALS = ("true", "false", "lambda_expression", "new_expression", "cast_expression", "sizeof_expression")


class Types(Names):
    """Finds the type of an expression."""

    def type_of(self, node: Node | None) -> str:
        """Return the type of an expression."""
        if node is None:
            return ""
        match node.type:
            case "identifier":
                return self.local(self.text(node)) or ""
            case "parenthesized_expression":
                return self.type_of(node.named_children[0] if node.named_children else None)
            case "assignment_expression":
                return self.type_of(part(node, "left"))
            case "conditional_expression":
                return self.type_of(part(node, "consequence")) or self.type_of(part(node, "alternative"))
            case "subscript_expression":
                of = self.type_of(part(node, "argument"))
                return "Tensor" if of in ("Tensor", "Tensor[]") else "other" if of == "sizes" else ""
            case "pointer_expression":
                return "Tensor" if self.type_of(part(node, "argument")) == "Tensor?" else ""
            case "binary_expression":
                sides = (self.type_of(part(node, "left")), self.type_of(part(node, "right")))
                operator = self.text(part(node, "operator") or node)
                return "Tensor" if "Tensor" in sides and operator not in ("<<", "&&", "||") else "other"
            case "unary_expression":
                return self.type_of(part(node, "argument"))
            case "field_expression":
                field = part(node, "field")
                return self.agreed(self.project.fields.get(self.text(field), [])) if field else ""
            case "call_expression":
                function = part(node, "function")
                if function is not None and function.type == "lambda_expression":  # what replaces a stream
                    return "stream" if "get_current_cuda_stream" in self.text(function) else ""
                if function is not None and function.type == "field_expression":
                    return self.type_of_method(function)
                return self.type_of_call(node)
            case kind:
                return "other" if kind.endswith("_literal") or kind in LITERALS else ""

    def type_of_method(self, function: Node) -> str:
        """Return what the call of a method returns."""
        this, field = part(function, "argument"), part(function, "field")
        if this is None or field is None:
            return ""
        name, of = self.text(self.component(field)), self.type_of(this)
        if of == "Tensor?" and function.children[1].type == "->":
            of = "Tensor"
        if of == "Tensor" or (not of and name in table().aten and name not in COMMON):
            return RETURNS.get(name, "Tensor")
        if of in ("Tensor?", "Tensor[]"):
            return "Tensor" if name in ("value", "value_or", "at", "front", "back", "get") else "other"
        if of == "device" and name == "type":
            return "device type"
        return of if of in ("", "options") else "other"

    def type_of_call(self, node: Node) -> str:
        """Return what the call of a function returns."""
        function, arguments = part(node, "function"), part(node, "arguments")
        if function is None or arguments is None:
            return ""
        nodes = self.parts(function)
        full = self.resolve(nodes, called=True)
        name = self.text(self.component(nodes[-1]))
        inner = [self.type_of(x) for x in arguments.named_children]
        if full and full[0] == "std":
            if name == "get":
                return "Tensor" if inner and inner[0] == "tuple" else ""
            if name in ("move", "forward") and inner:
                return inner[0]
            return "tuple" if name in ("make_tuple", "tie", "make_pair") and "Tensor" in inner else "other"
        if full and full[0] in ROOTS:
            if name in ("TensorOptions", "dtype", "device"):
                return "options"
            if name == "getCurrentCUDAStream":
                return "stream"
            if name in ("Tensor", "Variable"):
                return "Tensor"
            if full[:2] == ("torch", "stable") or name in table().aten or ("factory", name) in table().rows:
                return "Tensor" if RETURNS.get(name, "Tensor") != "other" else "other"
            return ""
        if self.local(name) is not None:
            return ""
        if declarations := self.project.functions.get(name):
            return self.agreed(declarations)
        return "Tensor" if "Tensor" in inner and name in table().aten and name not in COMMON else ""

    def type_of_type(self, node: Node | None) -> str:
        """Return the word for a type."""
        if node is None:
            return "other"
        if node.type in ("placeholder_type_specifier", "auto", "decltype"):
            return ""
        if node.type == "type_descriptor":
            return self.type_of_type(part(node, "type"))
        nodes = self.parts(node)
        full = self.resolve(nodes, called=False)
        name = full[-1] if full else self.text(self.component(nodes[-1]))
        if name in ("Tensor", "Variable", "TensorBase") and full:
            return "Tensor"
        if name in TYPES:
            return TYPES[name]
        inner = [self.type_of_type(x) for x in self.template(nodes[-1])]
        with self.project.alias(name) as alias:
            if alias is not None:
                return self.agreed([alias])
        if "Tensor" in inner:
            return OF_TENSORS.get(name, "tuple")
        if "Tensor[]" in inner and name == "optional":
            return "Tensor[]"
        return "" if {"Tensor?", "Tensor[]", "tuple"} & set(inner) else "other"

    def agreed(self, declarations: list[tuple[Source, Node]]) -> str:
        """Return the type that all declarations of a name have, or "" if they differ."""
        found = {self.in_file(source).type_of_type(part(node, "type")) for source, node in declarations}
        return found.pop() if len(found) == 1 else ""

    def in_file(self, source: Source) -> Types:
        """Return what resolves the names of another file of the project."""
        return self if source is self.source else Types(source, self.project, self.target, {})
