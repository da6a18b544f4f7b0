"""Every operator and public function of the package, called one way, with the same in ATen and in exact arithmetic."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

import muladd_nb

ops = torch.ops.muladd_nb


def scalar(c):
    return torch.tensor(c, dtype=torch.float64)


@dataclass(frozen=True, repr=False)
class Operator:
    """`call(tensors, c, out)` gives the result, or None; `aten` the same in ATen; `terms` are those of a * b + c."""

    name: str
    tensors: int
    call: Callable
    writes: bool

    def aten(self, x, c):
        if "mymul." in f"{self.name}.":
            return x[0] * x[1]
        if "myadd" in self.name:
            return x[0] + x[1]
        return x[0] * x[1] + (x[2] if self.tensors == 3 else c)

    def terms(self, x, c):
        if "mymul." in f"{self.name}.":
            return (*x, -0.0)  # which leaves a product the sign of its zero
        if "myadd" in self.name:
            return (x[0], 1.0, x[1])
        return x if self.tensors == 3 else (*x, c)

    def __repr__(self):
        return self.name

    def _repr_pretty_(self, printer, cycle):  # what Hypothesis asks for
        printer.text(self.name)


RETURNING = [
    Operator("mymuladd", 2, lambda x, c, out: ops.mymuladd(*x, c), False),
    Operator("mymuladd.tensor_c", 2, lambda x, c, out: ops.mymuladd.tensor_c(*x, scalar(c)), False),
    Operator("mymuladd.Tensor", 3, lambda x, c, out: ops.mymuladd.Tensor(*x), False),
    Operator("mymul", 2, lambda x, c, out: ops.mymul(*x), False),
    Operator("public mymuladd", 2, lambda x, c, out: muladd_nb.mymuladd(*x, c), False),
    Operator("public mymuladd.Tensor", 3, lambda x, c, out: muladd_nb.mymuladd(*x), False),
    Operator("public mymul", 2, lambda x, c, out: muladd_nb.mymul(*x), False),
]
WRITING = [
    Operator("myadd_out", 2, lambda x, c, out: ops.myadd_out(*x, out), True),
    Operator("mymuladd_out", 2, lambda x, c, out: ops.mymuladd_out(*x, c, out), True),
    Operator("mymuladd_out.tensor_c", 2, lambda x, c, out: ops.mymuladd_out.tensor_c(*x, scalar(c), out), True),
    Operator("mymuladd_out.Tensor", 3, lambda x, c, out: ops.mymuladd_out.Tensor(*x, out), True),
    Operator("public myadd_out", 2, lambda x, c, out: muladd_nb.myadd_out(*x, out), True),
    Operator("public mymuladd.out", 2, lambda x, c, out: muladd_nb.mymuladd(*x, c, out=out), True),
    Operator("public mymuladd.Tensor_out", 3, lambda x, c, out: muladd_nb.mymuladd(*x, out=out), True),
    Operator("public mymul.out", 2, lambda x, c, out: muladd_nb.mymul(*x, out=out), True),
]
RETURNING_OUT = [  # which the compiler refuses
    Operator("mymuladd.out", 2, lambda x, c, out: ops.mymuladd.out(*x, c, out=out), True),
    Operator("mymuladd.Tensor_out", 3, lambda x, c, out: ops.mymuladd.Tensor_out(*x, out=out), True),
    Operator("mymul.out", 2, lambda x, c, out: ops.mymul.out(*x, out=out), True),
]
ALL = RETURNING + WRITING + RETURNING_OUT
