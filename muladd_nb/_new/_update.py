"""``muladd-nb update``: the copies in a project become those of this package, and what is the author's stays."""

from __future__ import annotations

import re
from pathlib import Path

from .. import _build_info
from ._copies import RECORD, Record, copies, edited, record
from ._write import replace

# What a project that has no record says of each file that is a copy; its tests say nothing.
_NOTE = re.compile(r"(?:#!.*\n)?(?://|#) Copied from muladd_nb (\S+),")

# Files of the author's that name what the layer has: what stood there before, and stands there now.
_AUTHORS = ["*.build", "*.md", "*.py", "*.toml", "python/*/*.py", "src/*", "tests/*.py", ".github/workflows/*"]
_CALLED = {
    r"^( *from [\w.]*?)(\.| import )_register\b": r"\1\2_layer",
    r"^( *from [\w.]*)\._(load|torch_private)\b": r"\1._layer.\2",
    r"^( *from \w*\.) import _torch_private\b": r"\1_layer import torch_private",
    r"\b_register/": "_layer/",
    r"(?<!elementwise/)\btools/(?=(audit|repair)_wheel\b)": "src/elementwise/tools/",
    r"\btests/kernels/cuda\b": "src/elementwise/tests",
    r"\belementwise/plain/": "elementwise/own_kernel/",
    r"\belementwise::computed_t\b": "elementwise::compute_t",
    r"\b(cuda_)?kernels_of_its_own\b": r"\1own_kernels",
    r"^(from \._layer\.operator import )FUNCTIONAL, ": r"\1",
    r"\bFUNCTIONAL(?=, OP\b)": '"functional"',
    r"^using (elementwise::functional.*), elementwise::Operator;$": (
        r"using elementwise::differentiable, elementwise::Operator;\nusing \1;"
    ),
}


def update(package: str, folder: Path, *, overwrite: bool = False, dry_run: bool = False) -> list[str]:
    """Renew the copies in the project ``package``, and return a line for each file that is another one now.

    Without ``overwrite`` raise ``ValueError``, and write nothing, if a copy was edited, if it is not known what was
    copied, or if the author has a file where there is to be a copy.
    """
    before, known = _record(folder)
    after = copies(package)
    if not overwrite:
        overwrite_it = "run 'muladd-nb update --overwrite', and see in your version control what it has changed"
        if not known:
            raise ValueError(f"there is no {RECORD}, which says what was copied: commit your files, {overwrite_it}")
        if changed := edited(folder, before.files):
            raise ValueError(
                f"{', '.join(changed)}: not as copied, and an update would lose that. Put it back from your version "
                f"control, and what you need of it into files of your own; or {overwrite_it}"
            )
        own = [name for name in after.keys() - before.files.keys() - {RECORD} if (folder / name).exists()]
        if own:
            names = ", ".join(sorted(own))
            raise ValueError(f"{names}: there is to be a copy of this name; rename yours, or {overwrite_it}")
    files: dict[str, str | None] = {
        name: None for name in before.files if name not in after and (folder / name).exists()
    }
    files |= {name: text for name, text in after.items() if _text(folder / name) != text}
    lines = [f"{_verb(folder, name, text)} {name}" for name, text in sorted(files.items()) if name != RECORD]
    for name, text in _adapted(folder, {*before.files, *after}).items():
        files[name] = text
        lines.append(f"adapted {name}")
    if files and not dry_run:
        replace(folder, files)
    return lines


def check_is_of_now(package: str, folder: Path) -> None:
    """Raise ``ValueError`` if a project's copies are not those that this package would write."""
    before, known = _record(folder)
    if not known or before.files != record(copies(package)[RECORD]).files:
        raise ValueError(
            f"what would be added needs the layer of this muladd_nb, {_build_info.VERSION}, and the project has "
            "another: run 'muladd-nb update' first"
        )


def _record(folder: Path) -> tuple[Record, bool]:
    """Return what was copied into a project, and whether that is known of each file."""
    if (folder / RECORD).is_file():
        found = record((folder / RECORD).read_text("utf-8"))
        if _numbers(found.version) > _numbers(_build_info.VERSION):
            raise ValueError(
                f"this project has the layer of muladd_nb {found.version}, which is newer than this one, "
                f"{_build_info.VERSION}: run 'pip install --upgrade muladd_nb'"
            )
        return found, True
    noted = {}
    for path in folder.glob("**/*"):
        if path.is_file() and path.relative_to(folder).parts[0] in ("licenses", "python", "src", "tests", "tools"):
            match = _NOTE.match(path.read_text("utf-8", errors="replace"))
            if match:
                noted[path.relative_to(folder).as_posix()] = match[1]
    return Record(max(noted.values(), default="0"), dict.fromkeys(noted, "")), False


def _adapted(folder: Path, others: set[str]) -> dict[str, str]:
    """Return the author's files that name what the layer calls otherwise now, as they are to be."""
    found = {}
    for path in (path for pattern in _AUTHORS for path in sorted(folder.glob(pattern))):
        name = path.relative_to(folder).as_posix()
        text = _text(path)
        if text is None or name in others:
            continue
        adapted = text
        for before, now in _CALLED.items():
            adapted = re.sub(before, now, adapted, flags=re.MULTILINE)
        if adapted != text:
            found[name] = adapted
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
