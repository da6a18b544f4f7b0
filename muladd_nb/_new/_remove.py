"""``muladd-nb remove``: remove an operator's entries from the files into which ``muladd-nb add`` wrote them.

The author's changes to these entries are removed, too. Other operators, and everything that they use, stay.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from ._operator import ROW_H, Files, in_table, items


def remove(files: Files, name: str, package: str) -> set[str]:
    """Remove an operator from the files of a project, and return the files that belong to it alone.

    Raise ``ValueError`` if there is no operator of this name.
    """
    python = f"python/{package}"
    operator, stem = name.removesuffix("_out"), name.strip("_")
    declared = in_table(files, package)
    functions = re.findall(r"^def (\w+)\(", files[f"{python}/ops.py"], re.MULTILINE)
    own = {operator, name, f"{operator}_out"} if operator in declared or name in declared else {name}
    gone: set[str] = set()
    if own & {*declared}:
        _remove_entry(files, own)
        _drop(files, f"{python}/_operators.py", "TABLE", lambda key: _called(key) in own)
    else:
        kernels = [_value(item) for item, _ in items(files, f"{python}/_operators.py", "KERNELS")]
        if stem not in kernels or name not in functions:
            there = ", ".join(sorted({*declared, *(x for x in functions if x.strip("_") in kernels)})) or "none"
            raise ValueError(f"there is no operator {name} in this project; there are {there}")
        gone = {f"src/{stem}.h", f"src/{stem}.cpp", f"src/{stem}.cu", f"{python}/_{stem}.py"}
        _drop(files, f"{python}/_operators.py", "KERNELS", lambda item: _value(item) == stem)
        for ending in ("cpp", "cu"):
            files["meson.build"] = re.sub(rf"\s*'src/{stem}\.{ending}',?", "", files["meson.build"])
        files["meson.build"] = files["meson.build"].replace("files(\n)", "files()")
    _drop(files, f"{python}/ops.py", "__all__", lambda item: _value(item) in own)
    _remove_functions(files, f"{python}/ops.py", own)
    _drop(files, "tests/operators.py", "OPERATORS", lambda case: _tests(case, package, own))
    _remove_imports(files, "tests/operators.py", {"product", "times"})
    _remove_imports(files, f"{python}/ops.py", {"torch", "Sequence"})
    if "README.md" in files:
        line = rf"^\| `{package}\.(?:{'|'.join(own)})\(.*\n"
        files["README.md"] = re.sub(line, "", files["README.md"], flags=re.MULTILINE)
    return gone


def used(path: str, text: str) -> set[str]:
    """Return the names in a source that may be operators: ``f`` in ``ops.f`` or ``"ops::f"``, not in ``f"text"``."""
    if not path.endswith(".py"):
        return {*re.findall(r'["/:](\w+)', text)}  # a string, the header of a kernel, or a name of the namespace
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except SyntaxError:
        return {*re.findall(r"\w+", text)}
    strings = [x.value for x in nodes if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    found = {*re.findall(r"^(?:\w+::)?(\w+)(?:\.\w+)?$", "\n".join(strings), re.MULTILINE)}
    found |= {x.attr for x in nodes if isinstance(x, ast.Attribute)}
    found |= {x.name for x in nodes if isinstance(x, ast.alias)}
    bound = {x.arg for x in nodes if isinstance(x, ast.arg)}
    bound |= {x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    return found | {x.id for x in nodes if isinstance(x, ast.Name)} - bound


def _remove_entry(files: Files, own: set[str]) -> None:
    """Remove an operator from the list in C++, and its functor if no other operator uses it."""
    path = "src/operators.h"
    names = "|".join(map(re.escape, own))
    comments = r"(?:\n[ \t]*//.*)*"  # those above the entry, or the one that it is in; then comes one beside it
    declared = rf'Operator<\s*"(?:{names})[.(](?:[^"]|"\s*")*?"\s*,\s*(\w+)(?:<[^>]*>)?\s*,[^>]*>,?'
    entry = rf"{comments}\s*{declared}(?:[ \t]*//.*)?"
    functors = {*re.findall(entry, files[path])}
    files[path] = re.sub(entry, "", files[path])
    files[path] = re.sub(rf",((?:[ \t]*//.*)?{comments}\s*>;)", r"\1", files[path])  # the last entry has no comma
    if not functors:
        raise ValueError(f"{path} is not as it was written: there is no entry of {' or '.join(sorted(own))} to remove")
    for functor in functors:
        for header in [x for x in files if x.startswith("src/") and not re.search(rf"\b{functor}\b", files[path])]:
            # From the comment above the functor to its last line.
            struct = rf"^(?://.*\n)*(?:template.*\n)?struct {functor}\b[^;{{]*\{{\n(?:.*\n)*?\}};.*\n\n?"
            over_rows = "class Row>" in files[header]
            files[header] = re.sub(struct, "", files[header], count=1, flags=re.MULTILINE)
            if over_rows and "class Row>" not in files[header]:
                files[header] = files[header].replace(ROW_H, "")


def _remove_functions(files: Files, path: str, own: set[str]) -> None:
    lines = files[path].splitlines(keepends=True)
    for node in reversed(ast.parse(files[path], path).body):
        if isinstance(node, ast.FunctionDef) and node.name in own:
            begin = min([node.lineno, *(x.lineno for x in node.decorator_list)]) - 1
            while begin and lines[begin - 1].startswith("#"):
                begin -= 1
            while begin and not lines[begin - 1].strip():
                begin -= 1
            del lines[begin : node.end_lineno]
    files[path] = "".join(lines)


def _remove_imports(files: Files, path: str, names: set[str]) -> None:
    """Remove imports that ``add`` wrote and that nothing uses any more."""
    text = files[path]
    used = {x.id for x in ast.walk(ast.parse(text, path)) if isinstance(x, ast.Name)}
    for name in names - used:
        text = re.sub(rf"^import {name}\n", "", text, count=1, flags=re.MULTILINE)
        text = re.sub(rf"^from collections.abc import {name}\n\n", "", text, count=1, flags=re.MULTILINE)
        text = re.sub(rf"^(from cases import .*), {name}\b", r"\1", text, count=1, flags=re.MULTILINE)
    files[path] = text


def _tests(case: ast.expr, package: str, own: set[str]) -> bool:
    if not isinstance(case, ast.Call):
        return False
    given = [*case.args[:1], *(x.value for x in case.keywords if x.arg == "function")]
    return any(ast.unparse(x) in {f"{package}.{name}" for name in own} for x in given)


def _value(item: ast.expr) -> str:
    return str(item.value) if isinstance(item, ast.Constant) else ""


def _called(declaration: ast.expr) -> str:
    return re.split(r"[.(]", _value(declaration))[0]


def _drop(files: Files, path: str, name: str, is_own: Callable[[ast.expr], bool]) -> None:
    """Remove the items of a list, or the entries of a dict by their keys, for which ``is_own`` returns true."""
    lines = [line.encode() for line in files[path].splitlines(keepends=True)]
    for first, last in reversed(items(files, path, name)):
        if not is_own(first):
            continue
        begin, end = first.lineno - 1, (last.end_lineno or last.lineno) - 1
        before, after = lines[begin][: first.col_offset], lines[end][last.end_col_offset :]
        after = re.sub(rb"^\s*,[ \t]*(#.*)?", b"", after)
        if not before.strip() and not after.strip():
            while begin and lines[begin - 1].lstrip().startswith(b"#"):  # the author's comments on the item
                begin -= 1
            del lines[begin : end + 1]
        else:
            alone = before if after[:1] not in b"]}" else re.sub(rb",\s*$", b"", before)
            lines[begin : end + 1] = [alone + after]
    text = b"".join(lines).decode()
    empty = rf"^({name}\b.* = [\[{{])\s*([\]}}])"
    files[path] = re.sub(empty, r"\1\2", text, count=1, flags=re.MULTILINE)
