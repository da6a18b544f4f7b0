"""The files of a project that are copies: the layer, and the tests that every operator passes.

``layer.sha256``, in the project, lists them with what they were when they were copied. So ``muladd-nb update`` knows
which were edited since, and which are none any more.
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
# Copied from muladd_nb {version}, and not to be edited: 'muladd-nb update' renews these files.
# Which of them were edited since: sha256sum --check --quiet {record}
"""


class Record(NamedTuple):
    """What was copied into a project: from which version of muladd_nb, and the SHA-256 of each file by its name."""

    version: str
    files: dict[str, str]


def copies(package: str) -> dict[str, str]:
    """Return the files of a project that are copies, by their names, with the record of them."""
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
    """Return what a project's record says; raise ``ValueError`` if it is none."""
    version = re.search(r"^# Copied from muladd_nb ([^\s,]+)", text)
    lines = re.findall(r"^([0-9a-f]{64})  (.+)$", text, re.MULTILINE)
    if not version or len(lines) != sum(not line.startswith("#") for line in text.splitlines()):
        raise ValueError(f"{RECORD} is not as 'muladd-nb' wrote it: take it from your version control")
    return Record(version[1], {name: digest for digest, name in lines})


def edited(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """Return the copies in ``folder`` that are not as they were copied, or are not there."""
    return [
        name
        for name, digest in recorded.items()
        if not (folder / name).is_file() or _sha256((folder / name).read_text("utf-8", errors="replace")) != digest
    ]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def license_text() -> str:
    """Return the licence of this package."""
    # Of the distribution, for a wheel does not have a file twice.
    return importlib.metadata.distribution("muladd_nb").read_text("licenses/LICENSE") or ""


def read(folder: Any, inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield the files of a folder by their names in it, after ``inside``, and what they hold."""
    for entry in folder.iterdir():
        if entry.is_file():
            yield inside + entry.name, entry.read_text("utf-8")
        elif not entry.name.endswith("cache__"):  # pip compiles what it installs
            yield from read(entry, f"{inside}{entry.name}/")


def renamed(text: str, package: str) -> str:
    """Return the name or the text of a file of the templates as a project has it."""
    return text.replace("my_ops", package)
