"""Shared by all registrations: the namespace, the ``Library`` with the kernels, and operators' names in errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from .. import _C
from . import torch_private as private

# The namespace of the operators is the name of the package.
namespace = __name__.partition(".")[0]

if _C.registered_from_python():
    raise ImportError(
        f"{namespace} was imported before in this process, which keeps what was registered then: leave its modules in "
        "sys.modules, or start Python again"
    )

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
