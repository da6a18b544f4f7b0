"""The table of the operators: for each declaration of C++, what PyTorch's subsystems need to know about it."""

from __future__ import annotations

import torch

from ._layer import Elementwise, register

TABLE = {
    "mymuladd(Tensor a, Tensor b, float c)": Elementwise(
        formula=lambda a, b, c: a * b + c,
        node="MyMulAdd",
        instead="write a * b + c",
        aten=torch.ops.aten.mul.Tensor,
        flops=2,
        fused=lambda ops, a, b, c: ops.fma(a, b, c),
    ),
    "mymuladd.Tensor(Tensor a, Tensor b, Tensor c)": Elementwise(
        formula=lambda a, b, c: a * b + c,
        node="MyMulAdd",
        flops=2,
        fused=lambda ops, a, b, c: ops.fma(a, b, c),
        linear=({"a", "c"}, {"b", "c"}),
    ),
    "mymul(Tensor a, Tensor b)": Elementwise(
        formula=lambda a, b: a * b,
        node="MyMul",
        aten=torch.ops.aten.mul.Tensor,
        fused=lambda ops, a, b: ops.mul(a, b),
        linear=({"a"}, {"b"}),
    ),
    "myadd(Tensor a, Tensor b)": Elementwise(formula=lambda a, b: a + b, fused=lambda ops, a, b: ops.add(a, b)),
}

FORMS = register(TABLE)
DTYPES = FORMS[0].dtypes  # all operators have the same dtypes
