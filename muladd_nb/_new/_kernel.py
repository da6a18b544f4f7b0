"""What is written for an operator that is not element-wise: a kernel, and what Python adds to it.

It multiplies its tensors and numbers, those that are there, and each tensor that it writes to by that product. What is
neither is handed to it, and not used. Its files are those of the folder ``kernel``, and what depends on the arguments
stands there as ``@name@``. An argument whose name a file uses itself has an underscore more in that file.
"""

from __future__ import annotations

import importlib.resources
import keyword
import re
from collections.abc import Iterable, Mapping

from . import _format
from ._operator import Files, append, parameters, refuse_another
from ._schema import CPP_KEYWORDS, Argument, Schema, functor_name

_TEMPLATES = importlib.resources.files(__package__) / "kernel"
_NUMBERS = ("float", "int", "bool", "float?", "int?", "bool?")
# Each type of a schema: in C++, in Python, and for a test.
_TYPES = {
    "Tensor": ("Tensor", "Tensor", "tensor()"),
    "float": ("double", "float", "either(1.5, 0.5)"),
    "int": ("int64_t", "int", "either(2, -1)"),
    "bool": ("bool", "bool", "either(True, False)"),
    "str": ("std::string", "str", '"text"'),
    "ScalarType": ("torch::headeronly::ScalarType", "torch.dtype", "torch.float32"),
    "Device": ("torch::stable::Device", "torch.device", 'torch.device("cpu")'),
    "Layout": ("torch::headeronly::Layout", "torch.layout", "torch.strided"),
    "MemoryFormat": ("torch::headeronly::MemoryFormat", "torch.memory_format", "torch.contiguous_format"),
}
_ELEMENTS = {"Tensor": "tensor(), tensor()", "float": "1.5, 0.5", "int": "2, 3", "bool": "True, False"}


def add(files: Files, schema: Schema, package: str) -> None:
    """Add an operator with a kernel to the files of a project; raise ``ValueError`` if they have no place for it."""
    refuse_another(files, schema, package)
    words = {**_cpp(schema), **_python(schema)}
    for template, path in (
        ("kernel.h", f"src/{schema.stem}.h"),
        ("kernel.cpp", f"src/{schema.stem}.cpp"),
        ("kernel.cu", f"src/{schema.stem}.cu"),
        ("kernel.py.in", f"python/{package}/_{schema.stem}.py"),
    ):
        text = _fill((_TEMPLATES / template).read_text("utf-8").replace("my_ops", package), words)
        if path in files:
            raise ValueError(f"{path} exists already, and is not overwritten: choose another name than {schema.name}")
        files[path] = text if template.endswith(".in") else _format.cpp(text)
    append(files, "meson.build", "own_kernels", f"'src/{schema.stem}.cpp'")
    append(files, "meson.build", "cuda_own_kernels", f"'src/{schema.stem}.cu'")
    append(files, f"python/{package}/_operators.py", "KERNELS", f'"{schema.stem}"')
    _add_public(files, schema, package)
    _add_test(files, schema, package)


def _base(argument: Argument) -> str:
    return argument.type.rstrip("?[]")


def _is_tensor(argument: Argument) -> bool:
    return _base(argument) == "Tensor"


def _factors(schema: Schema) -> list[Argument]:
    """Return the arguments that it multiplies."""
    return [x for x in schema.arguments if x.type in _NUMBERS or (_is_tensor(x) and not x.is_written)]


def _written(schema: Schema) -> list[Argument]:
    return [x for x in schema.arguments if x.is_written]


def _read(schema: Schema) -> list[Argument]:
    return [x for x in schema.arguments if _is_tensor(x) and not x.is_written]


def _has_derivative(schema: Schema) -> bool:
    """Return whether one is written: there is none of a write, or for a list."""
    return not _written(schema) and not any(x.type == "Tensor[]" for x in schema.arguments)


def _named(arguments: Iterable[Argument | str], taken: Iterable[str]) -> dict[str, str]:
    """Return a name for each argument, its own with as many underscores as it takes to be no other's."""
    names: dict[str, str] = {}
    used = set(taken)
    for argument in arguments:
        own = argument if isinstance(argument, str) else argument.name
        name = own
        while name in used:
            name += "_"
        used.add(name)
        names[own] = name
    return names


def _identifiers(*templates: str) -> set[str]:
    """Return all names that stand in templates, but in their comments."""
    text = "\n".join((_TEMPLATES / template).read_text("utf-8") for template in templates)
    return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"//.*|#.*|@[a-z_]+@", "", text)))


def _outs(schema: Schema) -> list[str]:
    return ["out"] if schema.results == 1 else [f"out{i}" for i in range(schema.results)]


def _cpp(schema: Schema) -> dict[str, str]:
    of_macros = {x.name for x in schema.arguments if x.name.isupper() and len(x.name) > 1}
    taken = _identifiers("kernel.h", "kernel.cpp") | CPP_KEYWORDS | of_macros
    taken |= {"errno", "std", "value", "k", functor_name(schema.name), *_outs(schema)}
    taken |= {word for cpp, *_ in _TYPES.values() for word in re.findall(r"\w+", cpp)} | {"optional", "vector"}
    var = _named(schema.arguments, taken)
    dense = _named([f"{var[x.name]}_dense" for x in _written(schema)], taken | set(var.values()))
    dense = {x.name: dense[f"{var[x.name]}_dense"] for x in _written(schema)}
    first = _first(schema)
    first_var = var[first.name] + "[0]" * (first.type == "Tensor[]")

    def type_of(x: Argument) -> str:
        suffixes = re.findall(r"\?|\[\]", x.type)
        of = _TYPES[_base(x)][0]
        for suffix in suffixes:
            of = f"std::{'optional' if suffix == '?' else 'vector'}<{of}>"
        return of

    def member(x: Argument) -> str:
        const = "" if x.is_written else "const "
        if x.type == "Tensor[]":
            return f"elementwise::Pointers<{const}T> {var[x.name]};"
        return f"{const}T* {var[x.name]};" if _is_tensor(x) else f"{_TYPES[_base(x)][0]} {var[x.name]};"

    def given(x: Argument) -> str:
        name = var[x.name]
        if not _is_tensor(x):
            return f".{name} = {name}{'.value_or(1)' * x.type.endswith('?')}"
        of = f"{'mutable_' * x.is_written}data"
        memory = dense.get(x.name, name)
        named = f'kOperator, "{x.name}", ' if x.type == "Tensor[]" else ""
        return f".{name} = elementwise::{of}({named}{memory})"

    def named(arguments: Iterable[Argument]) -> str:
        return ", ".join(f'{{"{x.name}", {var[x.name]}}}' for x in arguments)

    factors, outs = _factors(schema), _outs(schema)
    always = [x for x in factors if x.type not in ("Tensor?", "Tensor[]")]
    plain = [f"static_cast<C>({var[x.name]}{'[i]' * _is_tensor(x)})" for x in always]
    body = [f"C value = {' * '.join(plain) or '1'};"]
    for x in factors:
        name = var[x.name]
        if x.type == "Tensor?":
            body.append(f"if ({name}) value *= static_cast<C>({name}[i]);")
        elif x.type == "Tensor[]":
            body.append(f"for (int64_t k = 0; k < {name}.count; k++) value *= static_cast<C>({name}.of[k][i]);")
    for x in _written(schema):
        name = var[x.name]
        element = f"{name}.of[k][i]" if x.type == "Tensor[]" else f"{name}[i]"
        head = {
            "Tensor": "",
            "Tensor?": f"if ({name}) ",
            "Tensor[]": f"for (int64_t k = 0; k < {name}.count; k++) ",
        }[x.type]
        body.append(f"{head}{element} = static_cast<T>(static_cast<C>({element}) * value);")
    body += [f"{out}[i] = static_cast<T>(value);" for out in outs]
    checks = []
    if first.type == "Tensor[]":
        sentence = f'"{first.name} must have a tensor, got none"'
        checks.append(f"if ({var[first.name]}.empty()) elementwise::contract::fail(kOperator, {sentence});")
    checks.append(f"elementwise::check_alike(kOperator, {{{named(filter(_is_tensor, schema.arguments))}}});")
    if _written(schema):
        checks.append(
            f"elementwise::check_written(kOperator, {{{named(_written(schema))}}}, {{{named(_read(schema))}}});"
        )
    contiguous = [f"{var[x.name]} = elementwise::contiguous({var[x.name]});" for x in _read(schema)]
    if _written(schema):
        contiguous.append("// Of what is written, the same memory, or a copy that is written back.")
        contiguous += [f"auto {dense[x.name]} = elementwise::contiguous({var[x.name]});" for x in _written(schema)]
    used = [x for x in schema.arguments if x in factors or _is_tensor(x)]
    parameters = [f"{'[[maybe_unused]] ' * (x not in used)}{type_of(x)} {var[x.name]}" for x in schema.arguments]
    returned = outs[0] if len(outs) == 1 else f"{{{', '.join(outs)}}}"
    return {
        "name": schema.name,
        "stem": schema.stem,
        "functor": functor_name(schema.name),
        "schema": schema.text.replace("\\", "\\\\").replace('"', '\\"'),
        "declaration": f"{schema.name}(Tensor {first.name})",
        "parameters": ", ".join(parameters),
        "members": "\n".join(f"  {member(x)}" for x in used) + "".join(f"\n  T* {out};" for out in outs),
        "elements": "\n".join(f"    {line}" for line in body),
        "check": "\n".join(f"  {check}" for check in checks),
        "contiguous": "\n".join(f"  {line}" for line in contiguous),
        "allocate": "\n".join(
            f"  Tensor {out} = elementwise::empty(kOperator, {first_var}, {first_var}.sizes());" for out in outs
        ),
        "given": "\n".join(
            f"      {x}," for x in [*map(given, used), *(f".{x} = {x}.mutable_data_ptr()" for x in outs)]
        ),
        "first": first_var,
        "write_back": "\n".join(
            f"  elementwise::write_back({var[x.name]}, {dense[x.name]});" for x in _written(schema)
        ),
        "return": f"  return {returned};" if outs else "",
        "result": {0: "void", 1: "Tensor"}.get(len(outs), f"std::tuple<{', '.join(['Tensor'] * len(outs))}>"),
    }


def _first(schema: Schema) -> Argument:
    """Return the tensor that is always there, or the list of which there must be one."""
    return next(x for type_ in ("Tensor", "Tensor[]") for x in schema.arguments if x.type == type_)


def _annotation(argument: Argument) -> str:
    text = _TYPES[_base(argument)][1]
    for suffix in re.findall(r"\?|\[\]", argument.type):
        text = f"list[{text}]" if suffix == "[]" else f"{text} | None"
    return text


def _public_annotation(argument: Argument) -> str:
    # A default must be one that nobody can change.
    text = _annotation(argument)
    return f"Sequence[{text.removeprefix('list[')}" if isinstance(argument.default, list) else text


def _python(schema: Schema) -> dict[str, str]:
    derivative = _has_derivative(schema)
    taken = _identifiers("kernel.py.in", "derivative.py.in") | {*keyword.kwlist, "list", "tuple", "str"}
    taken |= {
        "product",
        "Kernel",
        "grad",
        "tangent",
        "int",
        "float",
        "bool",
        *(f"grad{i}" for i in range(schema.results)),
    }
    var = _named(schema.arguments, taken)
    tangents = _named([f"{var[x.name]}_tangent" for x in schema.arguments], taken | set(var.values()))
    of_tangent = {x.name: tangents[f"{var[x.name]}_tangent"] for x in schema.arguments}
    factors, first = _factors(schema), _first(schema)
    result = {0: "None", 1: "Tensor"}.get(schema.results, f"tuple[{', '.join(['Tensor'] * schema.results)}]")
    first_var = var[first.name] + "[0]" * (first.type == "Tensor[]")
    grads = ["grad"] if schema.results == 1 else [f"grad{i}" for i in range(schema.results)]
    grad = grads[0] if len(grads) == 1 else f"({' + '.join(grads)})"

    def times(factor: str, without: Argument) -> str:
        others = [var[x.name] for x in factors if x is not without]
        return f"{factor} * product({', '.join(others)})" if others else factor

    def both(texts: list[str]) -> str:
        return ", ".join(texts) if len(texts) > 1 else f"({texts[0]},)"

    def gradient(x: Argument) -> str:
        absent = f"None if {var[x.name]} is None else " if x.type == "Tensor?" else ""
        return f"{absent}{times(grad, x)}" if _is_tensor(x) else "None"

    required = [x for x in _read(schema) if x.type == "Tensor"]
    optional = [x for x in _read(schema) if x.type == "Tensor?"]
    tangent = "tangent"
    more = [
        f"    if {var[x.name]} is not None:\n"
        + _broken(f"        {tangent} = {tangent} + {times(of_tangent[x.name], x)}")
        for x in optional
    ]
    after = ""
    if derivative:
        after = _fill(
            (_TEMPLATES / "derivative.py.in").read_text("utf-8").rstrip("\n"),
            {
                "define_vjp": _format.python(
                    "def _vjp(",
                    ["needs: tuple[bool, ...]", "saved: tuple[Any, ...]", *(f"{x}: Tensor" for x in grads)],
                    ") -> tuple[Tensor | None, ...]:",
                ),
                "unpack_saved": both([var[x.name] for x in schema.arguments]) + " = saved",
                "gradients": _returned([gradient(x) for x in schema.arguments]),
                "python_result": result,
                "unpack_tangents": both([of_tangent[x.name] if _is_tensor(x) else "_" for x in schema.arguments])
                + " = tangents",
                "tangent": tangent,
                "first_tangent": _sum(tangent, [times(of_tangent[x.name], x) for x in required]),
                "more_tangents": "\n".join(more),
                "tangents_returned": ", ".join([tangent, *[f"{tangent}.clone()"] * (schema.results - 1)]),
            },
        )
    elif not _written(schema):
        after = "\n\n# A gradient has no place for a list: what has a derivative takes its tensors one by one.\n"
        after += "FORM.without_derivative()"
    parameters = [f"{var[x.name]}: {_annotation(x)}" for x in schema.arguments]
    check = _format.python("    FORM.check(", [var[x.name] for x in schema.arguments], ")")
    made = ", ".join([f"{first_var}.new_empty({first_var}.shape)"] * schema.results)
    strides = "    # The strides of the real result: compiled code relies on them.\n"
    return {
        "and_derivative": ", a batching rule and a derivative" if derivative else " and a batching rule",
        "imports": "from ._layer.derivative import derivative\n" * derivative
        + f"from ._layer.kernel import Kernel{', product' * ('product(' in after)}",
        "define_fake": _format.python("def _fake(", parameters, f") -> {result}:"),
        "check_fake": f"    # What src/{schema.stem}.cpp refuses.\n{check}",
        "fake_returns": f"{strides}    return {made}" if schema.results else "",
        "out_dims": {0: "None", 1: "0"}.get(schema.results, f"({', '.join('0' * schema.results)})"),
        "derivative": after,
    }


def _returned(items: list[str]) -> str:
    if len(items) == 1:
        return f"    return ({items[0]},)"
    return "\n".join(["    return (", *(f"        {item}," for item in items), "    )"])


def _sum(name: str, terms: list[str]) -> str:
    line = f"{name} = {' + '.join(terms)}"
    if len(line) + 4 <= _format.WIDTH:
        return line
    lines = [f"    {name} = {terms[0]}", *(f"    {name} = {name} + {term}" for term in terms[1:])]
    return "\n".join(map(_broken, lines)).lstrip()


def _broken(line: str) -> str:
    """Return a line with its product broken, if it is too long."""
    head, product, factors = line.partition("product(")
    return _format.python(head + product, factors[:-1].split(", "), ")") if product else line


def _fill(text: str, words: Mapping[str, str]) -> str:
    """Return a template with its words in their places; a line that is a word without text is none."""
    text = re.sub(r"^@([a-z_]+)@\n", lambda m: words[m[1]] and words[m[1]] + "\n", text + "\n", flags=re.MULTILINE)
    return re.sub("@([a-z_]+)@", lambda m: words[m[1]], text)[:-1]


def _add_public(files: Files, schema: Schema, package: str) -> None:
    """Add the public function."""
    path = f"python/{package}/ops.py"
    append(files, path, "__all__", f'"{schema.name}"')
    items = parameters(schema, _public_annotation)
    text = files[path]
    for name, line in (("Sequence", "from collections.abc import Sequence\n\n"), ("torch", "import torch\n")):
        if any(re.search(rf"\b{name}\b", _public_annotation(x)) for x in schema.arguments) and line.strip() not in text:
            text = re.sub(r"^(?=from torch import Tensor$)", line, text, count=1, flags=re.MULTILINE)
    result = {0: "None", 1: "Tensor"}.get(schema.results, f"tuple[{', '.join(['Tensor'] * schema.results)}]")
    head = _format.python(f"def {schema.name}(", items, f") -> {result}:")
    files[path] = f'{text}\n\n@public(FORMS)\n{head}\n    """{_does(schema)}."""\n'


def _does(schema: Schema) -> str:
    if not _written(schema):
        return "Return the product of its tensors and numbers" + f", {schema.results} times" * (schema.results > 1)
    written = ", ".join(f"``{x.name}``" for x in _written(schema))
    returns = ", and return their product" * bool(schema.results)
    return f"Multiply {written} by the other tensors and the numbers{returns}"


def _add_test(files: Files, schema: Schema, package: str) -> None:
    """Add what the tests need to know of it, and its line in the README."""
    taken = {"tensor", "either", "product", "times", "torch", "Case", package, *keyword.kwlist}
    var = _named(schema.arguments, taken)
    names = ", ".join(var[x.name] for x in schema.arguments)
    product = f"product({', '.join(var[x.name] for x in _factors(schema))})"
    written = ", ".join(var[x.name] for x in _written(schema))
    value = product if schema.results == 1 else f"({product},) * {schema.results}"
    if written:
        value = f"times({product}, {written})" + f" + ({product},) * {schema.results}" * bool(schema.results)
    case = f"""\
Case(
        {package}.{schema.name},
{_format.python_product(f"        reference=lambda {names}: ", value)}
{_format.python_tuple("        arguments=lambda tensor, either: ", [_example(x) for x in schema.arguments])}
    )"""
    path = "tests/operators.py"
    append(files, path, "OPERATORS", case)
    text = files[path]
    wanted = {"Case", "product", *(["times"] if written else [])}
    text = re.sub(
        r"^from cases import (.*)$",
        lambda m: "from cases import " + ", ".join(sorted(wanted | set(m[1].split(", ")))),
        text,
        count=1,
        flags=re.MULTILINE,
    )
    if "torch." in case and "import torch\n" not in text:
        text = re.sub(rf"^import {package}\n", lambda m: "import torch\n\n" + m[0], text, count=1, flags=re.MULTILINE)
    files[path] = text
    line = f"| `{package}.{schema.name}({', '.join(x.name for x in schema.arguments)})` | {_does(schema)} |\n"
    table = r"\| function \| what it computes \|\n\|---\|---\|\n(?:\|.*\n)*"
    if "README.md" in files:
        files["README.md"] = re.sub(table, lambda m: m[0] + line.replace("``", "`"), files["README.md"], count=1)


def _example(x: Argument) -> str:
    base = _base(x)
    single = _TYPES[base][2]
    if x.type == "Tensor[]":
        return "[tensor(), tensor()]"
    example = f"[{_ELEMENTS.get(base, f'{single}, {single}')}]" if "[]" in x.type else single
    if not x.type.endswith("?"):
        return example
    inner = re.fullmatch(r"either\((.*?), .*\)", example)
    return f"either({inner[1] if inner else example}, None)"
