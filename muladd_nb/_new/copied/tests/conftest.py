# A copy, which `muladd-nb update` renews; what the operators of this project are is in operators.py.
"""Fixtures: every test that takes `case` or `device` runs on each of them."""

from __future__ import annotations

import os

# OpenMP's threads that spin while they wait would take a processor away from other programs, and from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest  # noqa: E402
import torch  # noqa: E402

from operators import OPERATORS  # noqa: E402

# What is tested is compiled now, whatever has changed: the caches know the Python of the package, and not its C++.
torch.compiler.config.force_disable_caches = True

CUDA = torch.cuda.is_available() and all(case.has_cuda for case in OPERATORS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", ["cpu", "cuda"] if CUDA else ["cpu"])
    if "case" in metafunc.fixturenames:
        name, cases = metafunc.function.__name__, OPERATORS
        if "gradients" in name or "derivatives" in name:
            cases = [case for case in cases if case.differentiable]
        if name == "test_fused":
            cases = [case for case in cases if case.is_elementwise and case.forms[0].promises.fused]
        if "writes" in name:  # to its arguments
            cases = [case for case in cases if case.written]
        if "subset" in name or "derivatives" in name:  # which take differences, or compare what only float64 tells
            cases = [case for case in cases if torch.float64 in case.dtypes]
        metafunc.parametrize("case", cases, ids=[case.name for case in cases])


@pytest.fixture(autouse=True)
def reproducible() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end what is wrong, which the lines of pytest's own summary are too short for."""
    crashes = [getattr(report.longrepr, "reprcrash", None) for report in terminalreporter.stats.get("failed", [])]
    for message in dict.fromkeys(crash.message.partition(". ")[0].splitlines()[0] for crash in crashes if crash):
        terminalreporter.write_line(message)
