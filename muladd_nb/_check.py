"""The checks of ``muladd-nb check``: whether the installed operators are right on this machine, with this torch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import muladd_nb

from ._layer.contract import dtype_name
from ._layer.operator import Form
from ._operators import DTYPES, FORMS
from .info import build_info

_SHAPE = (67, 129)
_NUMBER = 0.1


class Check(NamedTuple):
    """A check: its name, its device, and a function that returns a detail, or raises an error if something is wrong."""

    of: str  # the operator; without --verbose all of its checks are printed on one line
    name: str
    device: str
    function: Callable[[str], str]
    part: str = ""  # the dtype, for example; checks with the same name are printed on one line

    def run(self) -> dict[str, Any]:
        """Return its name, device, whether it is ok, and a detail."""
        try:
            ok, detail = True, self.function(self.device)
        except Exception as error:  # any error is a failed check, and the next check still runs
            ok, detail = False, f"{type(error).__name__}: {error}".splitlines()[0]
        return {"name": f"{self.name} {self.part}".strip(), "device": self.device, "ok": ok, "detail": detail}


def checks() -> Iterator[Check]:
    """Yield the checks of every device. The checks of a form follow each other."""
    first: dict[str, str] = {}  # the first form of each operator; that of myadd is myadd_out
    for device in devices():
        for form in sorted((form for form in FORMS if not form.role), key=lambda form: form.operator):  # no derivative
            name = str(form.op.name()).partition("::")[2]
            of = first.setdefault(form.operator, name)
            for dtype in DTYPES:
                yield Check(of, name, device, partial(_values, form, dtype), dtype_name(dtype))
            yield Check(of, name, device, partial(_opcheck, form), "opcheck")
        for name, function in (("gradients of mymuladd and mymul", _gradients), ("torch.compile, fullgraph", _compile)):
            yield Check(name, name, device, function)


def _arguments(form: Form, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Tensor]]:
    """Return arguments for a form: these tensors, and ``_NUMBER`` for each number."""
    of_number = torch.tensor(_NUMBER, dtype=torch.float64) if form.tensor_numbers else _NUMBER
    by_place = dict(zip(form.inputs.values(), tensors, strict=True)) | dict.fromkeys(form.numbers.values(), of_number)
    args = tuple(by_place[place] for place in sorted(by_place))
    out = torch.empty_like(tensors[0])
    return (args, {"out": out}) if form.kind == "out" else ((*args, out) if form.kind == "writing" else args, {})


def _values(form: Form, dtype: torch.dtype, device: str) -> str:
    """Compare with float64, in contiguous and in transposed memory."""
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(_SHAPE, generator=generator, dtype=torch.float64).to(device, dtype) for _ in form.inputs]
    c = _NUMBER if dtype == torch.float64 else float(torch.tensor(_NUMBER, dtype=torch.float32))
    results = []
    for layout in (lambda x: x, lambda x: x.t().contiguous().t()):
        args, out = _arguments(form, [tensors[0], *map(layout, tensors[1:])])
        returned = form.op(*args, **out)
        results.append(args[-1] if returned is None else returned)
    if not torch.equal(*results):
        raise AssertionError("contiguous and transposed inputs give different bits")
    wide = [x.double() for x in tensors]
    formula: Any = form.promises.formula
    exact = formula(*wide, *[c] * len(form.numbers))
    scale = torch.finfo(dtype).eps * ((wide[0] * wide[1]).abs() + sum(x.abs() for x in wide) + c)
    error = float(((results[0].double() - exact).abs() / scale).max())
    if not error <= 1:
        raise AssertionError(f"{error:.2f} eps from the float64 reference")
    return f"{error:.2f} eps from float64"


def _gradients(device: str) -> str:
    a, b = (torch.randn(3, 4, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2))
    for function in (lambda a, b: muladd_nb.mymuladd(a, b, _NUMBER), muladd_nb.mymul):
        torch.autograd.gradcheck(function, (a, b), check_forward_ad=True)
        torch.autograd.gradgradcheck(function, (a, b))
    return "gradcheck in reverse and forward mode, gradgradcheck"


def _opcheck(form: Form, device: str) -> str:
    args, out = _arguments(form, [torch.randn(2, 3, device=device) for _ in form.inputs])
    if not out:
        torch.library.opcheck(form.op, args)
        return "schema, autograd registration, fake kernel, AOT dispatch"
    # By itself, AOT dispatch refuses operators that return an argument.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(form.op, args, out, test_utils=tests)
    return "schema, autograd registration, fake kernel"


def _compile(device: str) -> str:
    backend = "inductor" if device != "cpu" or cxx_compiler() else "aot_eager"

    def function(a: Tensor, b: Tensor) -> Tensor:
        return muladd_nb.mymuladd(a.sin(), b, _NUMBER).cos().sum()

    a, b = (torch.randn(8, device=device, requires_grad=True) for _ in range(2))
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    expected = torch.autograd.grad(function(a, b), (a, b))
    torch.testing.assert_close(torch.autograd.grad(compiled(a, b), (a, b)), expected)
    return f"forward and backward, backend {backend}"


def devices() -> list[str]:
    """Return the devices of this machine for which the package has kernels."""
    return ["cpu", "cuda"] if torch.cuda.is_available() and build_info()["cuda_version"] else ["cpu"]


def cxx_compiler() -> bool:
    """Return whether Inductor can compile for the CPU, which needs a C++ compiler."""
    return shutil.which("g++") is not None
