"""``muladd-nb update``: replace the copies in a project by those of this package. The author's files stay."""

from __future__ import annotations

import re
from pathlib import Path

from .. import _build_info
from ._copies import RECORD, Record, copies, edited, package_of, record
from ._write import replace


def update(folder: Path, *, overwrite: bool = False, dry_run: bool = False) -> list[str]:
    """Update the copies in the project in ``folder``, and return a line for each file that changed.

    Without ``overwrite`` raise ``ValueError``, and write nothing, if a copy was edited, if the record is missing, or if
    the author has a file with the name of a new copy.
    """
    after = copies(package_of(folder))
    known = _record(folder)
    before = known.files if known else {}
    if not overwrite:
        overwrite_it = "run 'muladd-nb update --overwrite', and look at the changes in your version control"
        if known is None:
            raise ValueError(f"there is no {RECORD}, which says what was copied: commit your files, {overwrite_it}")
        if changed := edited(folder, before):
            raise ValueError(
                f"{', '.join(changed)}: not as copied, and an update would lose the changes. Move what you need to "
                f"files of your own, and restore these from your version control; or {overwrite_it}"
            )
        own = [name for name in after.keys() - before.keys() - {RECORD} if (folder / name).exists()]
        if own:
            names = ", ".join(sorted(own))
            raise ValueError(f"{names}: the update has a copy of this name; rename your file, or {overwrite_it}")
    gone = (name for name in before if name not in after and (folder / name).exists())
    files: dict[str, str | None] = dict.fromkeys(gone)
    files |= {name: text for name, text in after.items() if _text(folder / name) != text}
    lines = [f"{_verb(folder, name, text)} {name}" for name, text in sorted(files.items()) if name != RECORD]
    if files and not dry_run:
        replace(folder, files)
    return lines


def check_layer_is_current(package: str, folder: Path) -> None:
    """Raise ``ValueError`` if the project's copies differ from those that this package would write."""
    known = _record(folder)
    if known is None or known.files != record(copies(package)[RECORD]).files:
        raise ValueError(
            f"a new operator needs the layer of this muladd_nb, {_build_info.VERSION}, and the project has another "
            "one: run 'muladd-nb update' first"
        )


def _record(folder: Path) -> Record | None:
    """Return the record of the copies in a project, or None if it is missing."""
    if not (folder / RECORD).is_file():
        return None
    found = record((folder / RECORD).read_text("utf-8", "replace"))
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
