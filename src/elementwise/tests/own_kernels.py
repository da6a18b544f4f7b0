"""Compare a project's own CUDA kernels, compiled for the host, with its CPU kernels, on the samples of its tests."""

import importlib
import os
import sys
from pathlib import Path

import torch

package, library = sys.argv[1:]
try:
    importlib.import_module(package)
except ImportError as error:
    sys.exit(f"install {package} first, because this test compares with its CPU kernels: {error}")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))

from operators import OPERATORS  # noqa: E402

torch.ops.load_library(library)
torch.use_deterministic_algorithms(True, warn_only=True)  # fills new memory with NaN
tried = other_bits = 0
for case in OPERATORS:
    for what, args in () if case.has_functor else case.samples("cpu"):
        for blocks in ("1", "1000000"):  # with one block a kernel must loop over the grid
            os.environ["ELEMENTWISE_MOST_BLOCKS"] = blocks
            result = case.call(*args, function=getattr(getattr(torch.ops, f"{package}_on_host"), case.name))
            expected = case.call(*args)
            try:
                case.check(result, expected, f"the result on CUDA of {what}, at most {blocks} blocks")
            except AssertionError as error:
                sys.exit(str(error))
            try:
                torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
            except AssertionError:
                other_bits += 1
            tried += 1
print(f"{tried} cases, 0 failed, {other_bits} with other bits")
