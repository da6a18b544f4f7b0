"""Finds what binds an extension to one torch or one CPython in setup.py and other Python files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from ._findings import Finding
from ._table import ROWS

EXTENSION = re.compile(r"(.*\.)?(Cpp|CUDA|Sycl)Extension")
PLAIN = re.compile(r"(.*\.)?(Cpp|CUDA|Sycl)?Extension")  # setuptools', too
LOAD = re.compile(r"(.*\bcpp_extension\.)load(_inline)?|load_inline")


def read(paths: Iterable[Path], target: str) -> tuple[list[Finding], bool]:
    """Return the findings in the files, and whether a setup.py defines Py_LIMITED_API."""
    found, limited, every, modules = list[Finding](), False, list[tuple[Path, int, str]](), set[str]()

    def tell(path: Path, line: int, kind: str, what: str, shown: str, name: str = "") -> None:
        row, version = ROWS[kind, what][0], 2 << 56 | int(target.split(".")[1]) << 48
        to = row.to.replace("$target", f"0x{version:016x}").replace("$what", name)
        found.append(Finding(str(path), line, line, shown, kind, row.how, to, "", row.source))

    for path in sorted(paths, key=lambda path: path.name != "setup.py"):  # setup.py names the modules
        text = path.read_text("utf-8", "replace")
        if not any(name in text for name in ("Extension", "cpp_extension", "load_inline", *modules)):
            continue  # parsing takes long
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # Python 2, not Python, or nested too deeply
            continue
        calls = [(node, ast.unparse(node.func)) for node in nodes if isinstance(node, ast.Call)]
        every += [(path, call.lineno, name) for call, name in calls]
        imports = [(node, x) for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for x in node.names]
        full = {x.asname or x.name: f"{getattr(node, 'module', '')}.{x.name}" for node, x in imports}
        for call, name in calls:
            head, dot, rest = name.partition(".")
            if LOAD.fullmatch(full.get(head, head) + dot + rest):
                tell(path, call.lineno, "python", "load", name)
        names = [node for node in nodes if isinstance(node, (ast.Name, ast.Attribute))]
        extension = PLAIN if "include_paths(" in text else EXTENSION  # the paths of torch's headers
        built = [node.lineno for node in names if extension.fullmatch(ast.unparse(node))]
        setups = [call.lineno for call, name in calls if name in ("setup", "setuptools.setup")]
        if path.name == "setup.py":
            limited |= "Py_LIMITED_API" in text
            for call in (call for call, name in calls if extension.fullmatch(name)):
                values = [*call.args[:1], *(x.value for x in call.keywords if x.arg == "name")]
                modules |= {name for x in values for name in re.findall(r"(\w+)['\"]$", ast.unparse(x))}
        if built and setups:
            if "py_limited_api" not in text.replace("py_limited_api=False", ""):
                tell(path, built[-1], "python", "extension", "an extension for one CPython")
            elif "bdist_wheel" not in text:
                tell(path, setups[0], "python", "wheel", "a wheel for one CPython")
            flags = ["TORCH_TARGET_VERSION", "Py_LIMITED_API", *["-DUSE_CUDA"] * ("CUDAExtension" in text)]
            for flag in (flag.removeprefix("-D") for flag in flags if flag not in text):
                tell(path, built[-1], "flag", flag, f"no -D{flag}")
    for path, line, name in every:
        module, _, function = name.rpartition(".")
        if module.rpartition(".")[2] in modules and not name.startswith("torch."):
            tell(path, line, "python", "call", name, function)
    return found, limited
