"""``muladd-nb new``: a project of one's own, written from the folder ``template``.

The template is a project that works as it stands, the package ``my_ops`` with the operator ``mymul``; a new
project is a copy with these two names replaced.
"""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

_TEMPLATE = Path(__file__).parent / "template"
# What Python, or torch's dispatcher, already has under that name.
_TAKEN = sys.stdlib_module_names | {"aten", "muladd_nb", "prim", "torch"}


def create(package: str, operator: str, parent: Path) -> Path:
    """Write the project ``package``, with the operator ``operator``, into ``parent`` and return its folder.

    Raises
    ------
    ValueError
        If a name cannot be used, or the folder exists. Nothing has been written then.
    """
    for what, name in (("package", package), ("operator", operator)):
        # It becomes a module, a project on PyPI and a dispatcher namespace: what all three take.
        if not re.fullmatch("[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?", name) or keyword.iskeyword(name):
            raise ValueError(
                f"the name of the {what} must be a Python identifier of letters, digits and underscores that "
                f"begins with a letter, does not end in an underscore and is no keyword, got {name!r}"
            )
        if name in _TAKEN:
            raise ValueError(f"the name of the {what} must not be one that Python or torch has already, got {name!r}")
    folder = parent / package
    if folder.exists():
        raise ValueError(f"{folder} exists already: choose another name, or another folder to run this in")
    names = {"my_ops": package, "mymul": operator}
    for file in _TEMPLATE.rglob("*"):
        if file.is_dir() or "__pycache__" in file.parts:  # pip compiles what it installs
            continue
        target = folder / _renamed(str(file.relative_to(_TEMPLATE)), names)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_renamed(file.read_text("utf-8"), names), "utf-8")
    return folder


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub("|".join(names), lambda match: names[match[0]], text)
