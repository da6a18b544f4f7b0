"""Modes that note each operator, or each function of torch, and call it; and other contexts that observe calls."""

from contextlib import nullcontext

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class DispatchMode(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class FunctionMode(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


# Contexts that observe the calls in them; the first does not. Autocast does not cast float64.
OBSERVERS = {
    "none": nullcontext,
    "dispatch mode": DispatchMode,
    "flop counter": lambda: FlopCounterMode(display=False),
    "function mode": FunctionMode,
    "profiler": torch.profiler.profile,
    "autocast": lambda: torch.autocast("cpu"),
}
