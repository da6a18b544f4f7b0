"""Find ExecuTorch and select the operators, for src/elementwise/executorch/meson.build.

Prints, one a line: the version and the folder of ExecuTorch, and the selected operators, with commas between them. A
problem is one sentence on stderr that says what to do, and exit status 1.
"""

import argparse
import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
OPERATORS = ROOT / "src/operators.h"


def pinned_version() -> str:
    """Return the version in the extra `executorch` of pyproject.toml: the one that is built and tested with."""
    (version,) = re.findall(r'"executorch==([^"]+)"', (ROOT / "pyproject.toml").read_text())
    return str(version)


def folder(distribution: str, path: str) -> pathlib.Path:
    """Return where a folder of an installed distribution is, which is not imported."""
    return pathlib.Path(str(importlib.metadata.distribution(distribution).locate_file(path)))


def find() -> pathlib.Path:
    """Return the folder of the installed ExecuTorch, if it is the right one. Its C++ ABI has no version."""
    needed = f"muladd_nb needs executorch=={pinned_version()} to build with -Dexecutorch=enabled, but"
    advice = (
        f"run 'pip install --no-deps executorch=={pinned_version()}' with {sys.executable} and build without isolation"
    )
    try:
        installed = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{needed} it is not installed: {advice}.")
    if installed != pinned_version():
        sys.exit(f"{needed} {installed} is installed: {advice}.")
    if importlib.util.find_spec("yaml") is None:
        sys.exit(
            f"{needed} pyyaml, which its code generator needs, is not: run 'pip install pyyaml' with {sys.executable}."
        )
    return folder("executorch", "executorch")


def select(operators: list[str], model: str) -> list[str]:
    """Return the out variants that are named, or that the model uses; without either, all."""
    rows = re.findall(r'Operator<\s*"(\w+)(\.\w+)?\([^<>]*",\s*\w+,\s*([^<>]+)>', OPERATORS.read_text())
    ours = [f"muladd_nb::{name}{tag or '.'}{'_' * bool(tag)}out" for name, tag, forms in rows if "out" in forms.split()]
    for name in operators:
        if name not in ours:
            sys.exit(f"executorch_operators: {name} is none of the operators {', '.join(ours)}.")
    used = used_by(model) if model else set()
    if model and used.isdisjoint(ours):
        sys.exit(f"executorch_model: {model} uses none of the operators {', '.join(ours)}.")
    return [name for name in ours if name in used.union(operators)] if operators or model else ours


def used_by(model: str) -> set[str]:
    """Return the operators that a .pte uses, as ExecuTorch's gen_oplist reads them."""
    if not pathlib.Path(model).is_file():
        sys.exit(f"executorch_model: there is no file {model}; give its absolute path.")
    with tempfile.TemporaryDirectory() as temporary:
        output = pathlib.Path(temporary, "selected_operators.yaml")
        run = subprocess.run(  # a process of its own, which a file that is no program ends
            [sys.executable, "-m", "executorch.codegen.tools.gen_oplist", "--output_path", str(output)]
            + ["--model_file_path", model],
            capture_output=True,
            check=False,
        )
        if run.returncode != 0:
            sys.exit(f"executorch_model: gen_oplist cannot read {model}; is it an ExecuTorch program?")
        return set(re.findall(r"^  (\S+::\S+):$", output.read_text(), re.MULTILINE))


def main() -> None:
    """Check, select and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", nargs="*", default=[])
    parser.add_argument("--model", default="")
    arguments = parser.parse_args()
    executorch = find()
    selected = select(arguments.operators, arguments.model)
    print(pinned_version())
    print(executorch)
    print(",".join(selected))


main()
