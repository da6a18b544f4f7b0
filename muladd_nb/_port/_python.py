"""Finds what binds an extension to one torch or one CPython in setup.py and other Python files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ._findings import Finding
from ._table import Row, table

EXTENSIONS = ("CppExtension", "CUDAExtension", "SyclExtension")


def read(path: Path, target: str, modules: set[str]) -> list[Finding]:
    """Return what one Python file says; ``modules`` are the names of extensions that a setup.py builds."""
    text, tree = _parsed(path)
    found: list[Finding] = []

    def add(node: ast.AST, kind: str, what: str, shown: str, name: str = "") -> None:
        row: Row = table().rows[kind, what][0]
        version = 2 << 56 | int(target.split(".")[1]) << 48
        to = row.to.replace("$target", f"0x{version:016x}").replace("$what", name)
        line = getattr(node, "lineno", 1)
        found.append(Finding(str(path), line, line, shown, kind, row.how, to, "", row.source))

    builds = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func) in ("setup", "setuptools.setup")
    ]
    extensions = [node for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Name)) and _extension(node)]
    if extensions and builds:
        at = extensions[-1]
        if "py_limited_api" not in text:
            add(at, "python", "extension", "an extension for one CPython")
        elif not re.search(r"bdist_wheel", text):
            add(builds[0], "python", "wheel", "a wheel for one CPython")
        for flag in ("TORCH_TARGET_VERSION", "Py_LIMITED_API"):
            if flag not in text:
                add(at, "flag", flag, f"no -D{flag}")
        if "CUDAExtension" in text and "-DUSE_CUDA" not in text:
            add(at, "flag", "USE_CUDA", "no -DUSE_CUDA")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name.endswith(("cpp_extension.load", "cpp_extension.load_inline")) or name == "load_inline":
                add(node, "python", "load", name)
            elif name.rpartition(".")[0].rpartition(".")[2] in modules and not name.startswith("torch."):
                add(node, "python", "call", name, name.rpartition(".")[2])
    return found


def modules(path: Path) -> set[str]:
    """Return the names, without packages, of the extensions that a setup.py builds."""
    found = set()
    for node in ast.walk(_parsed(path)[1]):
        if isinstance(node, ast.Call) and _extension(node):
            names = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
            for value in names:
                text = ast.unparse(value)
                if match := re.search(r"(\w+)['\"]$", text):
                    found.add(match[1])
    return found


def _parsed(path: Path) -> tuple[str, ast.AST]:
    text = path.read_text("utf-8", "replace")
    try:
        return text, ast.parse(text)
    except (SyntaxError, ValueError):  # Python 2, or not Python
        return text, ast.Module([], [])


def _extension(node: ast.AST) -> bool:
    name = _name(node.func) if isinstance(node, ast.Call) else node.id if isinstance(node, ast.Name) else ""
    return name.rpartition(".")[2] in EXTENSIONS


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
