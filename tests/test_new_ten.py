"""A project of ``muladd-nb new`` with ten kinds of operators passes its own tests, on the oldest torch too.

Its CUDA kernels, compiled by the host compiler, return the bits of the CPU kernels.
"""

import re
import sys

import pytest
from conftest import needs
from generated import install, its_tests, run
from ten import write_project

pytestmark = pytest.mark.slow  # test_new.py tests two of the ten


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory):
    """Return the project with ten operators, and its wheel."""
    folder = tmp_path_factory.mktemp("every_kind")
    project = write_project(folder)
    return project, install(project, folder / "site")


def test_every_kind_of_operator_passes_all_its_tests(every_kind):
    project, wheel = every_kind
    its_tests(project, wheel.parent.parent / "site", "-m", "")


def test_the_same_wheel_runs_on_the_oldest_torch(every_kind, tmp_path):
    """The test above uses this environment's torch, which is the newest in CI."""
    project, wheel = every_kind
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    run(tmp_path / "venv/bin/pip", "install", "torch==2.10.*", f"{wheel}[test]", cwd=tmp_path)
    run(tmp_path / "venv/bin/pytest", "-q", "-k", "not registrations and not compil", cwd=project)


@needs("meson", "ninja", "nvcc")
def test_its_cuda_kernels_compile_and_give_what_the_cpu_gives(every_kind, tmp_path):
    """nvcc compiles them. Compiled by the host compiler, they run without a GPU and return the same bits."""
    project, wheel = every_kind
    alone, whole = tmp_path / "alone", tmp_path / "whole"
    quickly = "-Doptimization=1"  # the build is short
    run("meson", "setup", alone, quickly, "-Dkernels_alone=true", cwd=project)
    log = run("meson", "test", "-C", alone, "--verbose", cwd=project)
    assert int(re.search(r"^(\d+) cases, 0 failed", log, re.MULTILINE)[1]) > 10_000
    run("meson", "setup", whole, quickly, "-Dcuda=enabled", "-Dgpu_archs=90", cwd=project)
    run("meson", "compile", "-C", whole, cwd=project)
    site = {"PYTHONPATH": str(wheel.parent.parent / "site")}
    log = run("meson", "test", "-C", whole, "CUDA kernels of one's own on the host", "--verbose", cwd=project, **site)
    assert int(re.search(r"^(\d+) cases, 0 failed, 0 with other bits", log, re.MULTILINE)[1]) > 100
