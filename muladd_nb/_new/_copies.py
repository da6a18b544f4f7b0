"""The files of a project that are copies: the layer, and the tests that every operator passes.

The project's ``layer.sha256`` lists them with their hashes at the time of copying. ``muladd-nb update`` compares these
to find copies that the author has edited or deleted since.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.resources
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import _build_info

PACKAGE = Path(__file__).parents[1]
RESOURCES = importlib.resources.files(__name__.rpartition(".")[0])
RECORD = "layer.sha256"

_HEAD = """\
# Copied from muladd_nb {version}, so do not edit these files: 'muladd-nb update' replaces them.
# To list the files that were edited, run: sha256sum --check --quiet {record}
"""


class Record(NamedTuple):
    """The version of muladd_nb that a project's copies come from, and the SHA-256 of each copy by its name."""

    version: str
    files: dict[str, str]


def package_of(folder: Path) -> str:
    """Return the name of the project in ``folder``."""
    tables = list(folder.glob("python/*/_operators.py"))
    if len(tables) != 1 or not (folder / "src/operators.h").exists():
        raise ValueError(
            "this folder is no project that 'muladd-nb new' wrote: change to the folder that has its meson.build"
        )
    return tables[0].parent.name


def copies(package: str) -> dict[str, str]:
    """Return the copies for a project, by their names, and their record."""
    python = f"python/{package}"
    files = {
        **dict(read(RESOURCES / "layer/src", "src/")),
        **dict(read(PACKAGE / "_layer", f"{python}/_layer/")),
        f"{python}/_C.pyi": (PACKAGE / "_C.pyi").read_text("utf-8"),
        **{renamed(name, package): renamed(text, package) for name, text in read(RESOURCES / "copied")},
        "licenses/muladd_nb.txt": license_text(),
    }
    head = _HEAD.format(version=_build_info.VERSION, record=RECORD)
    return files | {RECORD: head + "".join(f"{_sha256(files[name])}  {name}\n" for name in sorted(files))}


def record(text: str) -> Record:
    """Parse the text of a project's record; raise ``ValueError`` if it is not one."""
    version = re.search(r"^# Copied from muladd_nb ([^\s,]+)", text)
    lines = re.findall(r"^([0-9a-f]{64})  (.+)$", text, re.MULTILINE)
    if not version or len(lines) != sum(not line.startswith("#") for line in text.splitlines()):
        raise ValueError(f"{RECORD} is not as 'muladd-nb' wrote it: restore it from your version control")
    return Record(version[1], {name: digest for digest, name in lines})


def edited(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """Return the copies in ``folder`` that were edited or are missing."""
    return [
        name
        for name, digest in recorded.items()
        if not (folder / name).is_file() or _sha256((folder / name).read_text("utf-8", errors="replace")) != digest
    ]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def license_text() -> str:
    """Return the licence of this package."""
    # In a wheel, only the metadata has the licence.
    return importlib.metadata.distribution("muladd_nb").read_text("licenses/LICENSE") or ""


def read(folder: Any, inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name of each file of a folder, with ``inside`` in front, and its text."""
    for entry in folder.iterdir():
        if entry.is_file():
            yield inside + entry.name, entry.read_text("utf-8")
        elif not entry.name.endswith("cache__"):  # pip compiles the files that it installs
            yield from read(entry, f"{inside}{entry.name}/")


def renamed(text: str, package: str) -> str:
    """Return the name or the text of a template, with the project's name in it."""
    return text.replace("my_ops", package)
