"""Write the entries of an operator with a functor, element-wise or over rows, into the files of a project.

The new operator multiplies its arguments. Over rows it divides that product by sqrt(1 + the mean of its squares), or
returns the mean of its squares. So the project works at once, and the author then changes the functor, the reference
and the test.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable

from ._kernel_words import in_lines
from ._schema import REQUIRED, Argument, Schema, functor_name

# For each type, the argument that a test passes; _ELEMENTS has the elements of lists.
_EXAMPLES = {
    "Tensor": "tensor()",
    "float": "either(1.5, 0.5)",
    "int": "either(2, -1)",
    "bool": "either(True, False)",
    "str": '"text"',
    "ScalarType": "torch.float32",
    "Device": 'torch.device("cpu")',
    "Layout": "torch.strided",
    "MemoryFormat": "torch.contiguous_format",
}
_REDUCES = {
    "dim": "either(-1, 0)",
    "normalized_shape": "either([*tensor.shape[-1:]], [*tensor.shape[-2:]])",
    "keepdim": "either(False, True)",
}
_ELEMENTS = {"Tensor": "tensor(), tensor()", "float": "1.5, 0.5", "int": "2, 3", "bool": "True, False"}

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
    _edit(files, "src/operators.h", r"([<>])(\n>;)", lambda m: f"{m[1]}{',' * (m[1] == '>')}\n    {entry}{m[2]}")
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
        assigned = [x for x in ast.parse(files[path]).body if isinstance(x, (ast.Assign, ast.AnnAssign))]
        (table,) = (x.value for x in assigned if isinstance(x.value, ast.Dict) and ast.unparse(x).startswith("TABLE"))
        return [parse_schema(f"{ast.literal_eval(key)} -> ()").name for key in table.keys if key]
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}; nothing is changed") from None
    except (ValueError, RuntimeError):
        raise ValueError(f"{path} is not as it was written: there is no one TABLE of declarations") from None


def _add_public(files: Files, schema: Schema, package: str) -> None:
    """Add the public function of an operator."""
    items, product = parameters(schema), f"``{_computes(schema)}``"
    star = ["*"] * ("*" not in items)
    more, does = {
        0: (["out: Tensor"], f"Write {product} to ``out``"),
        1: ([*star, "out: Tensor | None = None"], f"Return {product}"),
    }.get(schema.results, ([], f"Return {product}, {schema.results} times"))
    if schema.written:
        names = ", ".join(f"``{x.name}``" for x in schema.written)
        more, does = [], f"Multiply {names} by the others"
        if schema.is_over_rows:
            does = f"Divide {names} by ``{_ROOT.format(_product(schema))}``"
    add_function(files, schema, package, [*items, *more], does)


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
    value = _product(schema, factor=_in_python)
    if schema.is_over_rows:
        value = _over_rows_in_python(schema, value)
    elif schema.written or schema.results > 1:
        value = _in_tuple(_become(schema, _in_python) or [value] * schema.results)
    add_case(files, schema, package, f"        reference=lambda {names}: {value},")
    called = ", ".join(item.partition(":")[0] for item in parameters(schema))
    if not (schema.results or schema.written):
        called += ", out"
    what = ", ".join(_become(schema)) if schema.written else _computes(schema)
    add_line(files, f"{package}.{schema.name}({called})", f"`{what}`")


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
    single = _EXAMPLES[x.base]
    example = f"[{_ELEMENTS.get(x.base, f'{single}, {single}')}]" if "[]" in x.type else single
    if not x.type.endswith("?"):
        return example
    inner = re.fullmatch(r"either\((.*?), .*\)", example)
    return f"either({inner[1] if inner else example}, None)"


def add_line(files: Files, call: str, does: str) -> None:
    """Add a function to the table of the README, if the README still has that table."""
    table = r"\| function \| what it computes \|\n\|---\|---\|\n(?:\|.*\n)*"
    if "README.md" in files:
        line = f"| `{call}` | {does} |\n"
        files["README.md"] = re.sub(table, lambda m: m[0] + line, files["README.md"], count=1)


def append(files: Files, path: str, name: str, item: str) -> None:
    """Append an item to the list, dict or Meson's files() that is assigned to ``name`` in a file."""
    pattern = rf"^({name}\b.* = (?:files)?[\[{{(])(|\n(?:.*\n)*?)([\]}})])$"
    indented = " " * _indentation(path) + item
    expected = f"; {name} must have each entry on a line of its own"
    _edit(files, path, pattern, lambda m: f"{m[1]}{m[2] or chr(10)}{indented},\n{m[3]}", expected)


def _name(argument: Argument) -> str:
    return argument.name


def _in_python(argument: Argument) -> str:
    return f"(1 if {argument.name} is None else {argument.name})" if argument.type == "Tensor?" else argument.name


def _in_cpp(argument: Argument) -> str:
    return f"{argument.name}.value_or(1)" if argument.type == "Tensor?" else argument.name


def _product(schema: Schema, factor: Callable[[Argument], str] = _name) -> str:
    """Return the product of the arguments of an operator."""
    return " * ".join(factor(x) for x in schema.arguments if x.name not in schema.reduces)


def _become(schema: Schema, factor: Callable[[Argument], str] = _name) -> list[str]:
    """Return the new value that a generated functor gives to each argument that it updates."""
    read = [factor(argument) for argument in schema.arguments if not argument.is_written]
    if schema.is_over_rows:
        return [f"{x.name} / {_ROOT.format(_product(schema))}" for x in schema.written]
    return [" * ".join([x.name, *read]) for x in schema.written]


def _functor(schema: Schema, functor: str) -> str:
    parameters = ", ".join(f"{_CPP.get(argument.type, 'C')} {argument.name}" for argument in schema.arguments)
    value_of_all = _product(schema, factor=_in_cpp)
    result, value = "C", f"return {value_of_all};"
    if schema.results > 1:
        result = f"elementwise::Results<{', '.join(['C'] * schema.results)}>"
        value = f"const C product_ = {value_of_all};\n    return {{{', '.join(['product_'] * schema.results)}}};"
    if schema.written:
        many = len(schema.written) > 1
        result = f"elementwise::Results<{', '.join(['C'] * len(schema.written))}>" if many else "C"
        value = ", ".join(_become(schema, _in_cpp))
        value = f"return {{{value}}};" if many else f"return {value};"
    return f"""\
struct {functor} {{
  template <class C>
  ELEMENTWISE_FUNCTION {result} operator()({parameters}) const {{
    {value}
  }}
}};
"""


# A new operator over rows divides the product of its arguments by this, or returns the product's mean square.
_ROOT = "sqrt(1 + mean of ({}) ** 2)"


def _computes(schema: Schema) -> str:
    """Return the expression that a new operator computes, for its documentation."""
    product = _product(schema)
    if not schema.is_over_rows:
        return product
    return f"mean of ({product}) ** 2" if schema.is_of_row else f"{product} / {_ROOT.format(product)}"


def _over_rows_in_python(schema: Schema, product: str) -> str:
    dim = "dim" if "dim" in schema.reduces else "-1"
    dim = "[*range(-len(normalized_shape), 0)]" if "normalized_shape" in schema.reduces else dim
    if schema.is_of_row:
        value = f"({product}).square().mean({dim}, keepdim)"
        return _in_tuple([value] * schema.results) if schema.results > 1 else value
    factor = f"(1 + ({product}).square().mean({dim}, True)).rsqrt()"
    if schema.written:
        return _in_tuple([f"{x.name} * {factor}" for x in schema.written])
    value = f"{product} * {factor}"
    return _in_tuple([value] * schema.results) if schema.results > 1 else value


def _functor_over_rows(schema: Schema, functor: str) -> str:
    types = _CPP | {"Tensor": "elementwise::Elements<C>", "Tensor?": "elementwise::Optional<elementwise::Elements<C>>"}
    taken = [
        f"{types.get(x.type, 'C')} " + (f"/*{x.name}*/" if x.name in schema.reduces else x.name)
        for x in schema.arguments
    ]
    tensors = [x for x in schema.arguments if x.is_tensor]
    of_one = ", ".join(f"{_CPP.get(x.type, 'C')} {x.name}" for x in tensors)
    names = ", ".join(x.name for x in tensors)
    count = len(schema.written) or schema.results or 1
    one = "C" if schema.is_of_row else "elementwise::Elements<C>"
    result = one if count == 1 else f"elementwise::Results<{', '.join([one] * count)}>"
    if schema.is_of_row:
        values = ["mean_square_"] * count
    elif schema.written:
        values = [f"row.each([=](C {x.name}) {{ return {x.name} * factor_; }}, {x.name})" for x in schema.written]
    else:
        values = ["row.each([=](C y) { return y * factor_; }, product_)"] * count
    factor = "" if schema.is_of_row else "    const C factor_ = elementwise::rsqrt(mean_square_ + 1);\n"
    returned = values[0] if count == 1 else f"{{{', '.join(values)}}}"
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


def _indentation(path: str) -> int:
    return 2 if path.endswith(".build") else 4


def _edit(
    files: Files, path: str, pattern: str, replacement: Callable[[re.Match[str]], str], expected: str = ""
) -> None:
    text, count = re.subn(pattern, replacement, files[path], flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{path} is not as it was written: there is no one place to add an operator{expected}")
    files[path] = text
