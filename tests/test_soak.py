"""Leaks, threads, interrupts and exhausted memory, each for a moment; `nox -s soak` runs them for longer."""

import pytest
import soak

NAMES = ("leaks", "threads", "interrupts", "forks", "allocations")  # sizes are in test_contract.py


@pytest.mark.parametrize("name", NAMES)
def test_for_a_moment(name):
    assert soak.SOAKS[name](0.3)
