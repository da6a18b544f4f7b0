# A copy, which `muladd-nb update` renews; what the operators of this project are is in operators.py.
"""Every operator, for a process in which torch lacks a private name."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.testing import assert_close

from lacking import import_without


def check(path: str, file: Path) -> None:
    """Import the package where torch lacks a name: there is one warning, and values and gradients are those of a torch
    that lacks nothing. Those are written to a file first, where the path is empty."""
    if path:
        (warning,) = import_without("my_ops", path)
        assert path.replace(":", ".") in warning
    from operators import OPERATORS

    results = []
    for case in OPERATORS:
        torch.manual_seed(0)
        args = case.sample(case.dtypes[-1])
        inputs = [args[case.names.index(name)].requires_grad_() for name in case.differentiable]
        result = case.call(*args)
        results.append(result)
        if inputs:
            floats = [y.sum() for y in (result if isinstance(result, tuple) else (result,)) if y.is_floating_point()]
            results.append(torch.autograd.grad(floats, inputs))
    if path:
        assert_close(results, torch.load(file))
    else:
        torch.save(results, file)
