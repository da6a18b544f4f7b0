"""Write the files of an operator that is not element-wise (``--kernel``): its kernel, and its registrations in Python.

The new operator returns the product of its tensors and numbers, or multiplies each tensor that it writes to by that
product. The kernel receives its other arguments, too, and does not use them. The files are templates, filled with the
words of :mod:`._kernel_cpp` and :mod:`._kernel_python`. If a file already uses the name of an argument, the argument
gets an underscore there.
"""

from __future__ import annotations

import keyword
import re

from ._kernel_cpp import Cpp
from ._kernel_python import Python
from ._kernel_words import fill, named, template
from ._operator import Files, add_case, add_function, add_line, append, parameters, refuse_another
from ._schema import Schema


def add(files: Files, schema: Schema, package: str) -> None:
    """Add an operator with a kernel to the files of a project; raise ``ValueError`` if it does not fit into them."""
    refuse_another(files, schema, package)
    words = Cpp(schema).words() | Python(schema).words()
    for name, path in (
        ("kernel.h", f"src/{schema.stem}.h"),
        ("kernel.cpp", f"src/{schema.stem}.cpp"),
        ("kernel.cu", f"src/{schema.stem}.cu"),
        ("kernel.py.in", f"python/{package}/_{schema.stem}.py"),
    ):
        text = fill(template(name).replace("my_ops", package), words)
        if path in files:
            raise ValueError(f"{path} exists already, and is not overwritten: choose another name than {schema.name}")
        files[path] = text
    append(files, "meson.build", "own_kernels", f"'src/{schema.stem}.cpp'")
    append(files, "meson.build", "cuda_own_kernels", f"'src/{schema.stem}.cu'")
    append(files, f"python/{package}/_operators.py", "KERNELS", f'"{schema.stem}"')
    add_function(files, schema, package, parameters(schema), _does(schema))
    _add_test(files, schema, package)


def _does(schema: Schema) -> str:
    if not schema.written:
        return "Return the product of its tensors and numbers" + f", {schema.results} times" * (schema.results > 1)
    what = ", ".join(f"``{x.name}``" for x in schema.written)
    returns = ", and return their product" * bool(schema.results)
    return f"Multiply {what} by the other tensors and the numbers{returns}"


def _add_test(files: Files, schema: Schema, package: str) -> None:
    """Add its test and its line of the README."""
    taken = {"tensor", "either", "product", "times", "torch", "Case", package, *keyword.kwlist}
    var = named({x.name: x.name for x in schema.arguments}, taken)
    names = ", ".join(var[x.name] for x in schema.arguments)
    product = f"product({', '.join(var[x.name] for x in schema.factors)})"
    changed = ", ".join(var[x.name] for x in schema.written)
    value = product if schema.results == 1 else f"({product},) * {schema.results}"
    if changed:
        value = f"times({product}, {changed})" + f" + ({product},) * {schema.results}" * bool(schema.results)
    autocast = '\n        autocast="cast",' * (not changed)
    add_case(files, schema, package, f"        reference=lambda {names}: {value},", autocast)
    path = "tests/operators.py"
    wanted = {"Case", "product", *(["times"] if changed else [])}
    files[path] = re.sub(
        r"^from cases import (.*)$",
        lambda m: "from cases import " + ", ".join(sorted(wanted | set(m[1].split(", ")))),
        files[path],
        count=1,
        flags=re.MULTILINE,
    )
    add_line(files, schema, package, _does(schema).replace("``", "`"))
