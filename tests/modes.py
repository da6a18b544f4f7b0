"""Modes that see each operator, or each function of torch, and only call it."""

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
