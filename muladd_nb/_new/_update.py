"""``muladd-nb update``: the copies in a project become those of this package, and what is the author's stays."""

from __future__ import annotations

import re
from pathlib import Path

from .. import _build_info
from ._copies import RECORD, Record, copies, edited, record
from ._write import replace


def update(package: str, folder: Path, *, overwrite: bool = False, dry_run: bool = False) -> list[str]:
    """Renew the copies in the project ``package``, and return a line for each file that is another one now.

    Without ``overwrite`` raise ``ValueError``, and write nothing, if a copy was edited, if it is not known what was
    copied, or if the author has a file where there is to be a copy.
    """
    known = _record(folder)
    before = known.files if known else {}
    after = copies(package)
    if not overwrite:
        overwrite_it = "run 'muladd-nb update --overwrite', and see in your version control what it has changed"
        if known is None:
            raise ValueError(f"there is no {RECORD}, which says what was copied: commit your files, {overwrite_it}")
        if changed := edited(folder, before):
            raise ValueError(
                f"{', '.join(changed)}: not as copied, and an update would lose that. Put it back from your version "
                f"control, and what you need of it into files of your own; or {overwrite_it}"
            )
        own = [name for name in after.keys() - before.keys() - {RECORD} if (folder / name).exists()]
        if own:
            names = ", ".join(sorted(own))
            raise ValueError(f"{names}: there is to be a copy of this name; rename yours, or {overwrite_it}")
    gone = (name for name in before if name not in after and (folder / name).exists())
    files: dict[str, str | None] = dict.fromkeys(gone)
    files |= {name: text for name, text in after.items() if _text(folder / name) != text}
    lines = [f"{_verb(folder, name, text)} {name}" for name, text in sorted(files.items()) if name != RECORD]
    if files and not dry_run:
        replace(folder, files)
    return lines


def check_is_of_now(package: str, folder: Path) -> None:
    """Raise ``ValueError`` if a project's copies are not those that this package would write."""
    known = _record(folder)
    if known is None or known.files != record(copies(package)[RECORD]).files:
        raise ValueError(
            f"what would be added needs the layer of this muladd_nb, {_build_info.VERSION}, and the project has "
            "another: run 'muladd-nb update' first"
        )


def _record(folder: Path) -> Record | None:
    """Return what was copied into a project, or None if its record is not there."""
    if not (folder / RECORD).is_file():
        return None
    found = record((folder / RECORD).read_text("utf-8"))
    if _numbers(found.version) > _numbers(_build_info.VERSION):
        raise ValueError(
            f"this project has the layer of muladd_nb {found.version}, which is newer than this one, "
            f"{_build_info.VERSION}: run 'pip install --upgrade muladd_nb'"
        )
    return found


def _verb(folder: Path, name: str, text: str | None) -> str:
    if text is None:
        return "removed"
    return "renewed" if (folder / name).exists() else "added  "


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
