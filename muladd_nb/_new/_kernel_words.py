"""What the C++ and the Python of a kernel's operator are both made of: its arguments, names for them, and templates.

A template is a file of the folder ``kernel``, where what depends on the arguments stands as ``@name@``.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Mapping

from ._schema import Argument, Schema

_TEMPLATES = importlib.resources.files(__package__) / "kernel"
_NUMBERS = ("float", "int", "bool", "float?", "int?", "bool?")


def template(name: str) -> str:
    """Return the text of a template."""
    return (_TEMPLATES / name).read_text("utf-8")


def fill(text: str, words: Mapping[str, str]) -> str:
    """Return a template with its words in their places; a line that is a word without text is none."""
    text = re.sub(r"^@([a-z_]+)@\n", lambda m: words[m[1]] and words[m[1]] + "\n", text + "\n", flags=re.MULTILINE)
    return re.sub("@([a-z_]+)@", lambda m: words[m[1]], text)[:-1]


def base(argument: Argument) -> str:
    """Return its type without what says that it is optional, or a list."""
    return argument.type.rstrip("?[]")


def is_tensor(argument: Argument) -> bool:
    """Return whether it is a tensor, an optional one, or a list of them."""
    return base(argument) == "Tensor"


def factors(schema: Schema) -> list[Argument]:
    """Return the arguments that it multiplies."""
    return [x for x in schema.arguments if x.type in _NUMBERS or (is_tensor(x) and not x.is_written)]


def written(schema: Schema) -> list[Argument]:
    """Return the tensors that it writes to."""
    return [x for x in schema.arguments if x.is_written]


def read(schema: Schema) -> list[Argument]:
    """Return the tensors that it only reads."""
    return [x for x in schema.arguments if is_tensor(x) and not x.is_written]


def named(wanted: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return a name for each that is wanted, with as many underscores as it takes to be no other's."""
    names: dict[str, str] = {}
    used = set(taken)
    for own in wanted:
        name = own
        while name in used:
            name += "_"
        used.add(name)
        names[own] = name
    return names


def identifiers(*templates: str) -> set[str]:
    """Return all names that stand in templates, but in their comments."""
    text = "\n".join(map(template, templates))
    return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"//.*|#.*|@[a-z_]+@", "", text)))


def first(schema: Schema) -> Argument:
    """Return the tensor that is always there, or the list of which there must be one."""
    return next(x for type_ in ("Tensor", "Tensor[]") for x in schema.arguments if x.type == type_)
