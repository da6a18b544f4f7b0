"""The examples of the documentation run, and its numbers are those of the records."""

import doctest
import json
import re
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


RECORDS = runpy.run_path(str(ROOT / "benchmarks/records.py"))
MARKDOWN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_marked_numbers_are_those_of_the_records(path):
    text = path.read_text()
    assert RECORDS["fill"](text) == text, "run benchmarks/report.py --output build/plots --readme"
    assert not re.search(r"^ *<!-- \w+: ", text, re.MULTILINE), "a comment at the start of a line is a block of HTML"


def test_readme_and_performance_take_their_numbers_from_the_records():
    for name in ("README.md", "docs/performance.md"):
        assert len(RECORDS["MARKED"].findall((ROOT / name).read_text())) > 20


def test_a_case_that_was_too_busy_to_tell_supports_no_number(tmp_path, monkeypatch):
    row = {"work": "a layer", "numel": 16, "seconds": {}, "ratios": {"eager": {"low": 1, "median": 2.345, "high": 3}}}
    monkeypatch.setitem(RECORDS["number"].__globals__, "RESULTS", tmp_path)
    for busy in (False, True):
        (tmp_path / "model-cpu.json").write_text(json.dumps({"rows": [row | {"busy": busy}]}))
        if busy:
            with pytest.raises(ValueError, match="too busy to tell"):
                RECORDS["fill"]("<!-- model: a layer; 2^4; eager -->1.00")
        else:
            assert RECORDS["fill"]("by <!-- model: a layer; 2^4; eager -->1.00") == (
                "by <!-- model: a layer; 2^4; eager -->2.35"
            )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_of_the_readme_shows_the_records(theme):
    _, text = RECORDS["pictured"]()
    assert text in (ROOT / f"docs/_static/speed-{theme}.svg").read_text()


def test_no_link_of_the_readme_leads_to_a_page_that_is_empty_on_a_code_host():
    """A code host shows directives, such as include and csv-table, as they are written."""
    links = re.findall(r"(?:\]\(|src=\"|srcset=\")((?!https?:)[^)\"#]+)", (ROOT / "README.md").read_text())
    assert len(links) > 15
    for link in links:
        assert (ROOT / link).exists(), link
        if link.endswith(".md"):
            shown = re.sub(r"^(`{3,}|:{3,})\{.*?^\1", "", (ROOT / link).read_text(), flags=re.MULTILINE | re.DOTALL)
            assert len(shown.split()) > 80, link


def test_readme_shows_the_edits_of_the_tour():
    tour = (ROOT / "docs/ship/diffs/softclip.diff").read_text().splitlines()
    (shown,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [line for line in tour if line in shown.splitlines()] == shown.splitlines()


def example(name):
    mpl.use("agg")
    return runpy.run_path(str(ROOT / "docs" / "examples" / f"plot_{name}.py"))


def test_the_pages_find_what_they_include():
    for page in (ROOT / "docs").rglob("*.md"):
        included = re.findall(r"```\{(?:literal)?include\} (\S+)\n((?::.*\n)*)", page.read_text())
        for source, options in included:
            for text in re.findall(r':(?:start|end)-\w+: "?(.*?)"?\n', options):
                assert text in (page.parent / source).read_text(), (page, source)


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
