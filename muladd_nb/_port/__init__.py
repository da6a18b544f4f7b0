"""``muladd-nb port``: finds what binds an existing extension to one torch, and what to write instead.

:mod:`._source` parses a C++ file; :mod:`._reader` and :mod:`._python` find; :mod:`._table` knows the replacements;
:mod:`._report` writes the report. The reader is a class in layers, each a file and an idea, from the bottom up:
:mod:`._findings` and :mod:`._edits`, :mod:`._names`, :mod:`._types`, :mod:`._walk`; on these :mod:`._factories`,
:mod:`._operators`, :mod:`._registrations`, :mod:`._calls`, :mod:`._declarations`, :mod:`._includes`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import _python
from ._edits import rewritten
from ._findings import Finding
from ._reader import Reader
from ._source import Project, Source
from ._table import FIRST, number

SUFFIXES = {".cpp", ".cc", ".cxx", ".c++", ".cu", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp"}
SKIPPED = frozenset(
    """build dist node_modules third_party thirdparty 3rdparty extern external submodules __pycache__
    site-packages""".split()  # noqa: SIM905
)


class Port:
    """All that was found in an extension, and the files as they would be after the mechanical changes."""

    def __init__(self, paths: Sequence[Path], target: str) -> None:
        files = list({file.resolve(): file for path in paths for file in _files(path)}.values())
        if not files:
            raise ValueError(f"no C++, CUDA or Python files in {', '.join(map(str, paths))}")
        if not re.fullmatch(r"2\.\d\d", target) or number(target) < number(FIRST):
            raise ValueError(f"--target must be a torch from {FIRST} on, like {FIRST}, got {target!r}")
        self.paths, self.target = list(paths), target
        sources = [Source(path) for path in files if path.suffix.lower() in SUFFIXES]
        scripts = [path for path in files if path.suffix == ".py"]
        limited = any(
            "Py_LIMITED_API" in path.read_text("utf-8", "replace") for path in scripts if path.name == "setup.py"
        )
        project = Project(sources)
        broken: dict[str, str] = {}
        for _ in range(4):  # each round finds lines that follow from those of the round before
            readers = []
            for source in sources:
                readers.append(Reader(source, project, target, broken, limited))
                readers[-1].read()
            new = {name: at for reader in readers for name, at in reader.newly_broken.items()} | broken
            if new.keys() == broken.keys():
                break
            broken = new
        self.findings: list[Finding] = []
        self.changed: dict[Path, bytes] = {}
        self.unparsed: dict[str, list[int]] = {}
        self.schemas: dict[str, str] = {}
        for reader in readers if sources else []:
            self.findings += reader.findings
            self.schemas |= {schema.split("(")[0]: schema for schema in reader.schemas}
            if reader.source.unparsed:
                self.unparsed[str(reader.source.path)] = reader.source.unparsed
            if reader.edits and (data := rewritten(reader.source, reader.edits)) != reader.source.data:
                self.changed[reader.source.path] = data
        modules = {name for path in scripts if path.name == "setup.py" for name in _python.modules(path)}
        for path in scripts:
            self.findings += _python.read(path, target, modules)
        self.files = len(sources) + len(scripts)
        unique = {(f.path, f.line, f.end_line, f.what, f.how, f.to): f for f in self.findings}
        self.findings = sorted(unique.values(), key=lambda f: (f.path, f.line, f.what))

    def write(self, *, force: bool) -> list[Path]:
        """Make the mechanical changes, all or none; raise ``ValueError`` if that cannot be undone by git."""
        if not force:
            for path in self.paths:
                _check_is_clean(path, self.changed)
        before = {path: path.read_bytes() for path in self.changed}
        try:
            for path, data in self.changed.items():
                path.write_bytes(data)
        except BaseException as error:
            for path, data in before.items():
                if path.read_bytes() != data:
                    path.write_bytes(data)
            if not isinstance(error, OSError):
                raise
            raise ValueError(f"{error.filename}: {error.strerror}; nothing was changed") from None
        return list(self.changed)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    known = {*SUFFIXES, ".py"}
    if path.is_file():
        return [path] if path.suffix.lower() in known else []
    return [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in known
        and file.is_file()
        and not file.is_symlink()  # its target is here, too, or is not the extension's
        and not any(part.startswith(".") or part in SKIPPED for part in file.relative_to(path).parts[:-1])
    ]


def _check_is_clean(path: Path, changed: Iterable[Path]) -> None:
    here = path.resolve()
    git = ["git", "-C", str(here if here.is_dir() else here.parent)]
    inside = [str(file.resolve()) for file in changed if here in (file.resolve(), *file.resolve().parents)]
    try:
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
        known = subprocess.run([*git, "ls-files", "-z", "--", *inside], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ValueError("git is not here to undo the changes with: use --force") from None
    if status.returncode:
        raise ValueError(f"{path} is in no git repository, so the changes could not be undone: use --force")
    if status.stdout.strip():
        raise ValueError(f"{path} has changes that are not committed: commit them, or use --force")
    if inside and known.stdout.count("\0") < len(inside):
        raise ValueError(f"{path} has files that git ignores, so the changes could not be undone: use --force")
