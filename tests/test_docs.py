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
    assert min(example("digits")["accuracy"]) > 0.95


@pytest.mark.slow
def test_training_example():
    results = example("training")
    assert results["apart"] < 1e-5
    assert max(results["eager_losses"][-1], results["compiled_losses"][-1]) < 0.05


def test_derivatives_example():
    results = example("derivatives")
    assert results["forces"][-1] < 1e-12 < results["forces"][0]
    assert not results["H"].triu(2).any()
    assert results["J"].triu(2).any()


@pytest.mark.slow
def test_own_operator_example():
    norms = example("own_operator")["norms"]
    assert norms["with softclip"][-1] < 10 < 1e3 < norms["as it is"][-1]


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
