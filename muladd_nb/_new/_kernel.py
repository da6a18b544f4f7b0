"""What is written for an operator that is not element-wise: a plain kernel, and what Python adds to it.

It multiplies its arguments too. Its files are those of the folder ``kernel``, and what depends on the arguments stands
there as ``@name@``.
"""

from __future__ import annotations

import importlib.resources

from . import _format, _general, _operator
from ._operator import Files, product
from ._schema import Schema, functor_name

_TEMPLATES = importlib.resources.files(__package__) / "kernel"
_CPP = {"Tensor": "Tensor", "float": "double", "int": "int64_t", "bool": "bool"}


def add(files: Files, schema: Schema, package: str) -> None:
    """Add an operator with a kernel to the files of a project.

    Raises
    ------
    ValueError
        If there is one of its name, or a file has no place for it any more.
    """
    _operator.refuse_another(files, schema, package)
    words = _general.words(schema) if schema.given else {**_cpp(schema), **_python(schema)}
    for template, path in (
        ("kernel.h", f"src/{schema.stem}.h"),
        ("kernel.cpp", f"src/{schema.stem}.cpp"),
        ("kernel.cu", f"src/{schema.stem}.cu"),
        ("general.py.in" if schema.given else "kernel.py.in", f"python/{package}/_{schema.stem}.py"),
    ):
        text = _general.fill((_TEMPLATES / template).read_text("utf-8").replace("my_ops", package), words)
        if path in files:
            raise ValueError(f"{path} exists already, and is not overwritten: choose another name than {schema.name}")
        files[path] = text if template.endswith(".in") else _format.cpp(text)
    _operator.append(files, "meson.build", "kernels_of_its_own", f"'src/{schema.stem}.cpp'")
    _operator.append(files, "meson.build", "cuda_kernels_of_its_own", f"'src/{schema.stem}.cu'")
    _operator.append(files, f"python/{package}/_operators.py", "KERNELS", f'"{schema.stem}"')
    if schema.given:
        _general.add_public(files, schema, package)
        _general.add_test(files, schema, package)
    else:
        _operator.add_public(files, schema, package, with_out=False)
        _operator.add_test(files, schema, package, kernel=True)


def _results(schema: Schema, name: str) -> list[str]:
    return [name] if schema.results == 1 else [f"{name}{i}" for i in range(schema.results)]


def _cpp(schema: Schema) -> dict[str, str]:
    tensors, outs = schema.tensors, _results(schema, "out")
    value = " * ".join(f"static_cast<C>({x.name}{'[i]' * x.is_tensor})" for x in schema.arguments)
    members = [f"const T* {x.name}" if x.is_tensor else f"{_CPP[x.type]} {x.name}" for x in schema.arguments]
    given = [f".{x.name} = {x.name}{'.const_data_ptr()' * x.is_tensor}" for x in schema.arguments]
    operands = ", ".join(f'{{"{x}", {x}}}' for x in tensors)
    returned = outs[0] if len(outs) == 1 else f"{{{', '.join(outs)}}}"
    return {
        "name": schema.name,
        "stem": schema.stem,
        "functor": functor_name(schema.name),
        "schema": schema.text,
        "declaration": f"{schema.name}({', '.join(f'Tensor {x}' for x in tensors)})",
        "parameters": ", ".join(f"{_CPP[x.type]} {x.name}" for x in schema.arguments),
        "members": "\n".join(f"  {member};" for member in [*members, *(f"T* {out}" for out in outs)]),
        "elements": "\n".join(f"    {out}[i] = static_cast<T>({value});" for out in outs),
        "check": f"  elementwise::check_alike(kOperator, {{{operands}}});",
        "contiguous": "\n".join(f"  {x} = torch::stable::contiguous({x});" for x in tensors),
        "allocate": "\n".join(
            f"  Tensor {out} = elementwise::empty(kOperator, {tensors[0]}, {tensors[0]}.sizes());" for out in outs
        ),
        "given": "\n".join(f"      {x}," for x in [*given, *(f".{out} = {out}.mutable_data_ptr()" for out in outs)]),
        "first": tensors[0],
        "first_out": outs[0],
        "write_back": "",
        "return": f"  return {returned};",
        "result": "Tensor" if len(outs) == 1 else f"std::tuple<{', '.join(['Tensor'] * len(outs))}>",
    }


def _python(schema: Schema) -> dict[str, str]:
    tensors, grads = schema.tensors, _results(schema, "grad")
    names = [x.name for x in schema.arguments]
    grad = grads[0] if len(grads) == 1 else f"({' + '.join(grads)})"

    def times(factor: str, tensor: str) -> str:
        others = product(schema, tensor)
        return factor if others == "1" else f"{factor} * {others}"

    def both(texts: list[str]) -> str:
        """Return a tuple, as it stands left and right of an assignment."""
        return ", ".join(texts) if len(texts) > 1 else f"({texts[0]},)"

    result = "Tensor" if schema.results == 1 else f"tuple[{', '.join(['Tensor'] * schema.results)}]"
    parameters = [f"{x.name}: {x.type}" for x in schema.arguments]
    each = [times(grad, x) if x in tensors else "None" for x in names]
    gradients = both(each)
    batched = [f"batch_first({x}, in_dims[{i}])" if x in tensors else x for i, x in enumerate(names)]
    return {
        "define_form": _format.python(
            "FORM = Form(",
            [f'"{schema.declaration}"', "FUNCTIONAL", "OP", "DTYPES", 'Elementwise(autocast="cast")'],
            ")",
        ),
        "define_fake": _format.python("def _fake(", parameters, f") -> {result}:"),
        "define_batched": _format.python(
            "def _batched(", ["info: Any", "in_dims: tuple[int | None, ...]", *parameters], ") -> Any:"
        ),
        "python_result": result,
        "arguments_tuple": f"({', '.join(names)}{',' * (len(names) == 1)})",
        "names_tuple": both(names),
        "fake_results": ", ".join([f"{tensors[0]}.new_empty({tensors[0]}.shape)"] * schema.results),
        "batched": ", ".join(batched),
        "out_dims": "0" if schema.results == 1 else f"({', '.join('0' * schema.results)})",
        "grads": ": Tensor, ".join(grads),
        "gradients": f"    return {gradients}" if len(gradients) < 110 else _format.python("    return (", each, ")"),
        "tangent_names": both([f"{x}_tangent" if x in tensors else "_" for x in names]),
        "tangent": " + ".join(times(f"{x}_tangent", x) for x in tensors),
        "tangents_returned": ", ".join(["tangent", *["tangent.clone()"] * (schema.results - 1)]),
    }
