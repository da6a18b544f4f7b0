"""``muladd-nb new`` and ``muladd-nb add``: a project of one's own, and one more operator in it.

A project is the files of the folder ``project``, which are its author's, with what :mod:`._operator` writes for each
schema; and a copy of the lower floor of this package, which is not to be edited.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import importlib.resources
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import _build_info
from . import _kernel, _operator
from ._schema import check_name, read

_PACKAGE = Path(__file__).parents[1]
_RESOURCES = importlib.resources.files(__name__)
_START = "multiply(Tensor x, float factor) -> Tensor"  # what a project starts from where no schema is given


def create(package: str, schemas: Sequence[str], parent: Path, *, kernel: bool = False) -> Path:
    """Write the project ``package``, with an operator for each schema, into ``parent`` and return its folder.

    Raises
    ------
    ValueError
        If a name or a schema cannot be used, or the folder exists or cannot be written. Nothing has been written then.
    """
    check_name("package", package)
    folder = parent / package
    if os.path.lexists(folder):
        raise ValueError(f"{folder} exists already: choose another name, or another folder to run this in")
    files = {_renamed(name, package): _renamed(text, package) for name, text in _read(_RESOURCES / "project")}
    year = dt.datetime.now(dt.timezone.utc).year
    owner = f"Copyright (c) {year}, the {package} developers"
    files["LICENSE"] = re.sub("^Copyright .*", owner, _license(), flags=re.MULTILINE)
    files[".clang-format"] = _resource(".clang-format")
    files |= _layer(package)
    _add(files, schemas or [_START], package, kernel=kernel)
    temporary = parent / f".{package}-{os.getpid()}"
    try:
        _write(files, temporary)
        temporary.rename(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ValueError(f"{folder} cannot be written: {error.strerror}") from None
    return folder


def add(schemas: Sequence[str], folder: Path, *, kernel: bool = False) -> None:
    """Add an operator for each schema to the project in ``folder``.

    Raises
    ------
    ValueError
        If it is no project that ``create`` wrote, a schema cannot be used, or there is an operator of its name.
        Nothing has been written then.
    """
    if not schemas:
        raise ValueError("there must be a schema, like 'softclip(Tensor x, float limit) -> Tensor'")
    tables = list(folder.glob("python/*/_operators.py"))
    if len(tables) != 1 or not (folder / "src/operators.h").exists():
        raise ValueError(
            "this folder is no project that 'muladd-nb new' wrote: change to one, where its meson.build is"
        )
    package = tables[0].parent.name
    before = {}
    for name, _ in _read(_RESOURCES / "project"):
        path = folder / _renamed(name, package)
        if path.is_file():
            before[_renamed(name, package)] = path.read_text("utf-8")
    files = dict(before)
    try:
        _add(files, schemas, package, kernel=kernel)
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing, in which there is a place for an operator") from None
    changed = {name: text for name, text in files.items() if before.get(name) != text}
    for name in changed.keys() - before.keys():
        if os.path.lexists(folder / name):
            raise ValueError(f"{name} exists already, and is not overwritten")
    temporary = folder / f".add-{os.getpid()}"
    try:
        _write(changed, temporary)
        for name in changed:
            (temporary / name).replace(folder / name)
    except OSError as error:
        raise ValueError(f"{folder} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _add(files: dict[str, str], schemas: Sequence[str], package: str, *, kernel: bool) -> None:
    for text in schemas:
        (_kernel if kernel else _operator).add(files, read(text, kernel=kernel), package)


def _layer(package: str) -> dict[str, str]:
    """Return the lower floor as a project has it, each file with a note of where it is from."""
    copied = {name: text for name, text in _read(_RESOURCES / "layer") if "/" in name}
    for path in [_PACKAGE / name for name in ("_C.pyi", "_load.py", "_torch_private.py")]:
        copied[f"python/{package}/{path.name}"] = path.read_text("utf-8")
    for name, text in _read(_PACKAGE / "_register"):
        copied[f"python/{package}/_register/{name}"] = text
    note = f"Copied from muladd_nb {_build_info.VERSION}, BSD-3-Clause (licenses/muladd_nb.txt); not to be edited."
    noted = {}
    for name, text in copied.items():
        first, rest = re.fullmatch(r"(#!.*\n)?([\s\S]*)", text).groups(default="")  # type: ignore[union-attr]
        noted[name] = f"{first}{'//' if name.endswith(('.h', '.cpp')) else '#'} {note}\n{rest}"
    return noted | {"licenses/muladd_nb.txt": _license()}


def _license() -> str:
    # Of the distribution, for a wheel does not have a file twice.
    return importlib.metadata.distribution("muladd_nb").read_text("licenses/LICENSE") or ""


def _resource(name: str) -> str:
    return (_RESOURCES / "layer" / name).read_text("utf-8")


def _read(folder: Any, inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield the files of a folder by their names in it, and what they hold."""
    for entry in folder.iterdir():
        if entry.is_file():
            yield inside + entry.name, entry.read_text("utf-8")
        elif not entry.name.endswith("cache__"):  # pip compiles what it installs
            yield from _read(entry, f"{inside}{entry.name}/")


def _renamed(text: str, package: str) -> str:
    return text.replace("my_ops", package)


def _write(files: dict[str, str], folder: Path) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        if text.startswith("#!"):
            path.chmod(path.stat().st_mode | 0o111)
