"""Fixtures: every test that takes `device` or `dtype` runs on each of them."""

import pytest
import torch

import muladd_nb  # noqa: F401 (registers the operators)

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")),
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
