"""Operators over rows: a project of them passes the tests of every project, and those of cases.py."""

import sys
from pathlib import Path

import pytest
from generated import install, its_tests

sys.path.insert(0, str(Path(__file__).parent / "over_rows"))

from project import write_project


@pytest.mark.slow  # compiling the project takes minutes
def test_operators_over_rows(tmp_path):
    project = write_project(tmp_path)
    # To compile them without optimisation of loops takes a third of the time.
    install(project, tmp_path / "site", "--config-settings=setup-args=-Doptimization=1")
    its_tests(project, tmp_path / "site", "-k", "not nested")
