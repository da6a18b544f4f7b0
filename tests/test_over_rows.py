"""Operators over rows: a project of them passes the tests of every project, and those of row_tests.py."""

import csv
import sys
from pathlib import Path

import pytest
from generated import QUICKLY, install, its_tests

sys.path.insert(0, str(Path(__file__).parent / "over_rows"))

from project import HERE, SCHEMAS, write_project


def test_each_operator_that_people_ship_is_there_or_the_reason():
    rows = list(csv.reader((HERE / "census.csv").open()))[1:]
    names = {schema.partition("(")[0] for schema in SCHEMAS}
    assert len({(project, operator) for project, operator, *_ in rows}) == len(rows) == 38
    for *_, here, reason in rows:
        assert here or reason
        assert {*here.split(", ")} - {""} <= names, here


@pytest.mark.slow  # compiling the project takes minutes
def test_operators_over_rows(tmp_path):
    project = write_project(tmp_path)
    install(project, tmp_path / "site", *QUICKLY)
    its_tests(project, tmp_path / "site", "-k", "not nested")
