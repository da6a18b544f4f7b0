"""The example without Python: a C++ program runs a model that AOTInductor compiled."""

import re
import runpy
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import fuses, needs, run

import muladd_nb

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "aoti"
LIBRARY = muladd_nb.library_path()

BUILDS = {
    "meson": "meson setup build {source} && ninja -C build",
    "cmake": "cmake -S {source} -B build -DCMAKE_PREFIX_PATH={prefix} && cmake --build build",
}


pytestmark = [pytest.mark.slow, needs("c++", "g++")]  # test_export.py has packages, in Python
batches = pytest.mark.parametrize("batch", [1, 2, 7, None], ids=["1", "2", "7", "all"])


class Example:
    """The files that export.py writes into `folder`, and the model in eager mode."""

    def __init__(self, folder):
        self.model = runpy.run_path(str(EXAMPLE / "export.py"))["main"](folder)
        self.package = folder / "digits.pt2"
        self.rows = (folder / "digits.csv").read_text().splitlines(keepends=True)
        self.scans = torch.tensor(np.loadtxt(folder / "digits.csv", delimiter=","), dtype=torch.float32)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return Example(tmp_path_factory.mktemp("aoti"))


@pytest.fixture(
    scope="module",
    params=[pytest.param("meson", marks=needs("meson", "ninja")), pytest.param("cmake", marks=needs("cmake"))],
)
def program(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    command = BUILDS[request.param].format(source=EXAMPLE, prefix=torch.utils.cmake_prefix_path)
    built = run("sh", "-c", command, cwd=folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "build" / "predict"


def test_the_package_calls_the_operator_where_it_is_not_fused(example):
    """On x86 an operator with a neighbour is fused, as the second one is."""
    with zipfile.ZipFile(example.package) as package:
        calls = "".join(package.read(name).decode() for name in package.namelist() if name.endswith(".json"))
    fused = {"muladd_nb::mymuladd_out"} if fuses("cpu") else set()
    assert set(re.findall(r"muladd_nb::\w+", calls)) == {"muladd_nb::mymuladd", "muladd_nb::mymuladd_out"} - fused


@batches
def test_the_program_predicts_what_python_does(example, program, batch, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("".join(example.rows[:batch]))
    ran = run(program, example.package, rows, LIBRARY)
    assert (ran.returncode, ran.stderr) == (0, "")
    predicted = np.loadtxt(ran.stdout.splitlines(), ndmin=2)
    with torch.no_grad():
        probability, digit = example.model(example.scans[:batch]).softmax(1).max(1)
    np.testing.assert_array_equal(predicted[:, 0], digit)
    np.testing.assert_allclose(predicted[:, 1], probability, rtol=1e-4)


def test_there_is_no_python_in_its_process(example, program):
    ran = run(program, example.package, example.package.with_suffix(".csv"), LIBRARY, LD_DEBUG="libs")
    loaded = re.findall(r"calling init: (.*)", ran.stderr)
    assert LIBRARY in loaded
    assert not [path for path in loaded if re.search(r"libpython|torch_python", path)]


def without_columns(package, path):
    """Copy a package without the metadata that export.py writes about the columns."""
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'"columns"', b'"unknown"'))


def test_what_is_wrong_is_named(example, program, tmp_path):
    def says(*arguments):
        ran = run(program, *arguments)
        assert (ran.returncode, ran.stdout) == (1, "")  # a signal would be negative
        (line,) = ran.stderr.splitlines()
        return line

    def rows(*lines):
        path = tmp_path / "rows.csv"
        path.write_text("".join(lines))
        return path

    package, good = example.package, example.package.with_suffix(".csv")
    first, second = example.rows[:2]
    narrow = ",".join(second.split(",")[:63]) + "\n"
    at = f"predict: {tmp_path / 'rows.csv'}"
    anonymous = tmp_path / "anonymous.pt2"
    without_columns(package, anonymous)

    assert says(package, good) == f"predict: {package}: Could not find schema for muladd_nb::mymuladd."
    assert says(package, good, "/missing.so") == (
        "predict: /missing.so: cannot open shared object file: No such file or directory"
    )
    assert says("missing.pt2", good, LIBRARY).startswith("predict: missing.pt2: ")
    assert says(good, good, LIBRARY).startswith(f"predict: {good}: ")
    assert says(anonymous, good, LIBRARY) == f"predict: {anonymous}: does not say how many columns it takes"
    assert says(package, "missing.csv", LIBRARY) == "predict: missing.csv: cannot be read, or has no rows"
    assert says(package, rows(), LIBRARY) == f"{at}: cannot be read, or has no rows"
    assert says(package, rows(first, narrow), LIBRARY) == f"{at}, line 2: the model takes 64 numbers, got 63"
    assert says(package, rows(first, "\n", second), LIBRARY) == f"{at}, line 2: the model takes 64 numbers, got 0"
    for cell in ("x", "", "1.5x", " 2", "nan", "inf", "1e999"):
        wrong = second.replace(second.split(",")[0], cell, 1)
        assert says(package, rows(first, wrong), LIBRARY) == f"{at}, line 2: expected a number, got '{cell}'"


@pytest.mark.skipif(not fuses("cpu"), reason="AOTInductor fuses nothing on this processor")
def test_a_package_whose_operators_are_all_fused_needs_no_library(example, program, tmp_path):
    """The example, changed so that the operator without a neighbour has one."""
    module, package = runpy.run_path(str(EXAMPLE / "export.py")), tmp_path / "fused.pt2"

    class Fused(module["Classifier"]):
        def forward(self, scans):
            x = muladd_nb.mymuladd(scans, self.scale.expand_as(scans), -1.0).tanh()
            features, gain = self.features(x).relu(), self.gain(x)
            return self.classes(muladd_nb.mymuladd(features, gain, 0.1, out=features).relu())

    model = Fused().eval()
    with torch.no_grad():
        exported = torch.export.export(model, (example.scans,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
        probability, digit = model(example.scans).softmax(1).max(1)
    columns = {"aot_inductor.metadata": {"columns": str(module["PIXELS"])}}
    torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=columns)
    ran = run(program, package, example.package.with_suffix(".csv"))
    assert (ran.returncode, ran.stderr) == (0, "")
    predicted = np.loadtxt(ran.stdout.splitlines(), ndmin=2)
    np.testing.assert_array_equal(predicted[:, 0], digit)
    np.testing.assert_allclose(predicted[:, 1], probability, rtol=1e-4)


def test_it_says_how_it_is_called(program):
    ran = run(program)
    assert (ran.returncode, ran.stderr) == (2, "usage: predict PACKAGE ROWS [LIBRARY...]\n")
