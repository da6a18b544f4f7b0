"""Print the version and folders of torch and the include folder of nanobind, one a line, for meson.build.

The argument is the name of the project. A problem is one sentence on stderr that says what to do, and exit status 1.
"""

import importlib.metadata
import importlib.util
import pathlib
import re
import sys

TORCH_AT_LEAST = (2, 10)
NANOBIND_AT_LEAST = (3, 0)

(name,) = sys.argv[1:]


def find(package: str, at_least: tuple[int, int]) -> tuple[str, pathlib.Path]:
    """Return the version and folder of an installed package, which is not imported: torch takes seconds."""
    requirement = f"{package}>={at_least[0]}.{at_least[1]}"
    advice = f"run 'pip install \"{requirement}\"' with {sys.executable} and configure again"
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"{name} needs {requirement} to build, but it is not installed: {advice}.")
    version = importlib.metadata.version(package)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < at_least:
        sys.exit(f"{name} needs {requirement} to build, but {version} is installed: {advice}.")
    return version, pathlib.Path(spec.origin).parent


def require(path: pathlib.Path, package: str) -> pathlib.Path:
    """Return `path`, if it is there."""
    if not path.exists():
        sys.exit(f"{name} needs {path} to build, which this {package} lacks: reinstall {package}.")
    return path


torch_version, torch = find("torch", TORCH_AT_LEAST)
_, nanobind = find("nanobind", NANOBIND_AT_LEAST)
require(torch / "include/torch/csrc/stable/library.h", "torch")
require(nanobind / "include/nanobind/nanobind.h", "nanobind")
print(torch_version)
print(torch / "include")
print(require(torch / "lib/libtorch.so", "torch").parent)
print(nanobind / "include")
