"""The checks of ``muladd-nb check``: is what was installed right, on this machine, with this torch?"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import muladd_nb

from ._operators import DTYPES
from ._register.contract import name as dtype_name
from .info import build_info

_SHAPE = (67, 129)
_C = 0.1


class Check(NamedTuple):
    """What is checked, where, and by which function: it returns a detail, and raises where something is wrong."""

    name: str
    device: str
    function: Callable[..., str]
    args: tuple[Any, ...]

    def run(self) -> dict[str, Any]:
        """Return its name, device, whether it is ok, and a detail."""
        try:
            ok, detail = True, self.function(*self.args, self.device)
        except Exception as error:  # a check that breaks has failed, and the next one still runs
            ok, detail = False, f"{type(error).__name__}: {error}".splitlines()[0]
        return {"name": self.name, "device": self.device, "ok": ok, "detail": detail}


def checks() -> Iterator[Check]:
    """Yield the checks of every device."""
    for device in devices():
        for dtype in DTYPES:
            for name, function, reference in _operators():
                yield Check(f"{name} {dtype_name(dtype)}", device, _values, (function, reference, dtype))
        yield Check("gradients of mymuladd and mymul", device, _gradients, ())
        for op, sample in _samples():
            yield Check(f"opcheck {op}", device, _opcheck, (op, sample))
        yield Check("torch.compile, fullgraph", device, _compile, ())


def _operators() -> list[tuple[str, Callable[..., Any], Callable[..., Tensor]]]:
    ops = torch.ops.muladd_nb

    def into(op: Callable[..., Any], *c: float) -> Callable[..., Tensor]:
        def call(a: Tensor, b: Tensor) -> Tensor:
            out = torch.empty_like(a)
            op(a, b, *c, out)
            return out

        return call

    return [
        ("mymuladd", lambda a, b: ops.mymuladd(a, b, _C), lambda a, b, c: a * b + c),
        ("mymuladd.Tensor", lambda a, b: ops.mymuladd.Tensor(a, b, a), lambda a, b, c: a * b + a),
        ("mymul", ops.mymul, lambda a, b, c: a * b),
        ("myadd_out", into(ops.myadd_out), lambda a, b, c: a + b),
        ("mymuladd_out", into(ops.mymuladd_out, _C), lambda a, b, c: a * b + c),
        ("mymuladd.out", into(lambda a, b, c, out: ops.mymuladd.out(a, b, c, out=out), _C), lambda a, b, c: a * b + c),
        ("mymul.out", into(lambda a, b, out: ops.mymul.out(a, b, out=out)), lambda a, b, c: a * b),
    ]


def _values(function: Any, reference: Any, dtype: torch.dtype, device: str) -> str:
    """Compare with float64, in contiguous and in transposed memory."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(_SHAPE, generator=generator, dtype=torch.float64).to(device, dtype) for _ in range(2))
    b_transposed = b.t().contiguous().t()
    c = _C if dtype == torch.float64 else float(torch.tensor(_C, dtype=torch.float32))
    exact = reference(a.double(), b.double(), c)
    scale = torch.finfo(dtype).eps * ((a.double() * b.double()).abs() + a.double().abs() + b.double().abs() + c)
    results = [function(a, b), function(a, b_transposed)]
    if not torch.equal(*results):
        raise AssertionError("contiguous and transposed inputs give different bits")
    error = float(((results[0].double() - exact).abs() / scale).max())
    if not error <= 1:
        raise AssertionError(f"{error:.2f} eps from the float64 reference")
    return f"{error:.2f} eps from float64"


def _gradients(device: str) -> str:
    a, b = (torch.randn(3, 4, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2))
    for function in (lambda a, b: muladd_nb.mymuladd(a, b, _C), muladd_nb.mymul):
        torch.autograd.gradcheck(function, (a, b), check_forward_ad=True)
        torch.autograd.gradgradcheck(function, (a, b))
    return "gradcheck in reverse and forward mode, gradgradcheck"


def _samples() -> list[tuple[str, Callable[..., tuple[Any, ...]]]]:
    return [
        ("mymuladd", lambda a, b, _: (a, b, _C)),
        ("mymuladd.Tensor", lambda a, b, c: (a, b, c)),
        ("mymul", lambda a, b, _: (a, b)),
        ("myadd_out", lambda a, b, out: (a, b, out)),
        ("mymuladd_out", lambda a, b, out: (a, b, _C, out)),
        ("mymuladd.out", lambda a, b, out: (a, b, _C)),
        ("mymul.out", lambda a, b, out: (a, b)),
    ]


def _opcheck(name: str, sample: Any, device: str) -> str:
    tensors = [torch.randn(2, 3, device=device) for _ in range(3)]
    base, _, variant = name.partition(".")
    op = getattr(getattr(torch.ops.muladd_nb, base), variant or "default")
    if variant != "out":
        torch.library.opcheck(op, sample(*tensors))
        return "schema, autograd registration, fake kernel, AOT dispatch"
    # torch.compile refuses operators that return an argument: there is no AOT dispatch to check.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(op, sample(*tensors), {"out": tensors[-1]}, test_utils=tests)
    return "schema, autograd registration, fake kernel"


def _compile(device: str) -> str:
    backend = "inductor" if device != "cpu" or cxx_compiler() else "aot_eager"

    def function(a: Tensor, b: Tensor) -> Tensor:
        return muladd_nb.mymuladd(a.sin(), b, _C).cos().sum()

    a, b = (torch.randn(8, device=device, requires_grad=True) for _ in range(2))
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    expected = torch.autograd.grad(function(a, b), (a, b))
    torch.testing.assert_close(torch.autograd.grad(compiled(a, b), (a, b)), expected)
    return f"forward and backward, backend {backend}"


def devices() -> list[str]:
    """Return the devices that there are here and that kernels were built for."""
    return ["cpu", "cuda"] if torch.cuda.is_available() and build_info()["cuda_version"] else ["cpu"]


def cxx_compiler() -> bool:
    """Return whether there is what Inductor needs to compile for the CPU."""
    return sys.platform == "linux" and shutil.which("g++") is not None
