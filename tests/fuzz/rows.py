"""Rows of any length and layout, some with NaN or infinities, give PyTorch's values and gradients, or the right error.

The operators are those of ``tests/over_rows``. Importing this compiles a project of them, unless ROW_OPS is a folder in
which it is installed.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(2, str(Path(__file__).parents[1] / "over_rows"))
from project import write_project

FOLDER = Path(tempfile.mkdtemp())
PROJECT = write_project(FOLDER)


def _installed():
    options = ["--no-build-isolation", "--no-deps", "--quiet", f"--target={FOLDER / 'site'}"]
    settings = [f"-Csetup-args=-D{option}" for option in ("cuda=disabled", "optimization=1", "native=true")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *settings, PROJECT], check=True)
    return FOLDER / "site"


sys.path[3:3] = [os.environ.get("ROW_OPS") or str(_installed()), str(PROJECT / "tests")]
from cases import EXTREMES, is_float, is_tensor  # noqa: E402
from operators import OPERATORS  # noqa: E402
from test_operators import LAYOUTS, cotangents_of, gradients  # noqa: E402

COUNTS = Counter()
ops = torch.ops.row_ops
CASES = {case.name: case for case in OPERATORS if torch.float32 in case.dtypes}
# Lengths around those of each instruction set's vectors, the lanes, a warp, and a block of a sum.
LENGTHS = [n + more for n in (1, 4, 8, 16, 32, 64, 128, 256, 1024, 2048) for more in (-1, 0, 1) if n + more > 0]
SPECIAL = {"none": (), "nan": ("nan",), "inf": ("inf",), "-inf": ("-inf",), "many": ("inf", "-inf", "nan")}
# Tolerances of gradients, for which torch runs several operators.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-3}


def with_special(x, values, whole):
    """Return a tensor of which the first row, or some elements, have special values."""
    x = x.clone()
    for value in values:
        place = 0 if whole else torch.randint(len(x.view(-1)), ())
        (x if whole else x.view(-1))[place] = float(value)
    return x


@given(
    name=st.sampled_from([*CASES]),
    n=st.sampled_from(LENGTHS),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    layout=st.sampled_from(["contiguous", "transposed", "sliced"]),
    special=st.sampled_from([*SPECIAL]),
    whole=st.booleans(),
    mixed=st.booleans(),
    label=st.sampled_from([*[None] * 20, -1, -101, "n", 2**40]),
    seed=st.integers(0, 2**32),
)
def right_over_rows(name, n, dtype, layout, special, whole, mixed, label, seed):
    torch.manual_seed(seed)
    if label is not None:
        refused(n, dtype, n if label == "n" else label)
        return
    case = CASES[name]
    args = case.sample(dtype, shape=(4, n), choice=case.choices[seed % len(case.choices)])
    if case.extremes is EXTREMES:  # the references of the other operators are for finite numbers
        args[case.first] = with_special(args[case.first], SPECIAL[special], whole)
    if mixed and dtype.itemsize == 2:  # the tensors beside the first one have float32
        kept = {case.names[case.first], *case.written, *case.forms[0].own}
        args = [x.float() if is_float(x) and y not in kept else x for y, x in zip(case.names, args, strict=True)]
    args = [LAYOUTS[layout](x) if is_tensor(x) and x.dim() else x for x in args]
    what = f"rows of {n} elements, {dtype}, {layout}, {special}"
    case.check(case.call(*args), case.expected(*args), f"the result of {what}")
    if dtype in TOLERANCE and special == "none" and case.differentiable:
        cotangents = cotangents_of(case, args)
        wide = [x.double() if is_float(x) else x for x in args]
        ours = gradients(case, case.call, args, case.present(args), cotangents)
        theirs = gradients(case, case.reference, wide, case.present(args), cotangents)
        tolerances = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
        theirs = tuple(y.to(dtype) for y in theirs.values())
        case.close(tuple(ours.values()), theirs, f"the gradients of {what}", **tolerances)
    COUNTS["right"] += 1


def refused(n, dtype, label):
    """A label outside of its row is an error, and nothing is written."""
    x, labels = torch.randn(3, n, dtype=torch.float64).to(dtype), torch.zeros(3, dtype=torch.int64)
    labels[torch.randint(3, ())] = label
    out = torch.full((3,), 7.0, dtype=dtype)
    try:
        ops.cross_entropy_out(x, labels, -100, 0.0, out)
    except RuntimeError as error:
        assert str(error).startswith("cross_entropy_out: a place that is read lies outside of its row"), error
        assert (out == 7).all()
        COUNTS["refused as expected"] += 1
    else:
        raise AssertionError(f"label {label} of a row of {n} elements is taken")
