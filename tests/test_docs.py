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


def example(name):
    mpl.use("agg")
    return runpy.run_path(str(ROOT / "docs" / "examples" / f"plot_{name}.py"))


def test_exponential_example():
    results = example("exponential")
    two_roundings, one_rounding = results["errors"].values()
    assert 0.5 < one_rounding.max() < 0.8 < two_roundings.max()
    two_roundings, one_rounding = results["correct"].values()
    assert two_roundings < 0.92 < 0.95 < one_rounding


def test_digits_example():
    results = example("digits")
    assert results["eager_accuracy"] > 0.95
    assert results["compiled_accuracy"] > 0.95


def test_every_name_of_torch_library_is_explained():
    table = (ROOT / "docs" / "torch_library.md").read_text()
    reference = [
        "opcheck",
        "register_kernel",
        "register_autograd",
        "CustomOpDef",
        "set_kernel_enabled",
        "Library.fallback",
    ]
    names = {*torch.library.__all__, *reference}
    assert not {name for name in names if f"`{name}`" not in table}
