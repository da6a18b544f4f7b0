"""Small calls that ATen records: its node, in C++, stands for one in Python, which takes several times as long.

The derivative of ``a * b + c`` is that of ``a * b``. So ``torch.mul`` records a result, which then gets the memory in
which the kernel has computed its own. The values are the kernel's, to the bit, and the gradients those of the product.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import Parameter

from .. import _torch_private as private
from ._library import written_out
from .operator import FUNCTIONAL, Form

PLAIN = frozenset({Tensor, Parameter})

# Above it, to compute twice takes longer than the node in Python (benchmarks/per_call.py).
_SMALL = 2**16

# The kernel comes first: it checks, in its own words.
_RECORD = """
def record({arguments}):
    if {plain} and {first}.numel() <= SMALL and not autocasts():
        value = below({arguments})
        result = aten({tensors})
        result.data = value
        return result
"""


def recorder(form: Form) -> Callable[..., Tensor | None] | None:
    """Return what calls the operator where a gradient is recorded, and returns None where that is not for ATen."""
    if form.promises.aten is None or form.kind != FUNCTIONAL:
        return None
    arguments = [f"x{place}" for place in range(len(form.inputs) + len(form.numbers))]
    tensors = [arguments[place] for place in form.inputs.values()]
    source = _RECORD.format(
        arguments=", ".join(arguments),
        tensors=", ".join(tensors),
        first=tensors[0],
        plain=" and ".join(f"type({x}) in PLAIN" for x in tensors),
    )
    scope = {
        "PLAIN": PLAIN,
        "SMALL": _SMALL,
        "aten": form.promises.aten,
        "below": private.entry_point(form.below),
        "autocasts": private.autocasts,
    }
    return written_out("record", source, scope)
