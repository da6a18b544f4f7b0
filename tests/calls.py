"""Ways to call the operators, each with the same in ATen."""

import torch

import muladd_nb

ops = torch.ops.muladd_nb


def half():
    return torch.tensor(0.5, dtype=torch.float64)


FUNCTIONS = {
    "mymuladd": (lambda a, b: ops.mymuladd(a, b, 0.5), lambda a, b: a * b + 0.5),
    "mymuladd.tensor_c": (lambda a, b: ops.mymuladd.tensor_c(a, b, half()), lambda a, b: a * b + 0.5),
    "mymuladd.Tensor": (lambda a, b: ops.mymuladd.Tensor(a, b, a.detach()), lambda a, b: a * b + a.detach()),
    "mymul": (ops.mymul, torch.mul),
    "public_mymuladd": (lambda a, b: muladd_nb.mymuladd(a, b, 0.5), lambda a, b: a * b + 0.5),
    "public_mymuladd_tensor": (lambda a, b: muladd_nb.mymuladd(a, b, b.detach()), lambda a, b: a * b + b.detach()),
    "public_mymul": (lambda a, b: muladd_nb.mymul(a, b), torch.mul),
}
WRITES = {
    "myadd_out": (lambda a, b, out: ops.myadd_out(a, b, out), torch.add),
    "mymuladd_out": (lambda a, b, out: ops.mymuladd_out(a, b, 0.5, out), lambda a, b: a * b + 0.5),
    "mymuladd_out.tensor_c": (
        lambda a, b, out: ops.mymuladd_out.tensor_c(a, b, half(), out),
        lambda a, b: a * b + 0.5,
    ),
    "mymuladd_out.Tensor": (lambda a, b, out: ops.mymuladd_out.Tensor(a, b, a, out), lambda a, b: a * b + a),
    "mymuladd.Tensor_out": (lambda a, b, out: ops.mymuladd.Tensor_out(a, b, a, out=out), lambda a, b: a * b + a),
    "mymuladd.out": (lambda a, b, out: ops.mymuladd.out(a, b, 0.5, out=out), lambda a, b: a * b + 0.5),
    "mymul.out": (lambda a, b, out: ops.mymul.out(a, b, out=out), torch.mul),
    "public_mymuladd": (lambda a, b, out: muladd_nb.mymuladd(a, b, 0.5, out=out), lambda a, b: a * b + 0.5),
}
