"""Shared by all registrations: the namespace, the ``Library`` with the kernels, and operators' names in errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from .. import _C
from . import torch_private as private

# The namespace of the operators is the name of the package.
namespace = __name__.partition(".")[0]

# The dispatcher keeps the kernels of the first import, and torch.ops, which does so too, says where they came from.
_kept = vars(getattr(torch.ops, namespace))
if "_imported_from" in _kept:
    raise ImportError(
        f"{namespace} was imported before in this process, from {_kept['_imported_from']}, and the process keeps what "
        "was registered then: leave its modules in sys.modules, or start Python again"
    )
_kept["_imported_from"] = Path(__file__).parents[1]

library = torch.library.Library(namespace, "FRAGMENT")


_registered: set[str] = set()


def check_is_first(what: str) -> None:
    """Raise ``ImportError`` if this is registered already, because a notebook has reloaded a module."""
    if what in _registered:
        raise ImportError(
            f"{namespace}: {what} cannot be registered twice, so a module that registers them cannot be reloaded: "
            "start Python again, or restart the kernel of the notebook"
        )
    _registered.add(what)


def name(op: Any) -> str:
    """Return the name that an operator's error messages begin with, in C++ and in Python.

    It has the name of the overload only for an out variant.
    """
    qualified = op.name().partition("::")[2]
    returned = private.results(op)
    return qualified if returned and returned[0].alias_info else qualified.partition(".")[0]


def refusing(op: str, sentence: str) -> Callable[..., NoReturn]:
    """Return a function that raises this error, whatever its arguments."""

    def refuse(*_: Any) -> NoReturn:
        raise RuntimeError(f"{op}: {sentence}")

    return refuse


def implement(op: Any, kernel: Any, dispatch_key: str, *, with_keyset: bool = False) -> None:
    """Register a kernel of an operator for a dispatch key."""
    name = op.name().partition("::")[2]
    library.impl(name, private.skip_in_dynamo(kernel), dispatch_key, with_keyset=with_keyset)
    _C.note_kernel(name, dispatch_key)
