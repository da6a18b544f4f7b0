"""Write the entries of an operator with a functor, element-wise or over rows, into the files of a project.

The new operator multiplies its arguments. Over rows it divides that product by sqrt(1 + the mean of its squares), or
returns the mean of its squares. So the project works at once, and the author then changes the functor, the reference
and the test.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Sequence
from operator import attrgetter

from ._kernel_words import in_lines
from ._schema import REQUIRED, TYPES, Argument, Schema, functor_name

# For each argument that says how an operator reduces, a test passes one of these.
_REDUCES = {
    "dim": "either(-1, 0)",
    "normalized_shape": "either([*tensor.shape[-1:]], [*tensor.shape[-2:]])",
    "keepdim": "either(False, True)",
}

# The types of a functor's parameters. A Tensor and a float become C.
_CPP = {"Tensor?": "elementwise::Optional<C>", "int": "int64_t", "SymInt[]": "int64_t", "bool": "bool"}

Files = dict[str, str]
ROW_H = '#include "elementwise/rows/row.h"\n'  # functors.h needs it for functors over rows


def add(files: Files, schema: Schema, package: str) -> None:
    """Add an operator with a functor to the files of a project; raise ``ValueError`` if it does not fit into them."""
    functor = functor_name(schema.operator)
    refuse_another(files, schema, package)
    differentiable = f"functional{' | writing | out' * (schema.results == 1)} | differentiable"
    forms = differentiable if schema.results else "writing"
    forms = "updating" if schema.written else forms
    entry = f'Operator<"{schema.declaration}", {functor}, {forms}>'
    made = _functor_over_rows(schema, functor) if schema.is_over_rows else _functor(schema, functor)
    _edit(files, "src/functors.h", r"(\n)(} // namespace)", lambda m: f"{m[1]}{made}\n{m[2]}")
    if schema.is_over_rows and ROW_H not in files["src/functors.h"]:
        _edit(files, "src/functors.h", r"(?s)(.*^#include .*?\n)", lambda m: m[1] + ROW_H)
    # The list ends with an entry, or is empty. The author's comments may follow.
    end = r"([<>])((?:\s*//.*)*)\s*(\n>;)"
    _edit(files, "src/operators.h", end, lambda m: f"{m[1]}{',' * (m[1] == '>')}{m[2]}\n    {entry}{m[3]}")
    append(files, f"python/{package}/_operators.py", "TABLE", f'"{schema.declaration}": Elementwise()')
    _add_public(files, schema, package)
    _add_test(files, schema, package)


def refuse_another(files: Files, schema: Schema, package: str) -> None:
    """Raise ``ValueError`` if an operator or a functor with the same name exists already."""
    names = {schema.name, f"{schema.name}_out" if schema.results or schema.written else schema.operator}
    declared = in_table(files, package)
    public = re.findall(r"^def (\w+)", files[f"python/{package}/ops.py"], re.MULTILINE)
    there = {*declared, *(f"{name}_out" for name in declared), *public}
    if taken := sorted(names & there):
        raise ValueError(f"{taken[0]} is there already; remove it first, or choose another name than {schema.name}")
    functor = functor_name(schema.operator)
    for path, text in files.items():
        if path.startswith("src/") and "/elementwise/" not in path and re.search(rf"\bstruct {functor}\b", text):
            raise ValueError(f"{path} has a functor {functor} already, and {schema.name} needs that name")


def in_table(files: Files, package: str) -> list[str]:
    """Return the names of the element-wise operators that a project has."""
    from ._torch_names import parse_schema

    path = f"python/{package}/_operators.py"
    try:
        return [parse_schema(f"{ast.literal_eval(key)} -> ()").name for key, _ in items(files, path, "TABLE")]
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}; nothing is changed") from None
    except (ValueError, RuntimeError):
        raise ValueError(f"{path} is not as it was written: there is no one TABLE of declarations") from None


def items(files: Files, path: str, name: str) -> list[tuple[ast.expr, ast.expr]]:
    """Return the keys and values of the dict that is assigned to a name, or the items of a list, each twice."""
    for node in ast.parse(files[path], path).body:
        targets: Sequence[ast.expr] = getattr(node, "targets", [getattr(node, "target", None)])
        value = getattr(node, "value", None)
        if any(isinstance(x, ast.Name) and x.id == name for x in targets):
            if isinstance(value, ast.List):
                return [(item, item) for item in value.elts]
            if isinstance(value, ast.Dict):
                return [(key, of_key) for key, of_key in zip(value.keys, value.values, strict=True) if key]
    raise ValueError(f"{path} is not as it was written: there is no {name}")


def _add_public(files: Files, schema: Schema, package: str) -> None:
    """Add the public function of an operator."""
    items, product = parameters(schema), f"``{_computes(schema)[0]}``"
    if schema.written:
        names = ", ".join(f"``{x.name}``" for x in schema.written)
        root = f"``{_ROOT.format(_product(schema))}``"
        does = f"Divide {names} by {root}" if schema.is_over_rows else f"Multiply {names} by the others"
    elif schema.results == 0:
        items, does = [*items, "out: Tensor"], f"Write {product} to ``out``"
    elif schema.results == 1:
        star = ["*"] * ("*" not in items)
        items, does = [*items, *star, "out: Tensor | None = None"], f"Return {product}"
    else:
        does = f"Return {product}, {schema.results} times"
    add_function(files, schema, package, items, does)


def add_function(files: Files, schema: Schema, package: str, items: list[str], does: str) -> None:
    """Add a public function with these parameters, and the imports of its annotations."""
    path = f"python/{package}/ops.py"
    annotations = " ".join(item.partition(" = ")[0].partition(": ")[2] for item in items)
    for name, line in (("Sequence", "from collections.abc import Sequence\n\n"), ("torch", "import torch\n")):
        if re.search(rf"\b{name}\b", annotations) and line.strip() not in files[path]:
            files[path] = re.sub(r"^(?=from torch import Tensor$)", line, files[path], count=1, flags=re.MULTILINE)
    append(files, path, "__all__", f'"{schema.name}"')
    head = in_lines(f"def {schema.name}(", items, f") -> {schema.returns}:")
    files[path] += f'\n\n@public(FORMS)\n{head}\n    """{does}."""\n'


def parameters(schema: Schema) -> list[str]:
    """Return the parameters of the public function of an operator."""
    items: list[str] = []
    for x in schema.arguments:
        if x.is_keyword and "*" not in items:
            items.append("*")
        # torch takes any sequence. A type checker does not take a list[Parameter] or a torch.Size for a list[Tensor].
        annotation = x.annotation.replace("list[", "Sequence[")
        # A mutable default would be shared by all calls.
        default = tuple(x.default) if isinstance(x.default, list) else x.default
        items.append(f"{x.name}: {annotation}" + (f" = {_literal(default)}" if default is not REQUIRED else ""))
    return items


def _literal(default: object) -> str:
    is_plain = isinstance(default, str) and default.isprintable() and not {'"', "\\"} & set(default)
    return f'"{default}"' if is_plain else repr(default)


def _add_test(files: Files, schema: Schema, package: str) -> None:
    """Add the test of an operator, and its line of the README."""
    names = ", ".join(argument.name for argument in schema.arguments)
    values = _over_rows_in_python(schema) if schema.is_over_rows else _values(schema, _in_python)
    value = _in_tuple(values) if schema.written or schema.results > 1 else values[0]
    add_case(files, schema, package, f"        reference=lambda {names}: {value},")
    add_line(files, schema, package, f"`{', '.join(dict.fromkeys(_computes(schema)))}`")


def add_case(files: Files, schema: Schema, package: str, reference: str, more: str = "") -> None:
    """Add the ``Case`` of an operator to the tests."""
    examples = [_REDUCES[x.name] if x.name in schema.reduces else _example(x) for x in schema.arguments]
    case = f"""\
Case(
        {package}.{schema.name},
{reference}
        arguments=lambda tensor, either: {_in_tuple(examples)},{more}
    )"""
    append(files, "tests/operators.py", "OPERATORS", case)


def _in_tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def _example(x: Argument) -> str:
    of_type = TYPES[x.base]
    example = of_type.example
    if "[]" in x.type:
        example = f"[{of_type.elements or f'{example}, {example}'}]"
    if not x.type.endswith("?"):
        return example
    inner = re.fullmatch(r"either\((.*?), .*\)", example)
    return f"either({inner[1] if inner else example}, None)"


def add_line(files: Files, schema: Schema, package: str, does: str) -> None:
    """Add a function to the table of the README, if the README still has that table."""
    table = r"\| function \| what it computes \|\n\|---\|---\|\n(?:\|.*\n)*"
    if "README.md" in files:
        called = [item.partition(":")[0] for item in parameters(schema)]
        if not (schema.results or schema.written):
            called.append("out")
        line = f"| `{package}.{schema.name}({', '.join(called)})` | {does} |\n"
        files["README.md"] = re.sub(table, lambda m: m[0] + line, files["README.md"], count=1)


def append(files: Files, path: str, name: str, item: str) -> None:
    """Append an item to the list, dict or Meson's files() that is assigned to ``name`` in a file."""
    pattern = rf"^({name}\b.* = (?:files)?[\[{{(])(|\n(?:.*\n)*?)([\]}})])$"
    indented = " " * (2 if path.endswith(".build") else 4) + item
    expected = f"; {name} must have each entry on a line of its own"
    _edit(files, path, pattern, lambda m: f"{m[1]}{m[2] or chr(10)}{indented},\n{m[3]}", expected)


def _in_python(argument: Argument) -> str:
    return f"(1 if {argument.name} is None else {argument.name})" if argument.type == "Tensor?" else argument.name


def _in_cpp(argument: Argument) -> str:
    return f"{argument.name}.value_or(1)" if argument.type == "Tensor?" else argument.name


def _product(schema: Schema, factor: Callable[[Argument], str] = attrgetter("name")) -> str:
    """Return the product of the arguments of an operator."""
    return " * ".join(factor(x) for x in schema.arguments if x.name not in schema.reduces)


def _values(schema: Schema, factor: Callable[[Argument], str] = attrgetter("name")) -> list[str]:
    """Return what a new element-wise operator computes: each result, or the new value of each argument it updates."""
    read = [factor(x) for x in schema.arguments if not x.is_written]
    if schema.written:
        return [" * ".join([x.name, *read]) for x in schema.written]
    return [" * ".join(read)] * (schema.results or 1)


def _functor(schema: Schema, functor: str) -> str:
    parameters = ", ".join(f"{_CPP.get(argument.type, 'C')} {argument.name}" for argument in schema.arguments)
    values, product = _values(schema, _in_cpp), ""
    if schema.results > 1:
        product, values = f"    const C product_ = {values[0]};\n", ["product_"] * schema.results
    result, returned = _returned("C", values)
    return f"""\
struct {functor} {{
  template <class C>
  ELEMENTWISE_FUNCTION {result} operator()({parameters}) const {{
{product}    return {returned};
  }}
}};
"""


def _returned(type_: str, values: list[str]) -> tuple[str, str]:
    """Return the type that a functor returns, and the expression, for one or several values of one type."""
    if len(values) == 1:
        return type_, values[0]
    return f"elementwise::Results<{', '.join([type_] * len(values))}>", f"{{{', '.join(values)}}}"


# A new operator over rows divides the product of its arguments by this, or returns the product's mean square.
_ROOT = "sqrt(1 + mean of ({}) ** 2)"


def _computes(schema: Schema) -> list[str]:
    """Return what a new operator computes, as :func:`_values` does, for its documentation."""
    product = _product(schema)
    if not schema.is_over_rows:
        return _values(schema)
    if schema.is_of_row:
        return [f"mean of ({product}) ** 2"]
    return [f"{x} / {_ROOT.format(product)}" for x in [y.name for y in schema.written] or [product]]


def _over_rows_in_python(schema: Schema) -> list[str]:
    product, dim = _product(schema, factor=_in_python), "dim" if "dim" in schema.reduces else "-1"
    dim = "[*range(-len(normalized_shape), 0)]" if "normalized_shape" in schema.reduces else dim
    if schema.is_of_row:
        return [f"({product}).square().mean({dim}, keepdim)"] * schema.results
    factor = f"(1 + ({product}).square().mean({dim}, True)).rsqrt()"
    return [f"{x} * {factor}" for x in [y.name for y in schema.written] or [product] * (schema.results or 1)]


def _functor_over_rows(schema: Schema, functor: str) -> str:
    types = _CPP | {"Tensor": "elementwise::Elements<C>", "Tensor?": "elementwise::Optional<elementwise::Elements<C>>"}
    taken = [
        f"{types.get(x.type, 'C')} " + (f"/*{x.name}*/" if x.name in schema.reduces else x.name)
        for x in schema.arguments
    ]
    tensors = [x for x in schema.arguments if x.is_tensor]
    of_one = ", ".join(f"{_CPP.get(x.type, 'C')} {x.name}" for x in tensors)
    names = ", ".join(x.name for x in tensors)
    type_, factor = "elementwise::Elements<C>", "    const C factor_ = elementwise::rsqrt(mean_square_ + 1);\n"
    if schema.is_of_row:
        type_, factor, values = "C", "", ["mean_square_"] * schema.results
    elif schema.written:
        values = [f"row.each([=](C {x.name}) {{ return {x.name} * factor_; }}, {x.name})" for x in schema.written]
    else:
        values = ["row.each([=](C y) { return y * factor_; }, product_)"] * (schema.results or 1)
    result, returned = _returned(type_, values)
    head = f"  ELEMENTWISE_FUNCTION {result} operator()("
    listed, tail = ", ".join(["Row& row", *taken]), ") const {"
    if len(head + listed + tail) > 120:  # clang-format breaks the line like this
        words = listed.replace(", ", ",\n").replace(" ", "\0").replace("\n", " ")
        listed = "\n" + textwrap.fill(words, 120, initial_indent=6 * " ", subsequent_indent=6 * " ").replace("\0", " ")
    return f"""\
struct {functor} {{
  template <class C, class Row>
{head}{listed}{tail}
    const auto product_ = row.keep([=]({of_one}) {{ return {_product(schema, factor=_in_cpp)}; }}, {names});
    const C mean_square_ = row.sum([](C y) {{ return y * y; }}, product_) / row.size();
{factor}    return {returned};
  }}
}};
"""


def _edit(
    files: Files, path: str, pattern: str, replacement: Callable[[re.Match[str]], str], expected: str = ""
) -> None:
    text, count = re.subn(pattern, replacement, files[path], flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{path} is not as it was written: there is no one place to add an operator{expected}")
    files[path] = text
