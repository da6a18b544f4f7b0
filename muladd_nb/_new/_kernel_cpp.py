"""The words that fill a kernel's C++ templates: the kernel's parameters, and the code that computes an element."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ._kernel_words import identifiers, named
from ._schema import CPP_KEYWORDS, TYPES, Argument, Schema, functor_name


class Cpp:
    """The C++ of an operator: a name for each argument, and the words that fill the templates."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.results = ["out"] if schema.results == 1 else [f"out{i}" for i in range(schema.results)]
        of_macros = {x.name for x in schema.arguments if x.name.isupper() and len(x.name) > 1}
        taken = identifiers("kernel.h", "kernel.cpp") | CPP_KEYWORDS | of_macros
        taken |= {"errno", "std", "value", "k", functor_name(schema.name), *self.results}
        taken |= {word for type_ in TYPES.values() for word in re.findall(r"\w+", type_.cpp)} | {"optional", "vector"}
        self.names = named({x.name: x.name for x in schema.arguments}, taken)
        taken |= {*self.names.values()}
        self.dense = named({x.name: f"{self.names[x.name]}_dense" for x in schema.written}, taken)
        self.kept = [x for x in schema.arguments if x in schema.factors or x.is_tensor]  # the kernel's parameters

    def words(self) -> dict[str, str]:
        """Return the text for each ``@name@`` of kernel.h, kernel.cpp and kernel.cu."""
        schema, names, results = self.schema, self.names, self.results
        one = schema.first
        first_tensor = names[one.name] + "[0]" * (one.type == "Tensor[]")
        like_it = f"elementwise::empty(kOperator, {first_tensor}, {first_tensor}.sizes())"
        memory = [f".{out} = {out}.mutable_data_ptr()" for out in results]
        write_back = [f"elementwise::write_back({names[x]}, {dense});" for x, dense in self.dense.items()]
        tuple_of = f"std::tuple<{', '.join(['Tensor'] * len(results))}>"
        text = schema.text.replace("\\", "\\\\").replace('"', '\\"')
        return {
            "name": schema.name,
            "stem": schema.stem,
            "functor": functor_name(schema.name),
            "schema": text,
            "space": "" if len(text) <= 66 else "\n    ",  # where clang-format breaks the line
            "parameters": ", ".join(map(self._parameter, schema.arguments)),
            "members": _lines("  ", [*map(self._member, self.kept), *(f"T* {out};" for out in results)]),
            "elements": _lines("    ", self._computation()),
            "check": _lines("  ", self._checks()),
            "contiguous": _lines("  ", self._contiguous()),
            "allocate": _lines("  ", [f"Tensor {out} = {like_it};" for out in results]),
            "given": _lines("      ", [f"{x}," for x in [*map(self._initializer, self.kept), *memory]]),
            "first": first_tensor,
            "write_back": _lines("  ", write_back),
            "return": {0: "", 1: "  return out;"}.get(len(results), f"  return {{{', '.join(results)}}};"),
            "result": {0: "void", 1: "Tensor"}.get(len(results), tuple_of),
        }

    def _parameter(self, x: Argument) -> str:
        type_ = TYPES[x.base].cpp
        for suffix in re.findall(r"\?|\[\]", x.type):
            type_ = f"std::{'optional' if suffix == '?' else 'vector'}<{type_}>"
        return f"{'[[maybe_unused]] ' * (x not in self.kept)}{type_} {self.names[x.name]}"

    def _member(self, x: Argument) -> str:
        const = "" if x.is_written else "const "
        if x.type == "Tensor[]":
            return f"elementwise::Pointers<{const}T> {self.names[x.name]};"
        return f"{const}T* {self.names[x.name]};" if x.is_tensor else f"{TYPES[x.base].cpp} {self.names[x.name]};"

    def _initializer(self, x: Argument) -> str:
        name = self.names[x.name]
        if not x.is_tensor:
            return f".{name} = {name}{'.value_or(1)' * x.type.endswith('?')}"
        of_list = f'kOperator, "{x.name}", ' if x.type == "Tensor[]" else ""
        return f".{name} = elementwise::{'mutable_' * x.is_written}data({of_list}{self.dense.get(x.name, name)})"

    def _computation(self) -> list[str]:
        """Return statements: the product of the required factors, then of the optional ones, then the writes."""
        always = [x for x in self.schema.factors if x.type not in ("Tensor?", "Tensor[]")]
        product = " * ".join(f"static_cast<C>({self.names[x.name]}{'[i]' * x.is_tensor})" for x in always)
        lines = [f"C value = {product or '1'};"]
        for x in self.schema.factors:
            if x not in always:
                where, element = self._each(x)
                lines.append(f"{where}value *= static_cast<C>({element});")
        for x in self.schema.written:
            where, element = self._each(x)
            lines.append(f"{where}{element} = static_cast<T>(static_cast<C>({element}) * value);")
        return lines + [f"{out}[i] = static_cast<T>(value);" for out in self.results]

    def _each(self, x: Argument) -> tuple[str, str]:
        """Return the start of a statement for each tensor of an argument, and the expression for its element there."""
        name = self.names[x.name]
        if x.type == "Tensor[]":
            return f"for (int64_t k = 0; k < {name}.count; k++) ", f"{name}.of[k][i]"
        return f"if ({name}) " if x.type == "Tensor?" else "", f"{name}[i]"

    def _checks(self) -> list[str]:
        schema, one = self.schema, self.schema.first
        lines = []
        if one.type == "Tensor[]":
            sentence = f'"{one.name} must have a tensor, got none"'
            lines.append(f"if ({self.names[one.name]}.empty()) elementwise::contract::fail(kOperator, {sentence});")
        lines.append(f"elementwise::check_alike(kOperator, {self._list(x for x in schema.arguments if x.is_tensor)});")
        if schema.written:
            both = f"{self._list(schema.written)}, {self._list(schema.read)}"
            lines.append(f"elementwise::check_written(kOperator, {both});")
        return lines

    def _list(self, arguments: Iterable[Argument]) -> str:
        items = (f'{{"{x.name}", {self.names[x.name]}}}' for x in arguments)
        return f"{{{', '.join(items)}}}"

    def _contiguous(self) -> list[str]:
        names = self.names
        lines = [f"{names[x.name]} = elementwise::contiguous({names[x.name]});" for x in self.schema.read]
        if self.dense:
            lines.append("// If a tensor to write to is not contiguous, the kernel writes to a copy of it.")
        return lines + [f"auto {dense} = elementwise::contiguous({names[x]});" for x, dense in self.dense.items()]


def _lines(margin: str, lines: Iterable[str]) -> str:
    return "\n".join(f"{margin}{line}" for line in lines)
