"""Finds what binds an extension to one torch or one CPython in setup.py and other Python files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ._findings import Finding
from ._table import ROWS

EXTENSION = re.compile(r"(.*\.)?(Cpp|CUDA|Sycl)Extension")


class Script:
    """A Python file: the calls in it, and the names, without packages, of the extensions that a setup.py builds."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, path.read_text("utf-8", "replace")
        try:
            nodes = list(ast.walk(ast.parse(self.text)))
        except (SyntaxError, ValueError):  # Python 2, or not Python
            nodes = []
        self.calls = [(node, ast.unparse(node.func)) for node in nodes if isinstance(node, ast.Call)]
        built = [node for node in nodes if isinstance(node, (ast.Name, ast.Attribute))]
        self.extensions = [node for node in built if EXTENSION.fullmatch(ast.unparse(node))]
        values = [x for call, name in self.calls if EXTENSION.fullmatch(name) for x in (*call.args[:1], *call.keywords)]
        named = (x.value if isinstance(x, ast.keyword) else x for x in values if getattr(x, "arg", "name") == "name")
        self.modules = {name for x in named for name in re.findall(r"(\w+)['\"]$", ast.unparse(x))}
        self.is_limited = path.name == "setup.py" and "Py_LIMITED_API" in self.text

    def findings(self, target: str, modules: Iterable[str]) -> Iterator[Finding]:
        """Yield what the file says; ``modules`` are the names of extensions that a setup.py builds."""

        def tell(line: int, kind: str, what: str, shown: str, name: str = "") -> Finding:
            row, version = ROWS[kind, what][0], 2 << 56 | int(target.split(".")[1]) << 48
            to = row.to.replace("$target", f"0x{version:016x}").replace("$what", name)
            return Finding(str(self.path), line, line, shown, kind, row.how, to, "", row.source)

        builds = [call.lineno for call, name in self.calls if name in ("setup", "setuptools.setup")]
        if self.extensions and builds:
            at = self.extensions[-1].lineno
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
                yield tell(call.lineno, "python", "load", name)
            elif module.rpartition(".")[2] in modules and not name.startswith("torch."):
                yield tell(call.lineno, "python", "call", name, function)
