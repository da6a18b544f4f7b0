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
