"""``muladd-nb new --kernel`` takes the schemas of operators that people ship, word for word, and says why not."""

import csv
from pathlib import Path

import pytest

from muladd_nb._new._schema import read

# Of vllm, apex, stylegan3, mmcv, torchvision, ao, mamba, causal-conv1d, extension-cpp, pytorch_scatter and xformers, as
# their sources define them.
SHIPPED = list(csv.DictReader((Path(__file__).parent / "shipped.csv").open()))
REFUSED = {
    "stylegan3 filtered_lrelu": "its results must be tensors, which a compiled program can hold, got ",
    "mamba selective_scan_fwd": "a list among its results has a length that nobody knows before a call",
}


def refusal(schema, *, kernel=True):
    """Return the sentence by which a schema is refused, or nothing if it is taken, with all its arguments."""
    try:
        taken = read(schema, kernel=kernel)
    except ValueError as error:
        return str(error)
    given = len(taken.arguments) + (schema.split("(")[0].endswith("_out") and not kernel)
    assert given == schema.partition(" -> ")[0].count(",") + 1
    return ""


def test_a_kernel_takes_what_people_ship():
    sentences = {f"{row['project']} {row['schema'].partition('(')[0]}": refusal(row["schema"]) for row in SHIPPED}
    refused = {operator: sentence for operator, sentence in sentences.items() if sentence}
    assert refused.keys() == REFUSED.keys()
    assert all(sentence in refused[operator] for operator, sentence in REFUSED.items())


def test_a_row_takes_half_of_what_people_ship():
    """Others have lists, strings or symbolic sizes, write to what may be absent, or return what they write."""
    taken = [row["schema"] for row in SHIPPED if not refusal(row["schema"], kernel=False)]
    assert len(taken) == 54
    assert all("[]" not in schema and "!?" not in schema and "str " not in schema for schema in taken)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    {
        "f(Tensor x, Scalar c) -> Tensor": "c is a Scalar, a number of any type, which the stable ABI of torch 2.10",
        "f(Tensor x, Scalar? c=None) -> Tensor": "c is a Scalar",
        "f(Tensor x, *, Generator? g=None) -> Tensor": "g is a Generator, which the stable ABI passes from torch 2.13",
        "f(Tensor x, complex c) -> Tensor": "c is complex, which the stable ABI of torch 2.10 does not pass",
        "f(Tensor x, SymBool b) -> Tensor": "b is SymBool, which",
        "f(Tensor x, Dict(str, int) d) -> Tensor": "d is Dict[str, int], which",
        "f(Tensor?[] x, Tensor y) -> Tensor": "x must be a tensor, an optional one or a list of tensors",
        "f(Tensor[]? x, Tensor y) -> Tensor": "x must be a tensor, an optional one or a list of tensors",
        "f(Tensor x, ScalarType t=6) -> Tensor": "the default of t must be None",
        "f(Tensor x, Tensor x) -> Tensor": "x is the name of something else",
        "f(Tensor x, int lambda) -> Tensor": "is no keyword, got 'lambda'",
        "f(Tensor __x) -> Tensor": "begins with a letter, or an underscore and one, and is no keyword, got '__x'",
        "__f(Tensor x) -> Tensor": "got '__f'",
        "f(float c) -> Tensor": "there must be a tensor, or a list of tensors",
        "f(Tensor? x) -> Tensor": "there must be a tensor, or a list of tensors",
        "f(Tensor(a) x) -> Tensor": "x is aliased",
        "f(Tensor(a!) x) -> Tensor(a!)": "which cannot be compiled",
        "f(Tensor x) -> ()": "it must return a tensor, or write to an argument",
        "f(Tensor x) -> Tensor?": "its results must be tensors",
    }.items(),
)
def test_a_kernel_that_cannot_be_written_is_refused(schema, sentence):
    assert sentence in refusal(schema)
