"""CUDA kernels of one's own, compiled by the host compiler, against the CPU's, on everything that the tests try."""

import importlib
import sys
from pathlib import Path

import torch

package, library = sys.argv[1:]
try:
    importlib.import_module(package)
except ImportError as error:
    sys.exit(f"{package} must be installed, whose kernels for the CPU these are compared with: {error}")
sys.path.insert(0, str(Path(__file__).parents[2]))

from operators import OPERATORS  # noqa: E402

torch.ops.load_library(library)
torch.use_deterministic_algorithms(True, warn_only=True)  # which fills new memory with NaN
tried = 0
for case in OPERATORS:
    for dtype in () if case.is_elementwise else case.dtypes:
        for what, args in case.samples(dtype, "cpu"):
            on_host = getattr(getattr(torch.ops, f"{package}_on_host"), case.name)
            case.check(on_host(*args), case.call(*args), f"the result on CUDA of {what}")
            tried += 1
print(f"{tried} cases, 0 failed")
