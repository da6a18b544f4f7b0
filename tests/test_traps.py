"""The C++ programs of the page on traps: run with the commands at their tops, they print the output shown there."""

import doctest
import shutil
from pathlib import Path

import pytest
import torch
from conftest import run

import muladd_nb

PROGRAMS = sorted((Path(__file__).parent.parent / "docs" / "traps").glob("*.cpp"))
CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("program", [
    pytest.param(path, id=path.stem, marks=pytest.mark.slow if "ATen" in path.read_text() else [])  # many headers
    for path in PROGRAMS
])  # fmt: skip
def test_program(program, tmp_path):
    lines = [line.removeprefix("// ") for line in program.read_text().splitlines() if line.startswith("// ")][1:]
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    expected = "".join(f"{line}\n" for line in lines if not line.startswith("$ "))
    if "x86-64-v3" in " ".join(commands) and not {"fma", "avx2"} <= set(CPU.split()):
        pytest.skip("needs an x86 processor with FMA")
    shutil.copy(program, tmp_path)
    names = {"TORCH": str(Path(torch.__file__).parent), "MODULE": muladd_nb._C.__file__}
    ran = run("sh", "-ec", "\n".join(commands), cwd=tmp_path, **names)
    assert ran.returncode == 0, ran.stderr
    assert doctest.OutputChecker().check_output(expected, ran.stdout, doctest.ELLIPSIS), ran.stdout
