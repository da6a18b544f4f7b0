"""Find torch and nanobind, for meson.build. pyproject.toml says which versions are needed.

The script prints six lines: the version of torch, the folders of its headers and of its libraries, the headers of
nanobind, and the oldest torch that the binary runs on, as a version and as the value of TORCH_TARGET_VERSION. The
arguments are the name of the project, its folder, and the suffix of a library. If something is missing, it prints a
line on stderr that says what to do, and exits with 1.
"""

import importlib.metadata
import importlib.util
import pathlib
import re
import sys

name, root, library_suffix = sys.argv[1:]


def oldest(package: str) -> str:
    """Return the oldest version of a package that pyproject.toml allows."""
    found = set(re.findall(rf'"{package}>=([\d.]+)', (pathlib.Path(root) / "pyproject.toml").read_text()))
    if len(found) != 1:
        sys.exit(f'pyproject.toml must name one oldest {package}, as "{package}>=3.0", got {sorted(found)}.')
    return found.pop()


def numbers(version: str) -> tuple[int, ...]:
    """Return the major and the minor number of a version."""
    return (*map(int, re.findall(r"\d+", version)), 0)[:2]


def find(package: str) -> tuple[str, pathlib.Path]:
    """Return the version and the folder of an installed package, without an import, which takes seconds for torch."""
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
    """Return `path` if it exists."""
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
