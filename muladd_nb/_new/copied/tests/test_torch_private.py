# A copy, which `muladd-nb update` renews; what the operators of this project are is in operators.py.
"""A torch that lacks a private name is imported with a warning, and what does not need that name works."""

from __future__ import annotations

import multiprocessing

import pytest

import works
from my_ops._layer.torch_private import names

# A process that has imported torch and not the package; another one is forked from it for each name.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["pytest", "torch", "torch.distributed.tensor"])  # which assert_close imports


def run(path, file):
    process = _server.Process(target=works.check, args=(path, file))
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The file of what the operators give where torch lacks nothing."""
    file = tmp_path_factory.mktemp("works") / "results.pt"
    run("", file)
    return file


@pytest.mark.slow
@pytest.mark.parametrize("path", names)
def test_a_torch_that_lacks(path, results):
    run(path, results)
