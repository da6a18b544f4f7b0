"""Modes that note each operator, or each function of torch, and call it; and other contexts that observe calls."""

from contextlib import nullcontext

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class _Noting:
    def __init__(self):
        super().__init__()
        self.seen = []

    def note(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class DispatchMode(_Noting, TorchDispatchMode):
    __torch_dispatch__ = _Noting.note


class FunctionMode(_Noting, TorchFunctionMode):
    __torch_function__ = _Noting.note


# Contexts that observe the calls in them; the first does not. Autocast does not cast float64.
OBSERVERS = {
    "none": nullcontext,
    "dispatch mode": DispatchMode,
    "flop counter": lambda: FlopCounterMode(display=False),
    "function mode": FunctionMode,
    "profiler": torch.profiler.profile,
    "autocast": lambda: torch.autocast("cpu"),
}
