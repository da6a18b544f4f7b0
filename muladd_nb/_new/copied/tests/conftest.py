# A copy, which `muladd-nb update` replaces. The operators of this project are in operators.py.
"""Fixtures: a test that takes `case` or `device` runs for each operator, and on each device."""

from __future__ import annotations

import os

# By default OpenMP's threads spin while they wait, which takes processors away from other programs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest  # noqa: E402
import torch  # noqa: E402

from operators import OPERATORS  # noqa: E402

# Compile everything anew: torch's caches do not notice that the package's C++ has changed.
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
            cases = [case for case in cases if case.has_functor and case.forms[0].promises.fused]
        if "writes" in name:  # tests of operators that write to arguments
            cases = [case for case in cases if case.written]
        if "subset" in name or "derivatives" in name:  # these tests need the precision of float64
            cases = [case for case in cases if torch.float64 in case.dtypes]
        metafunc.parametrize("case", cases, ids=[case.name for case in cases])


@pytest.fixture(autouse=True)
def reproducible() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print whole messages of failures at the end, because pytest's own summary cuts them off."""
    crashes = [getattr(report.longrepr, "reprcrash", None) for report in terminalreporter.stats.get("failed", [])]
    for message in dict.fromkeys(crash.message.partition(". ")[0].splitlines()[0] for crash in crashes if crash):
        terminalreporter.write_line(message)
