"""What torch knows of schemas and names that are taken: the private names of torch that the generator alone needs."""

from __future__ import annotations

import pkgutil
from typing import Any

import torch


def parse_schema(text: str) -> Any:
    """Return what torch's own parser makes of a schema; raise ``RuntimeError`` where it makes nothing of it."""
    return _of_torch("parse_schema")(text)


def namespaces() -> set[str]:
    """Return the namespaces that have operators, and what ``torch.ops`` itself has by name."""
    operators = _of_torch("_dispatch_get_all_op_names")()
    return {name.partition("::")[0] for name in operators} | _attributes(type(torch.ops)())


def names_in_every_namespace() -> set[str]:
    """Return what every namespace of ``torch.ops`` has by name."""
    return _attributes(type(torch.ops.aten)(""))


def _of_torch(name: str) -> Any:
    try:
        return pkgutil.resolve_name(f"torch._C:{name}")
    except AttributeError:
        raise ValueError(
            f"it needs torch._C.{name}, which torch {torch.__version__} lacks; use another torch, or a newer muladd_nb"
        ) from None


def _attributes(module: Any) -> set[str]:
    return {*dir(type(module)), *vars(module)}  # dir() of a module is its own only
