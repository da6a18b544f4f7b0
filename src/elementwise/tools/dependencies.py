"""Print what to compile against, one a line, for meson.build: torch and nanobind, as pyproject.toml asks for them.

That is the version of torch, its folders of headers and of libraries, the headers of nanobind, and the oldest torch
that the binary is to run on, as its version and as the headers take it. The arguments are the name of the project, its
folder, and how the name of a library ends. A problem is one line on stderr that says what to do, and exit status 1.
"""

import importlib.metadata
import importlib.util
import pathlib
import re
import sys

name, root, library_suffix = sys.argv[1:]


def oldest(package: str) -> str:
    """Return the oldest version of a package that the project runs with."""
    found = set(re.findall(rf'"{package}>=([\d.]+)', (pathlib.Path(root) / "pyproject.toml").read_text()))
    if len(found) != 1:
        sys.exit(f'pyproject.toml must name one oldest {package}, as "{package}>=3.0", got {sorted(found)}.')
    return found.pop()


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as it is compared, and as torch's headers take it."""
    return (*map(int, re.findall(r"\d+", version)), 0)[:2]


def find(package: str) -> tuple[str, pathlib.Path]:
    """Return the version and folder of an installed package, which is not imported: torch takes seconds."""
    requirement = f"{package}>={oldest(package)}"
    advice = f"run 'pip install \"{requirement}\"' with {sys.executable} and configure again"
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"{name} needs {requirement} to build, but it is not installed: {advice}.")
    version = importlib.metadata.version(package)
    if numbers(version) < numbers(oldest(package)):
        sys.exit(f"{name} needs {requirement} to build, but {version} is installed: {advice}.")
    return version, pathlib.Path(spec.origin).parent


def require(path: pathlib.Path, package: str) -> pathlib.Path:
    """Return `path`, if it is there."""
    if not path.exists():
        sys.exit(f"{name} needs {path} to build, which this {package} lacks: reinstall {package}.")
    return path


torch_version, torch = find("torch")
_, nanobind = find("nanobind")
require(torch / "include/torch/csrc/stable/library.h", "torch")
require(nanobind / "include/nanobind/nanobind.h", "nanobind")
print(torch_version)
print(torch / "include")
print(require(torch / f"lib/libtorch.{library_suffix}", "torch").parent)
print(nanobind / "include")
print(oldest("torch"))
print("0x{:02x}{:02x}000000000000".format(*numbers(oldest("torch"))))
