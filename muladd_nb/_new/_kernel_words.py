"""Templates of a kernel's files, and names for its arguments, in C++ and in Python.

A template is a file of the folder ``kernel``. Each ``@name@`` in it is replaced by a text that depends on the schema.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Mapping

_TEMPLATES = importlib.resources.files(__package__) / "kernel"


def template(name: str) -> str:
    """Return the text of a template."""
    return (_TEMPLATES / name).read_text("utf-8")


def fill(text: str, words: Mapping[str, str]) -> str:
    """Return a template with each ``@name@`` replaced. A line that holds only a name with an empty text is removed."""
    text = re.sub(r"^@([a-z_]+)@\n", lambda m: words[m[1]] and words[m[1]] + "\n", text + "\n", flags=re.MULTILINE)
    return re.sub("@([a-z_]+)@", lambda m: words[m[1]], text)[:-1]


def named(wanted: Mapping[str, str], taken: set[str]) -> dict[str, str]:
    """Return a name for each key: the wanted one, with underscores appended until it is not taken."""
    names: dict[str, str] = {}
    for key, name in wanted.items():
        while name in taken or name in names.values():
            name += "_"
        names[key] = name
    return names


def in_lines(head: str, items: Iterable[str], tail: str) -> str:
    """Return a list of parameters on one line or, if that is too long, on one line each."""
    line = f"{head}{', '.join(items)}{tail}"
    return line if len(line) <= 120 else "\n".join([head, *(f"    {item}," for item in items), tail])


def identifiers(*templates: str) -> set[str]:
    """Return all identifiers of templates, without those in comments."""
    text = "\n".join(map(template, templates))
    return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"//.*|#.*|@[a-z_]+@", "", text)))
