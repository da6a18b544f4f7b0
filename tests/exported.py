"""Models exported to ExecuTorch programs, for its tests."""

import importlib.util
import sys

import pytest
import torch
from conftest import run
from exact import bits

import muladd_nb
import muladd_nb.executorch

installed = importlib.util.find_spec("executorch") is not None
built = muladd_nb.build_info()["executorch_version"] is not None
with_executorch = pytest.mark.skipif(
    not (installed and built), reason="executorch is not installed, or muladd_nb was built without it"
)
ops = torch.ops.muladd_nb


class Both(torch.nn.Module):
    def forward(self, a, b):
        return ops.mymul(ops.mymuladd(a, b, 0.1), b)


def pte(model, args, dynamic_shapes=None):
    """Return the .pte of `model` as bytes."""
    from executorch.exir import to_edge

    program = torch.export.export(model.eval(), args, dynamic_shapes=dynamic_shapes)
    return to_edge(muladd_nb.executorch.functional(program)).to_executorch().buffer


def forward(program):
    from executorch.runtime import Runtime

    muladd_nb.executorch.load()
    program = Runtime.get().load_program(program)
    method = program.load_method("forward")
    return lambda *args: (program, method.execute(args))[1]  # keep the program: it owns the bytes that the method reads


def same_bits(x, y):
    return x.dtype == y.dtype and torch.equal(bits(x.contiguous()), bits(y.contiguous()))


def python(code, *args, cwd="/"):
    return run(sys.executable, "-c", code, *args, cwd=cwd)
