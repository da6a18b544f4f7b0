"""What the documentation shows, run."""

import doctest
import runpy
from pathlib import Path

import matplotlib as mpl
import pytest
import torch

import muladd_nb
import muladd_nb.info
import muladd_nb.ops

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("module", [muladd_nb.ops, muladd_nb.info], ids=lambda module: module.__name__)
def test_docstrings(module):
    names = {"muladd_nb": muladd_nb, "torch": torch}
    result = doctest.testmod(module, extraglobs=names)
    assert result.attempted > 0
    assert result.failed == 0


def test_readme():
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_digits_example():
    mpl.use("agg")
    results = runpy.run_path(str(ROOT / "docs" / "examples" / "plot_digits.py"))
    assert results["eager_accuracy"] > 0.95
    assert results["compiled_accuracy"] > 0.95
