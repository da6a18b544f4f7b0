"""The example of ExecuTorch: models exported in Python, run in C++ without Python and torch."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from conftest import run
from exported import same_bits, with_executorch

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "executorch"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The folder of the example's models, the names of export.py, and the C++ program."""
    folder = tmp_path_factory.mktemp("example")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["export.py", str(folder)])
        names = runpy.run_path(str(EXAMPLE / "export.py"))
    for command in (["meson", "setup", folder / "build", EXAMPLE], ["ninja", "-C", folder / "build"]):
        built = run(*command)
        assert built.returncode == 0, built.stdout + built.stderr
    return folder, names, folder / "build" / "digits"


def rows(text):
    return torch.tensor([[float(field) for field in line.split(",")] for line in text.splitlines()])


@with_executorch
def test_the_cpp_program_has_the_bits_of_eager(example):
    folder, names, program = example
    ran = run(program, folder / "digits.pte", folder / "digits.csv")
    assert ran.returncode == 0, ran.stderr
    assert same_bits(rows(ran.stdout), names["scores"])
    assert names["accuracy"] > 0.95


@with_executorch
def test_an_operator_registered_from_python_alone(example):
    folder, names, program = example
    ran = run(program, folder / "cube.pte", folder / "cube.csv")
    assert ran.returncode == 0, ran.stderr
    assert same_bits(rows(ran.stdout), names["Cube"]()(names["test_x"][:5]))


@with_executorch
def test_the_cpp_program_knows_neither_python_nor_torch(example):
    loaded = run("ldd", example[2]).stdout
    assert "libexecutorch.so" in loaded
    assert not re.search(r"libpython|libtorch|libc10|not found", loaded)


@with_executorch
def test_what_the_cpp_program_refuses(example, tmp_path):
    folder, _, program = example
    (tmp_path / "short.csv").write_text("1,2\n")
    (tmp_path / "words.csv").write_text("one,two\n")
    (tmp_path / "random.pte").write_bytes(bytes(range(200)))
    for args, says in (
        ((folder / "digits.pte",), "usage: "),
        (("missing.pte", folder / "digits.csv"), "cannot load missing.pte: Error::AccessFailed"),
        ((tmp_path / "random.pte", folder / "digits.csv"), "random.pte: Error::InvalidProgram"),
        ((folder / "digits.pte", "missing.csv"), "cannot read missing.csv"),
        ((folder / "digits.pte", tmp_path / "short.csv"), "a row must have 64 numbers, as the model does, got 2"),
        ((folder / "digits.pte", tmp_path / "words.csv"), "not a number: one"),
    ):
        ran = run(program, *args)
        assert ran.returncode in (1, 2)
        assert ran.stdout == ""
        assert says in ran.stderr
