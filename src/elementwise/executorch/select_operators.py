"""Find ExecuTorch and select the operators, for the meson.build in this folder.

The arguments are the name and the folder of the project, its out variants, and which of them to select. It prints three
lines: the version of ExecuTorch, its folder, and the selected operators, separated by commas. If there is a problem, it
prints a line on stderr that says what to do, and exits with 1.
"""

import argparse
import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile


def pinned_version(root: pathlib.Path) -> str:
    """Return the version that the project is built and tested with, from pyproject.toml's extra `executorch`."""
    versions = re.findall(r'"executorch==([^"]+)"', (root / "pyproject.toml").read_text())
    if len(versions) != 1:
        sys.exit(
            'pyproject.toml needs an extra that says which ExecuTorch to build with: executorch = ["executorch==1.5.1"]'
        )
    return str(versions[0])


def find(project: str, pinned: str) -> pathlib.Path:
    """Return the folder of the installed ExecuTorch. It must be the right one: its C++ ABI has no version."""
    needed = f"{project} needs executorch=={pinned} to build with -Dexecutorch=enabled, but"
    advice = f"run 'pip install --no-deps executorch=={pinned}' with {sys.executable} and build without isolation"
    try:
        installed = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{needed} it is not installed: {advice}.")
    if installed != pinned:
        sys.exit(f"{needed} {installed} is installed: {advice}.")
    if importlib.util.find_spec("yaml") is None:
        cure = f"run 'pip install pyyaml' with {sys.executable}"
        sys.exit(f"{needed} pyyaml, which its code generator needs, is not installed: {cure}.")
    return pathlib.Path(str(importlib.metadata.distribution("executorch").locate_file("executorch")))


def select(ours: list[str], operators: list[str], model: str) -> list[str]:
    """Return the named out variants, or those that the model uses; without names and model, return all."""
    used = used_by(model) if model else set()
    for name in operators:
        if name not in ours:
            sys.exit(f"executorch_operators: {name} is none of the operators {', '.join(ours)}.")
    if model and used.isdisjoint(ours):
        sys.exit(f"executorch_model: {model} uses none of the operators {', '.join(ours)}.")
    return [name for name in ours if name in used.union(operators)] if operators or model else ours


def used_by(model: str) -> set[str]:
    """Return the operators that a .pte uses, as ExecuTorch's gen_oplist reads them."""
    if not pathlib.Path(model).is_file():
        sys.exit(f"executorch_model: there is no file {model}; give its absolute path.")
    with tempfile.TemporaryDirectory() as temporary:
        output = pathlib.Path(temporary, "selected_operators.yaml")
        run = subprocess.run(  # in its own process, because it crashes if the file is not a program
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
    parser.add_argument("project")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("out_variants", nargs="*")
    parser.add_argument("--operators", nargs="*", default=[])
    parser.add_argument("--model", default="")
    arguments = parser.parse_args()
    if not arguments.out_variants:
        sys.exit("ExecuTorch calls out variants, but there is none: give an operator the form `out`.")
    pinned = pinned_version(arguments.root)
    executorch = find(arguments.project, pinned)
    print(pinned)
    print(executorch)
    print(",".join(select(arguments.out_variants, arguments.operators, arguments.model)))


main()
