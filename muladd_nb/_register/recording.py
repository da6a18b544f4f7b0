"""Small calls that ATen records: its node, in C++, stands for one in Python, which takes several times as long.

The derivative of ``a * b + c`` is that of ``a * b``. So ``torch.mul`` computes a result and records it, and the kernel
writes its own over it. The values are the kernel's, to the bit, and the gradients those of the product.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import Parameter

from .. import _torch_private as private
from ._library import written_out
from .operator import Form

PLAIN = frozenset({Tensor, Parameter})

# Above it, the second write takes longer than the node in Python (benchmarks/per_call.py).
_SMALL = 2**16

# Where all tensors are contiguous, ATen's result has our strides, but for those of dimensions of size one, which `over`
# refuses. Nothing may be broadcast. What is refused comes back as None, and the ordinary way says it in its own words.
_RECORD = """
def record({arguments}):
    try:
        if {plain} and {first}.numel() <= SMALL and {alike} and not autocasts():
            result = aten({tensors})
            over({arguments}, result)
            return result
    except RuntimeError:
        pass
"""


def recorder(form: Form) -> Callable[..., Tensor | None] | None:
    """Return what calls the operator where a gradient is recorded, and returns None where ATen cannot do it."""
    if form.promises.aten is None or form.over is None:
        return None
    arguments = [f"x{place}" for place in range(len(form.inputs) + len(form.numbers))]
    first, *others = tensors = [arguments[place] for place in form.inputs.values()]
    alike = [f"{first}.is_contiguous()", *(f"{x}.is_contiguous() and {x}.shape == {first}.shape" for x in others)]
    source = _RECORD.format(
        arguments=", ".join(arguments),
        tensors=", ".join(tensors),
        first=first,
        plain=" and ".join(f"type({x}) in PLAIN" for x in tensors),
        alike=" and ".join(alike),
    )
    scope = {
        "PLAIN": PLAIN,
        "SMALL": _SMALL,
        "aten": form.promises.aten,
        "over": private.entry_point(form.over),
        "autocasts": private.autocasts,
    }
    return written_out("record", source, scope)
