"""Operators over rows, of functors that reduce: a project of them passes the tests that are in `over_rows/`."""

import shutil
from pathlib import Path

import pytest
from generated import install, its_tests

from muladd_nb import _new

HERE = Path(__file__).parent / "over_rows"


@pytest.mark.slow  # to compile the project takes minutes
def test_operators_over_rows(tmp_path):
    project = _new.create("row_ops", ["softclip(Tensor x, float limit) -> Tensor"], tmp_path)
    for name in ("functors.h", "operators.h"):
        shutil.copy(HERE / name, project / "src")
    package = project / "python/row_ops"
    shutil.copy(HERE / "_operators.py", package)
    (package / "ops.py").write_text(
        '"""The public functions: none."""\n\nfrom . import _operators  # noqa: F401\n\n__all__: list[str] = []\n'
    )
    shutil.rmtree(project / "tests")
    (project / "tests").mkdir()
    shutil.copy(HERE / "cases.py", project / "tests/test_rows.py")
    # To compile them without optimisation of loops takes a third of the time.
    install(project, tmp_path / "site", "--config-settings=setup-args=-Doptimization=1")
    its_tests(project, tmp_path / "site")
