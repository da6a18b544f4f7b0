"""Rows of any length and layout, some with NaN or infinities, give PyTorch's values and gradients, or the right error.

The operators are those of ``tests/over_rows``. Importing this compiles a project of them, unless ROW_OPS is a folder in
which it is installed.
"""

import itertools
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


def _installed():
    folder = Path(tempfile.mkdtemp())
    options = ["--no-build-isolation", "--no-deps", "--quiet", f"--target={folder / 'site'}"]
    settings = [f"-Csetup-args=-D{option}" for option in ("cuda=disabled", "optimization=1", "native=true")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *settings, write_project(folder)], check=True)
    return folder / "site"


sys.path.insert(3, os.environ.get("ROW_OPS") or str(_installed()))
import cases  # noqa: E402

COUNTS = Counter()
ops = torch.ops.row_ops
# Lengths around those of each instruction set's vectors, the lanes, a warp, and a block of a sum.
LENGTHS = [n + more for n in (0, 1, 4, 8, 16, 32, 64, 128, 256, 1024, 2048) for more in (-1, 0, 1) if n + more >= 0]
REFUSED_BY_TORCH = ("maximum", "cross_entropy")  # in rows without elements
SPECIAL = {"none": (), "nan": ("nan",), "inf": ("inf",), "-inf": ("-inf",), "many": ("inf", "-inf", "nan")}
# Tolerances of values that are computed in float32, and of their gradients, for which torch runs several operators.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 6e-2, torch.float16: 2e-2}


def tensor(shape, dtype, layout, special, whole):
    x = torch.randn(shape, dtype=torch.float64)
    if x.numel() and special:
        if whole and x.dim() > 1:
            x[0] = float(special[0])
        else:
            for value in special:
                x.view(-1)[torch.randint(x.numel(), ())] = float(value)
    x = x.to(dtype)
    if layout == "transposed" and x.dim() > 1:
        return x.mT.contiguous().mT
    return torch.stack([x, x], -1)[..., 0] if layout == "sliced" else x


@given(
    name=st.sampled_from([*cases.CASES]),
    n=st.sampled_from(LENGTHS),
    dtype=st.sampled_from([*TOLERANCE]),
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
    op, reference, shapes = cases.CASES[name]
    if (n == 0 and name in REFUSED_BY_TORCH) or (name == "causal_softmax" and n > 300):
        COUNTS["torch refuses, or too many elements"] += 1
        return
    dtypes = itertools.chain([dtype], itertools.repeat(torch.float32 if mixed and dtype.itemsize == 2 else dtype))
    elements = itertools.chain([SPECIAL[special]], itertools.repeat(()))
    each = zip(shapes(n), dtypes, elements, strict=False)
    args = [tensor(shape, own, layout, among, whole).requires_grad_() for shape, own, among in each]
    wide = [x.detach().double().requires_grad_() for x in args]
    results, expected = (y if isinstance(y, tuple) else (y,) for y in (op(*args), reference(*wide)))
    cases.close(tuple(results), tuple(y.to(dtype) for y in expected), TOLERANCE[dtype])
    if dtype in (torch.float64, torch.float32) and special == "none":
        grads = [torch.randn_like(y) for y in results]
        ours = torch.autograd.grad(results, args, grads, materialize_grads=True)
        theirs = torch.autograd.grad(expected, wide, [y.double() for y in grads], materialize_grads=True)
        cases.close(ours, tuple(y.to(dtype) for y in theirs), 10 * TOLERANCE[dtype])
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
