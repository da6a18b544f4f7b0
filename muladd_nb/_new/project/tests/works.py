"""Every operator, for a process in which torch lacks a private name."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from lacking import import_without


def check(path: str) -> None:
    """Import the package where torch lacks a name: there is one warning, and values and gradients are right."""
    (warning,) = import_without("my_ops", path)
    assert path.replace(":", ".") in warning
    from cases import each
    from operators import OPERATORS

    for case in OPERATORS:
        args = case.sample(case.dtypes[-1], "cpu")
        assert_close(case.call(*args), case.expected(*args))
        inputs = [args[case.names.index(name)].requires_grad_() for name in case.differentiable]
        if inputs:
            ours, theirs = (tensors_of(each(torch.sum, f(*args))) for f in (case.call, case.reference))
            assert_close(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs))


def tensors_of(results):
    return results if isinstance(results, tuple) else (results,)
