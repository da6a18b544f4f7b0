"""Fixtures: every test that takes `device` or `dtype` runs on each of them."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

import muladd_nb

# Programs that tests start are those of this environment, also where it is not activated.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CUDA = torch.cuda.is_available() and bool(muladd_nb.build_info()["cuda_version"])
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no CUDA device here, or no kernels for one")),
]


def needs(*tools):
    """Return the mark of a test that runs these programs."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not on PATH")


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request):
    return request.param


@pytest.fixture(autouse=True)
def reproducible():
    torch.manual_seed(0)
    torch._dynamo.reset()
