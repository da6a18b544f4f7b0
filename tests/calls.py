"""Ways to call the operators, each with the same in ATen."""

import torch

import muladd_nb

ops = torch.ops.muladd_nb


def half():
    return torch.tensor(0.5, dtype=torch.float64)


FUNCTIONS = {
    "mymuladd": (lambda a, b: ops.mymuladd(a, b, 0.5), lambda a, b: a * b + 0.5),
    "mymuladd.tensor_c": (lambda a, b: ops.mymuladd.tensor_c(a, b, half()), lambda a, b: a * b + 0.5),
    "mymul": (ops.mymul, torch.mul),
    "public_mymuladd": (lambda a, b: muladd_nb.mymuladd(a, b, 0.5), lambda a, b: a * b + 0.5),
    "public_mymul": (lambda a, b: muladd_nb.mymul(a, b), torch.mul),
}
WRITES = {
    "myadd_out": (lambda a, b, out: ops.myadd_out(a, b, out), torch.add),
    "mymuladd_out": (lambda a, b, out: ops.mymuladd_out(a, b, 0.5, out), lambda a, b: a * b + 0.5),
    "mymuladd_out.tensor_c": (
        lambda a, b, out: ops.mymuladd_out.tensor_c(a, b, half(), out),
        lambda a, b: a * b + 0.5,
    ),
    "mymuladd.out": (lambda a, b, out: ops.mymuladd.out(a, b, 0.5, out=out), lambda a, b: a * b + 0.5),
    "mymul.out": (lambda a, b, out: ops.mymul.out(a, b, out=out), torch.mul),
    "public_mymuladd": (lambda a, b, out: muladd_nb.mymuladd(a, b, 0.5, out=out), lambda a, b: a * b + 0.5),
}
