"""The operators, as C++ declares them, and what they promise: each subsystem has one rule, which reads this table."""

from __future__ import annotations

from ._register import Elementwise, register

TABLE = {
    "mymuladd(Tensor a, Tensor b, float c)": Elementwise(
        partials={"a": lambda b: b, "b": lambda a: a},
        times="mymul",  # writes a large gradient several times faster than torch.mul
        node="MyMulAdd",
        instead="write a * b + c",
        flops=2,
    ),
    "mymuladd.Tensor(Tensor a, Tensor b, Tensor c)": Elementwise(
        partials={"a": lambda b: b, "b": lambda a: a, "c": lambda: 1},
        times="mymul",
        node="MyMulAdd",
        flops=2,
        linear=({"a", "c"}, {"b", "c"}),
    ),
    "mymul(Tensor a, Tensor b)": Elementwise(
        partials={"a": lambda b: b, "b": lambda a: a}, times="mymul", node="MyMul", linear=({"a"}, {"b"})
    ),
    "myadd(Tensor a, Tensor b)": Elementwise(),
}

FORMS = register(TABLE)
DTYPES = FORMS[0].dtypes  # of all of them
