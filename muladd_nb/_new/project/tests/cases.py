"""What the tests need to know of an operator, and how they call it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from my_ops._operators import FORMS, TABLE
from my_ops._register.operator import OUT, WRITING
from my_ops._torch_private import has_kernel


@dataclasses.dataclass(eq=False)
class Case:
    """An operator.

    Parameters
    ----------
    function
        The public function.
    reference
        The same in PyTorch; of an operator that writes, what it writes.
    arguments
        Takes ``tensor(low=-2, high=2)``, which makes a tensor of such elements, and returns arguments, without ``out``.
    shapes
        Of the tensors. The derivatives are tried on the first.
    """

    function: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: Callable[..., tuple[Any, ...]]
    shapes: Sequence[tuple[int, ...]] = ((2,), (), (0, 3), (5, 4, 7), (50_021,))

    def __post_init__(self) -> None:
        self.name = self.function.__name__
        self.writes = self.name.endswith("_out")
        declared = {self.name, self.name.removesuffix("_out")}
        self.forms = [form for form in FORMS if form.declaration.partition("(")[0] in declared]
        # The form that returns `out` cannot be compiled, and is none that programs call from Python.
        self.ops = [form.op for form in self.forms if form.kind != OUT]
        self.dtypes = self.forms[0].dtypes
        self.names = [name for name in inspect.signature(self.function).parameters if name != "out"]
        self.has_cuda = has_kernel(self.ops[0], "CUDA")
        self.has_out = any(form.kind == WRITING for form in self.forms)
        self.differentiable: list[str] = []
        if torch.float64 in self.dtypes and not self.writes:
            form = self.forms[0]
            self.differentiable = list(form.promises.partials if form.declaration in TABLE else form.inputs)

    def sample(
        self, dtype: torch.dtype, device: str, shape: tuple[int, ...] | None = None, batch: tuple[int, ...] = ()
    ) -> list[Any]:
        """Return arguments with tensors of a shape, by default the first."""
        size = (*batch, *(self.shapes[0] if shape is None else shape))

        def tensor(low: float = -2, high: float = 2) -> Tensor:
            return torch.empty(size, dtype=torch.float64, device=device).uniform_(low, high).to(dtype)

        return list(self.arguments(tensor))

    def call(self, *args: Any) -> Any:
        """Return the result, or what was written."""
        if not self.writes:
            return self.function(*args)
        out = torch.empty_like(tensors(args)[0])
        self.function(*args, out)
        return out

    def expected(self, *args: Any) -> Any:
        """Return what the reference computes in float64, if that is what it computes in, rounded to the dtype."""
        dtype = tensors(args)[0].dtype
        if not dtype.is_floating_point:
            return self.reference(*args)
        wide = self.reference(*(x.double() if isinstance(x, Tensor) else x for x in args))
        return each(lambda x: x.to(dtype), wide)


def each(function: Callable[..., Any], results: Any) -> Any:
    """Return the function of a result, or of each of several."""
    return tuple(map(function, results)) if isinstance(results, tuple) else function(results)


def tensors(args: Sequence[Any]) -> list[Tensor]:
    """Return the tensors among arguments."""
    return [x for x in args if isinstance(x, Tensor)]
