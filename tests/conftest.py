"""Fixtures: every test that takes `device` or `dtype` runs on each of them."""

import pytest
import torch

import muladd_nb

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CUDA = torch.cuda.is_available() and bool(muladd_nb.build_info()["cuda_version"])
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no CUDA device here, or no kernels for one")),
]


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
