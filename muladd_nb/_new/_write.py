"""Write files of a project: either all of them or none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# For each set of endings: the command that formats files in place, and the one that succeeds if they are formatted.
_FORMATTERS = {
    (".py",): (["ruff", "format", "--no-cache"], ["ruff", "format", "--no-cache", "--check"]),
    (".h", ".cpp", ".cu"): (["clang-format", "-i"], ["clang-format", "--dry-run", "--Werror"]),
}


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write files into a folder, by their names. A file that begins with ``#!`` becomes executable."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        if text.startswith("#!"):
            path.chmod(path.stat().st_mode | 0o111)


def replace(folder: Path, files: Mapping[str, str | None], *, formatted: bool = False) -> None:
    """Write files into a project, replacing existing ones, and remove those whose text is None.

    A file keeps its mode, and the line ends that most of its lines have. If it is a symbolic link, its target is
    replaced. Raise ``ValueError`` if a file cannot be written. After any exception the folder is as it was.
    """
    temporary = folder / f".muladd-nb-{os.getpid()}"
    place = {name: (folder / name).resolve() if text is not None else folder / name for name, text in files.items()}
    there = [name for name in files if os.path.lexists(place[name])]
    texts = {name: text for name, text in files.items() if text is not None}
    try:
        write({name: _with_ends_of(folder / name, text) for name, text in texts.items()}, temporary / "new")
        if formatted:
            format_written(temporary / "new", texts, folder)
        for name, text in files.items():
            if name in there:
                if text is not None:
                    shutil.copymode(place[name], temporary / "new" / name)
                _move(place[name], temporary / "old" / name)
            if text is not None:
                _move(temporary / "new" / name, place[name])
    except BaseException as error:  # also Ctrl-C: the author's files are in `temporary`
        for name in files:
            if os.path.lexists(temporary / "old" / name):
                _move(temporary / "old" / name, place[name])
            elif name not in there and os.path.lexists(place[name]):
                place[name].unlink()
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise ValueError(f"{folder.resolve()} cannot be written: {error.strerror}") from None
        raise
    shutil.rmtree(temporary, ignore_errors=True)
    # Folders that became empty are removed, too.
    for parent in sorted({parent for name in files.keys() - texts for parent in Path(name).parents}, reverse=True):
        if parent != Path() and not any((folder / parent).iterdir()):
            (folder / parent).rmdir()


def format_written(folder: Path, names: Iterable[str], before: Path | None = None) -> None:
    """Format files in a folder as the project's lint expects, if its formatters are installed.

    If a file exists in the folder ``before`` and is not formatted there, its author formats by hand: we leave it alone.
    """
    for endings, (in_place, check) in _FORMATTERS.items():
        chosen = [name for name in names if name.endswith(endings)]
        if before:
            chosen = [x for x in chosen if not (before / x).exists() or _run(check, before, [x]) == 0]
        if chosen:
            _run(in_place, folder, chosen)


def _run(command: list[str], folder: Path, names: list[str]) -> int | None:
    beside = Path(sys.executable).parent
    tool = shutil.which(command[0], path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if tool is None:
        return None
    return subprocess.run([tool, *command[1:], *names], cwd=folder, capture_output=True, check=False).returncode


def _with_ends_of(path: Path, text: str) -> str:
    """Return a text with the line ends of the file: CRLF if most of its lines have it, else LF."""
    before = path.read_bytes() if path.is_file() else b""
    return text.replace("\n", "\r\n") if 2 * before.count(b"\r\n") > before.count(b"\n") else text


def _move(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    path.replace(to)
