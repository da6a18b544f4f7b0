"""Operators over rows: a project of them passes the tests of every project, and those of cases.py."""

import shutil
import sys
from pathlib import Path

import pytest
from generated import install, its_tests

from muladd_nb import _new

HERE = Path(__file__).parent / "over_rows"
sys.path.insert(0, str(HERE))

from schemas import SCHEMAS  # noqa: E402


@pytest.mark.slow  # to compile the project takes minutes
def test_operators_over_rows(tmp_path):
    project = _new.create("row_ops", SCHEMAS, tmp_path, rows=True)
    for name in ("functors.h", "operators.h"):
        shutil.copy(HERE / name, project / "src")
    shutil.copy(HERE / "operators.py", project / "tests")
    shutil.copy(HERE / "cases.py", project / "tests/test_rows.py")
    # To compile them without optimisation of loops takes a third of the time.
    install(project, tmp_path / "site", "--config-settings=setup-args=-Doptimization=1")
    its_tests(project, tmp_path / "site", "-k", "not nested")
