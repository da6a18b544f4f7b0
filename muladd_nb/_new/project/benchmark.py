"""Measure each operator against its reference in eager and in compiled PyTorch: python benchmark.py."""

import sys
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

sys.path.insert(0, str(Path(__file__).parent / "tests"))
from operators import OPERATORS  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def microseconds(function, args):
    function(*args)
    timer = Timer("function(*args)", globals={"function": function, "args": args}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange().median * 1e6


for case in OPERATORS:
    for exponent in (4, 12, 20, 24):
        torch.compiler.reset()
        shape = (1 << exponent,) if len(case.shapes[0]) == 1 else (1 << exponent // 2, 1 << exponent // 2)
        args = case.sample(case.dtypes[-2:][0], DEVICE, shape)
        sides = {"eager": case.reference, "compiled": torch.compile(case.reference, dynamic=False)}
        ours = microseconds(case.call, args)
        ratios = [f"{side} {microseconds(function, args) / ours:6.2f}x" for side, function in sides.items()]
        print(f"{case.name:20} 2^{exponent:<3} {ours:12.2f} us   {'   '.join(ratios)}", flush=True)
