"""Fixtures: every test that takes `case`, `dtype` or `device` runs on each of them."""

from __future__ import annotations

import pytest
import torch

from operators import OPERATORS

# Compiled programs are kept by the operators that they call: an edited derivative would not be seen.
torch.compiler.config.force_disable_caches = True

CUDA = torch.cuda.is_available() and all(case.has_cuda for case in OPERATORS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", ["cpu", "cuda"] if CUDA else ["cpu"])
    if "dtype" in metafunc.fixturenames:
        pairs = [(case, dtype) for case in OPERATORS for dtype in case.dtypes]
        metafunc.parametrize(("case", "dtype"), pairs, ids=[f"{case.name}-{str(dtype)[6:]}" for case, dtype in pairs])
    elif "case" in metafunc.fixturenames:
        cases = [case for case in OPERATORS if case.differentiable or "derivative" not in metafunc.function.__name__]
        metafunc.parametrize("case", cases, ids=[case.name for case in cases])


@pytest.fixture(autouse=True)
def reproducible() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
