"""What the registrations share: the handle they live as long as, and the operators."""

from typing import Any

import torch

library = torch.library.Library("muladd_nb", "FRAGMENT")

_ops = torch.ops.muladd_nb

# Every operator, for what is registered alike for all.
operators = (
    _ops.mymuladd.default,
    _ops.mymul.default,
    _ops.myadd_out.default,
    _ops.mymuladd_out.default,
    _ops.mymuladd.tensor_c,
    _ops.mymuladd_out.tensor_c,
    _ops.mymuladd.out,
    _ops.mymul.out,
)


def name(op: Any) -> str:
    """Return what the error messages of an operator begin with, whichever kernel they come from."""
    return op.name().removeprefix("muladd_nb::").removesuffix(".tensor_c")


def implement(op: Any, kernel: Any, dispatch_key: str, *, with_keyset: bool = False) -> None:
    """Register a kernel of an operator for a dispatch key."""
    library.impl(op.name().removeprefix("muladd_nb::"), kernel, dispatch_key, with_keyset=with_keyset)
