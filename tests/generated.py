"""Build, install and test a project that ``muladd-nb new`` wrote."""

import sys
from pathlib import Path

import conftest
from conftest import CUDA, MODULE

from muladd_nb._new._copies import RECORD

# The options of this package's own build. If this Python has no stable ABI, it compiles for this Python only.
ABI = [] if ".abi3" in MODULE else ["--config-settings=setup-args=-Dpython.allow_limited_api=false"]

# For a short build: without loop optimisation, operators over rows compile in a third of the time. For this machine's
# processor only, they take two thirds of that.
QUICKLY = [f"--config-settings=setup-args=-D{option}" for option in ("optimization=1", "native=true")]


def run(*command, cwd, **environment):
    """Run a program that must succeed, and return its stdout."""
    result = conftest.run(*command, cwd=cwd, **environment)
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def install(project, folder, *options):
    """Build a wheel, install it in a folder, and return its path."""
    # Everything that the build needs is installed here, so pip does not download another torch.
    pip = [sys.executable, "-m", "pip"]
    wheels = folder.parent / "wheels"
    cuda = f"--config-settings=setup-args=-Dcuda={'enabled' if CUDA else 'disabled'}"
    here = ["--no-build-isolation", "--no-deps", "-w", wheels]
    run(*pip, "wheel", *here, cuda, *ABI, *options, project, cwd="/")
    (wheel,) = wheels.iterdir()
    run(*pip, "install", "--no-deps", f"--target={folder}", wheel, cwd="/")
    return wheel


def functor(name, result, parameters, body, dtypes=""):
    """Return a functor in C++."""
    head = f"struct {name} {{ {dtypes}\n  template <class C>\n"
    return f"{head}  ELEMENTWISE_FUNCTION {result} operator()({parameters}) const {{\n    {body}\n  }}\n}};\n\n"


def contents():
    """Return the contents of all files in this folder, by name."""
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def recorded(project):
    """Return the copied files that the record of a project lists."""
    return {line.partition("  ")[2] for line in (project / RECORD).read_text().splitlines() if line[0] != "#"}


def its_tests(project, site, *options):
    run(sys.executable, "-m", "pytest", "-q", *options, cwd=project, PYTHONPATH=str(site))
