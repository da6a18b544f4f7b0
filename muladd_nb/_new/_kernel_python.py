"""The words that fill a kernel's Python template: fake kernel, batching rule, and the derivative of a product."""

from __future__ import annotations

import keyword

from ._kernel_words import fill, identifiers, in_lines, named, template
from ._schema import Argument, Schema

_CASTS = """\
# In an autocast region: "cast" the tensors to its dtype, cast them to "float32", as PyTorch does for sums, norms and
# losses, or "leave" them. The Case in tests/operators.py says the same.
FORM = Kernel.of(OP, DTYPES, autocast="cast")"""
_WRITES = """\
# An autocast region casts the tensors that are read to the dtype of the one that is written.
FORM = Kernel.of(OP, DTYPES)"""


class Python:
    """The Python of an operator: a name for each argument, and the words that fill the template."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.grads = ["grad"] if schema.results == 1 else [f"grad{i}" for i in range(schema.results)]
        taken = identifiers("kernel.py.in", "derivative.py.in") | {*keyword.kwlist, *self.grads}
        taken |= {"list", "tuple", "str", "int", "float", "bool", "Kernel", "product", "grad", "tangent"}
        self.names = named({x.name: x.name for x in schema.arguments}, taken)
        taken |= {*self.names.values()}
        self.tangents = named({x: f"{name}_tangent" for x, name in self.names.items()}, taken)

    def words(self) -> dict[str, str]:
        """Return the text for each ``@name@`` of kernel.py.in."""
        schema, names = self.schema, self.names
        one = schema.first
        first_tensor = names[one.name] + "[0]" * (one.type == "Tensor[]")
        made = ", ".join([f"{first_tensor}.new_empty({first_tensor}.shape)"] * schema.results)
        returns = f"    # The strides of the real result: compiled code relies on them.\n    return {made}"
        check = f"    FORM.check({', '.join(names.values())})"
        parameters = [f"{names[x.name]}: {x.annotation}" for x in schema.arguments]
        # An operator that writes, or takes a list, gets no derivative.
        is_differentiable = not schema.written and not any(x.type == "Tensor[]" for x in schema.arguments)
        derivative = self._derivative() if is_differentiable else ""
        imports = f"from ._layer.kernel import Kernel{', product' * ('product(' in derivative)}"
        if is_differentiable:
            imports = f"from ._layer.derivative import derivative\n{imports}"
        elif not schema.written:
            derivative = (
                "\n\n# Autograd has no gradient for a list. For a derivative, take the tensors one by one.\n"
                "FORM.without_derivative()"
            )
        return {
            "and_derivative": ", a batching rule and a derivative" if is_differentiable else " and a batching rule",
            "imports": imports,
            "autocast": _WRITES if schema.written else _CASTS,
            "define_fake": in_lines("def _fake(", parameters, f") -> {schema.returns}:"),
            "check_fake": f"    # The same checks as in src/{schema.stem}.cpp.\n{check}",
            "fake_returns": returns if schema.results else "",
            "out_dims": {0: "None", 1: "0"}.get(schema.results, f"({', '.join('0' * schema.results)})"),
            "derivative": derivative,
        }

    def _derivative(self) -> str:
        """Return the derivative of the product: the gradient or the tangent, times the other factors."""
        schema, names, tangents = self.schema, self.names, self.tangents
        required = [x for x in schema.read if x.type == "Tensor"]
        optional = [x for x in schema.read if x.type == "Tensor?"]
        parameters = ["needs: tuple[bool, ...]", "saved: tuple[Any, ...]", *(f"{x}: Tensor" for x in self.grads)]
        more = [
            f"    if {names[x.name]} is not None:\n        tangent = tangent + {self._times(tangents[x.name], x)}"
            for x in optional
        ]
        unpacked = [tangents[x.name] if x.is_tensor else "_" for x in schema.arguments]
        words = {
            "define_vjp": f"def _vjp({', '.join(parameters)}) -> tuple[Tensor | None, ...]:",
            "unpack_saved": f"{_unpacked([*names.values()])} = saved",
            "gradients": _returned([self._gradient(x) for x in schema.arguments]),
            "python_result": schema.returns,
            "unpack_tangents": f"{_unpacked(unpacked)} = tangents",
            "first_tangent": _sum("tangent", [self._times(tangents[x.name], x) for x in required]),
            "more_tangents": "\n".join(more),
            "tangents_returned": ", ".join(["tangent", *["tangent.clone()"] * (schema.results - 1)]),
        }
        return fill(template("derivative.py.in").rstrip("\n"), words)

    def _times(self, factor: str, without: Argument) -> str:
        others = [self.names[x.name] for x in self.schema.factors if x is not without]
        return f"{factor} * product({', '.join(others)})" if others else factor

    def _gradient(self, x: Argument) -> str:
        if not x.is_tensor:
            return "None"
        grad = self.grads[0] if len(self.grads) == 1 else f"({' + '.join(self.grads)})"
        absent = f"None if {self.names[x.name]} is None else " if x.type == "Tensor?" else ""
        return absent + self._times(grad, x)


def _unpacked(names: list[str]) -> str:
    return ", ".join(names) if len(names) > 1 else f"({names[0]},)"


def _returned(items: list[str]) -> str:
    if len(items) == 1:
        return f"    return ({items[0]},)"
    return "\n".join(["    return (", *(f"        {item}," for item in items), "    )"])


def _sum(name: str, terms: list[str]) -> str:
    line = f"{name} = {' + '.join(terms)}"
    inside = "\n        + ".join(terms)
    return line if len(line) <= 116 else f"{name} = (\n        {inside}\n    )"
