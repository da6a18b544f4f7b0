"""``muladd-nb new``, ``add``, ``remove`` and ``update``: write a project, change its operators, renew its layer.

A project has two kinds of files. The author's files come from the folder ``project``, and :mod:`._operator` or
:mod:`._kernel` adds each operator to them. The others are copies (:mod:`._copies`), which nobody edits.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from . import _copies, _kernel, _operator, _remove
from ._copies import RESOURCES, copies, package_of, read, renamed
from ._schema import Schema, check_name
from ._schema import read as read_schema
from ._update import check_layer_is_current
from ._update import update as update  # for the command
from ._write import format_written, replace, write

_START = "multiply(Tensor x, float factor) -> Tensor"  # the operator of a new project, if no schema is given


def create(
    package: str,
    schemas: Sequence[str],
    parent: Path,
    *,
    kernel: bool = False,
    rows: bool = False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Write the project ``package``, with an operator for each schema, into ``parent`` and return its folder.

    ``tell`` is called with one sentence for each operator, which says how its schema is understood, and finally with
    what the author edits next.
    Raise ``ValueError``, and write nothing, if a name or a schema cannot be used, or the folder exists already.
    """
    check_name("package", package)
    folder = parent / package
    if os.path.lexists(folder):
        raise ValueError(f"{folder} exists already: choose another name, or another folder to run this in")
    files = {renamed(name, package): renamed(text, package) for name, text in read(RESOURCES / "project")}
    year = dt.datetime.now(dt.timezone.utc).year
    owner = f"Copyright (c) {year}, the {package} developers"
    files["LICENSE"] = re.sub("^Copyright .*", owner, _copies.license_text(), flags=re.MULTILINE)
    operators = _read(schemas, kernel=kernel, rows=rows)
    _add(files, operators, package)
    for schema in operators:
        tell(_understood(schema))
    own = [*files]
    files |= copies(package)
    temporary = parent / f".{package}-{os.getpid()}"
    try:
        write(files, temporary)
        format_written(temporary, own)
        temporary.rename(folder)
    except OSError as error:
        raise ValueError(f"{folder} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    tell(f"{folder} is written. {_to_edit(operators, package)}")
    return folder


def add(
    schemas: Sequence[str],
    folder: Path,
    *,
    kernel: bool = False,
    rows: bool = False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Add an operator for each schema to the project in ``folder``.

    ``tell`` is called with one sentence for each operator, which says how its schema is understood, and finally with
    what the author edits next.
    Raise ``ValueError``, and write nothing, if the folder is no project of this layer, or a schema cannot be used.
    """
    if not schemas:
        raise ValueError("there must be a schema, like 'softclip(Tensor x, float limit) -> Tensor'")
    package = package_of(folder)
    check_layer_is_current(package, folder)
    before = _own_files(folder, package)
    files, operators = dict(before), _read(schemas, kernel=kernel, rows=rows)
    try:
        _add(files, operators, package)
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing; an operator needs an entry in it") from None
    changed = {name: text for name, text in files.items() if before.get(name) != text}
    for name in changed.keys() - before.keys():
        if os.path.lexists(folder / name):
            raise ValueError(f"{name} exists already, and is not overwritten")
    for schema in operators:
        tell(_understood(schema))
    replace(folder, changed, formatted=True)
    tell(f"Added. {_to_edit(operators, package)}")


def remove(names: Sequence[str], folder: Path) -> list[str]:
    """Remove operators from the project in ``folder``, and return the files that still name one of them.

    Raise ``ValueError``, and write nothing, if the folder is no project of ``new``, or there is no such operator.
    """
    package = package_of(folder)
    before = _own_files(folder, package)
    files, gone = dict(before), set()
    try:
        for name in dict.fromkeys(names):
            gone |= _remove.remove(files, name, package)
    except SyntaxError as error:
        raise ValueError(f"{error.filename}, line {error.lineno}: {error.msg}; nothing is removed") from None
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing, so nothing is removed") from None
    changed: dict[str, str | None] = {name: text for name, text in files.items() if before[name] != text}
    changed |= dict.fromkeys(name for name in gone if os.path.lexists(folder / name))
    replace(folder, changed, formatted=True)
    sources = [x for inside in ("src", "python", "tests") for x in (folder / inside).rglob("*.*") if x.is_file()]
    own = {str(x.relative_to(folder)) for x in sources if x.suffix in (".h", ".cpp", ".cu", ".py")} - {*copies(package)}
    return sorted(x for x in own if {*names} & _remove.used(x, (folder / x).read_text("utf-8", "replace")))


def _understood(schema: Schema) -> str:
    """Return a sentence that says how we understand a schema."""
    read = ", ".join(x.name for x in schema.arguments if x.is_tensor)
    if schema.has_kernel:
        return f"{schema.name} is a kernel of your own, which may read any element of {read}."
    if schema.is_over_rows:
        along = "the dimension `dim`" if "dim" in schema.reduces else "the last dimension"
        along = "the dimensions of `normalized_shape`" if "normalized_shape" in schema.reduces else along
        shape = "one value for each row" if schema.is_of_row else "the shape of the tensors"
        hint = "" if schema.is_of_row else ". In the functor, write C for Elements<C> where a row has one value"
        result = "what it writes" if not schema.results else "its result" if schema.results == 1 else "each result"
        return f"{schema.name} is over rows along {along}, {result} with {shape}{hint}."
    to = ", ".join(x.name for x in schema.written) or ("each result" if schema.results else "out")
    return (
        f"{schema.name} is element-wise: an element of {to} is computed from the elements of {read} in the same place. "
        f"If it needs other elements, run 'muladd-nb remove {schema.name}', and add it with --rows if it reduces over "
        "a dimension, or else with --kernel."
    )


def _to_edit(schemas: Sequence[Schema], package: str) -> str:
    """Return the text that says what the author edits next, with a line for each new operator."""
    lines = []
    for schema in schemas:
        what = f"{'over rows' if schema.is_over_rows else 'element-wise'}: its functor in src/functors.h"
        if schema.has_kernel:
            what = f"with a kernel of its own: src/{schema.stem}.h, .cpp and .cu, python/{package}/_{schema.stem}.py"
        lines.append(f"  {schema.name}, {what}, its Case in tests/operators.py")
    return "\n".join(["Now edit", *lines, f"  and the description of each in python/{package}/ops.py and README.md"])


def _own_files(folder: Path, package: str) -> dict[str, str]:
    """Return the author's files in which operators have entries, by their names."""
    names = [renamed(name, package) for name, _ in read(RESOURCES / "project")]
    return {name: _text_of(folder, name) for name in names if (folder / name).is_file()}


def _text_of(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 (byte {error.start}): save it as UTF-8; nothing is changed") from None


def _read(schemas: Sequence[str], *, kernel: bool, rows: bool) -> list[Schema]:
    return [read_schema(text, kernel=kernel, rows=rows) for text in schemas or [_START]]


def _add(files: dict[str, str], schemas: Sequence[Schema], package: str) -> None:
    for schema in schemas:
        (_kernel if schema.has_kernel else _operator).add(files, schema, package)
