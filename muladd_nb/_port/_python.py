"""Finds what binds an extension to one torch or one CPython in setup.py and other Python files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ._findings import Finding
from ._table import ROWS

EXTENSION = re.compile(r"(.*\.)?(Cpp|CUDA|Sycl)Extension")


class Script:
    """A Python file: its names, and its calls."""

    def __init__(self, path: Path) -> None:
        self.path, self.text, self.is_setup = path, path.read_text("utf-8", "replace"), path.name == "setup.py"
        try:
            nodes = list(ast.walk(ast.parse(self.text)))
        except (SyntaxError, ValueError):  # Python 2, or not Python
            nodes = []
        self.calls = [(node, _name(node.func)) for node in nodes if isinstance(node, ast.Call)]
        self.extensions = [x for x in nodes if EXTENSION.fullmatch(_name(x.func if isinstance(x, ast.Call) else x))]

    def modules(self) -> Iterator[str]:
        """Yield the names, without packages, of the extensions that a setup.py builds."""
        for call in self.extensions:
            if isinstance(call, ast.Call):
                for value in (*call.args[:1], *(word.value for word in call.keywords if word.arg == "name")):
                    yield from re.findall(r"(\w+)['\"]$", ast.unparse(value))

    def findings(self, target: str, modules: set[str]) -> Iterator[Finding]:
        """Yield what the file says; ``modules`` are the names of extensions that a setup.py builds."""

        def tell(node: ast.AST, kind: str, what: str, shown: str, name: str = "") -> Finding:
            row, version = ROWS[kind, what][0], 2 << 56 | int(target.split(".")[1]) << 48
            to = row.to.replace("$target", f"0x{version:016x}").replace("$what", name)
            line = getattr(node, "lineno", 1)
            return Finding(str(self.path), line, line, shown, kind, row.how, to, "", row.source)

        builds = [call for call, name in self.calls if name in ("setup", "setuptools.setup")]
        if self.extensions and builds:
            at = self.extensions[-1]
            if "py_limited_api" not in self.text:
                yield tell(at, "python", "extension", "an extension for one CPython")
            elif "bdist_wheel" not in self.text:
                yield tell(builds[0], "python", "wheel", "a wheel for one CPython")
            flags = ["TORCH_TARGET_VERSION", "Py_LIMITED_API", *["-DUSE_CUDA"] * ("CUDAExtension" in self.text)]
            for flag in (flag for flag in flags if flag not in self.text):
                yield tell(at, "flag", flag.removeprefix("-D"), f"no -D{flag.removeprefix('-D')}")
        for call, name in self.calls:
            module, _, function = name.rpartition(".")
            if re.search(r"\bcpp_extension\.load(_inline)?$|^load_inline$", name):
                yield tell(call, "python", "load", name)
            elif module.rpartition(".")[2] in modules and not name.startswith("torch."):
                yield tell(call, "python", "call", name, function)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
