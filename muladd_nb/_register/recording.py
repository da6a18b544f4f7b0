"""Small calls that ATen records: its node, in C++, stands for one in Python, which takes several times as long.

The derivative of ``a * b + c`` is that of ``a * b``. So ``torch.mul`` records a result, which then gets the memory in
which the kernel has computed its own. The values are the kernel's, to the bit, and the gradients those of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import indent
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from .. import _torch_private as private
from ._library import written_out
from .operator import FUNCTIONAL, Form

PLAIN = frozenset({Tensor, Parameter})

# Above it, to compute twice takes longer than the node in Python (benchmarks/per_call.py).
_SMALL = 2**16

# The kernel comes first: it checks, in its own words. The same in C++ takes longer: there an operator is called by its
# name (torch_call_dispatcher).
_RECORD = """\
if {first}.numel() <= _SMALL and not _autocasts():
    _value = _below_{row}({arguments})
    _result = _aten_{row}({tensors})
    _result.data = _value
    return _result
"""


def recording(form: Form, arguments: Sequence[str], row: int = 0) -> tuple[str, dict[str, Any]]:
    """Return source that returns the result of plain tensors, which nothing observes, if ATen can record it.

    And what it reads; nothing where ATen has no such node.
    """
    if form.promises.aten is None or form.kind != FUNCTIONAL:
        return "", {}
    tensors = [arguments[place] for place in form.inputs.values()]
    source = _RECORD.format(row=row, arguments=", ".join(arguments), tensors=", ".join(tensors), first=tensors[0])
    calls = {f"_below_{row}": private.entry_point_of_plain(form.below), f"_aten_{row}": form.promises.aten}
    return source, {"_SMALL": _SMALL, **calls}


def recorder(form: Form) -> Callable[..., Tensor | None] | None:
    """Return what calls the operator where a gradient is recorded, and returns None where that is not for ATen."""
    arguments = [f"x{place}" for place in range(len(form.inputs) + len(form.numbers))]
    source, scope = recording(form, arguments)
    if not source:
        return None
    plain = " and ".join(f"_type({arguments[place]}) in _PLAIN" for place in form.inputs.values())
    head = f"def record({', '.join(arguments)}):\n    if {plain} and {private.UNOBSERVED}:\n"
    return written_out("record", head + indent(source, 8 * " "), {"_PLAIN": PLAIN, **scope})
