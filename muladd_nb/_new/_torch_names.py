"""torch's parser of schemas, and the names that torch uses. Only the generator needs these private names of torch."""

from __future__ import annotations

import pkgutil
from typing import Any

import torch


def parse_schema(text: str) -> Any:
    """Parse a schema with torch's own parser, which raises ``RuntimeError`` if it cannot."""
    return _of_torch("parse_schema")(text)


def namespaces() -> set[str]:
    """Return the namespaces that have operators, and the attributes of ``torch.ops`` itself."""
    operators = _of_torch("_dispatch_get_all_op_names")()
    return {name.partition("::")[0] for name in operators} | _attributes(type(torch.ops)())


def names_in_every_namespace() -> set[str]:
    """Return the attributes that every namespace of ``torch.ops`` has."""
    return _attributes(type(torch.ops.aten)(""))


def _of_torch(name: str) -> Any:
    try:
        return pkgutil.resolve_name(f"torch._C:{name}")
    except AttributeError:
        raise ValueError(
            f"torch {torch.__version__} lacks torch._C.{name}; use another torch, or a newer muladd_nb"
        ) from None


def _attributes(module: Any) -> set[str]:
    return {*dir(type(module)), *vars(module)}  # dir() of the module itself leaves out the attributes of its type
