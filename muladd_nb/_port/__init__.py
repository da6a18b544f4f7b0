"""``muladd-nb port``: finds what binds an existing extension to one torch, and what to write instead.

:mod:`._source` parses a C++ file; :mod:`._reader` and :mod:`._python` make the findings; :mod:`._table` has the
replacements; :mod:`._report` writes the report. The reader's class has one base class per file, from the bottom up:
:mod:`._findings`, :mod:`._names`, :mod:`._types`, :mod:`._calls`, :mod:`._reader`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import _python
from ._findings import rewritten
from ._reader import Reader
from ._source import Project, Source
from ._table import FIRST, WORDS

SUFFIXES = {".cpp", ".cc", ".cxx", ".c++", ".cu", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp"}


class Port:
    """The findings in an extension, and its files as the mechanical changes would leave them."""

    def __init__(self, paths: Sequence[Path], target: str) -> None:
        self.left_out: list[Path] = []  # folders that are skipped
        files = list({file.resolve(): file for path in paths for file in _files(path, self.left_out)}.values())
        if not files:
            but = f", but for those in {', '.join(map(str, self.left_out))}" if self.left_out else ""
            raise ValueError(f"no C++, CUDA or Python files in {', '.join(map(str, paths))}{but}")
        if not re.fullmatch(r"2\.\d\d", target) or target < FIRST:
            raise ValueError(f"--target must be a torch from {FIRST} on, like {FIRST}, got {target!r}")
        self.paths, self.target, self.files = list(paths), target, len(files)
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 6000))  # generated code chains a thousand else-ifs
        found, limited = _python.read((path for path in files if path.suffix == ".py"), target)
        project = Project(path for path in files if path.suffix.lower() in SUFFIXES)
        broken = {source: dict[str, str]() for source in project.sources}
        readers = dict[Source, Reader]()
        order = sorted(project.sources, key=lambda source: len(project.visible[source]))  # what is included comes first
        for _ in range(4):  # each round finds lines that follow from those of the round before
            before = broken.copy()
            for source in order:
                around = sorted(project.around[source], key=lambda file: file.path)
                seen = {name: where for file in around for name, where in before[file].items()}
                if source in readers and readers[source].broken == seen:
                    continue
                readers[source] = reader = Reader(source, project, target, seen, limited)
                try:
                    reader.read()
                except RecursionError:
                    raise ValueError(f"{source.path}: its code is nested too deeply; leave it out") from None
                broken[source] = reader.newly_broken | before[source]
        found = [finding for reader in readers.values() for finding in reader.findings] + found
        unique = {(f.path, f.line, f.end_line, f.what, f.how, f.to): f for f in found}
        self.findings = sorted(unique.values(), key=lambda f: (f.path, f.line, f.what))
        new = {reader.source: rewritten(reader.source.data, reader.edits, reader.torch) for reader in readers.values()}
        self.changed = {file.path: data for file, data in new.items() if data != file.data}
        self.unparsed = {str(file.path): file.unparsed for file in project.sources if file.unparsed}
        self.schemas = {schema.split("(")[0]: schema for reader in readers.values() for schema in reader.schemas}

    def write(self, *, force: bool) -> list[Path]:
        """Make all mechanical changes or none; raise ``ValueError`` if git could not undo them."""
        for path in [] if force else self.paths:
            if problem := self._keeps_git_from_undoing(path.resolve()):
                raise ValueError(f"{path} {problem}, so the changes could not be undone: commit, or use --force")
        before = {path: path.read_bytes() for path in self.changed}
        try:
            for path, data in self.changed.items():
                path.write_bytes(data)
        except OSError as error:
            for path, data in before.items():
                if path.read_bytes() != data:
                    path.write_bytes(data)
            raise ValueError(f"{error.filename}: {error.strerror}; nothing was changed") from None
        return list(self.changed)

    def _keeps_git_from_undoing(self, here: Path) -> str:
        git = ["git", "-C", str(here if here.is_dir() else here.parent)]
        inside = [str(file) for file in map(Path.resolve, self.changed) if file.is_relative_to(here)]
        try:
            status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return "is on a machine without git"
        if status.returncode:
            reason = status.stderr.partition("\n")[0].removeprefix("fatal: ")
            return "is in no git repository" if "not a git" in reason else f"cannot be read by git ({reason})"
        if status.stdout.strip():
            return "is in a git repository with changes that are not committed"
        ignored = subprocess.run([*git, "check-ignore", "--", *inside], capture_output=True, check=False)
        # Git answers 1 if it ignores none of them, and 128 if it cannot tell, as for files of a submodule.
        return "has files that git ignores" if inside and ignored.returncode != 1 else ""


def _files(path: Path, left_out: list[Path]) -> list[Path]:
    """Return the sources in a folder, and append the folders with other projects' code to ``left_out``."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if not path.is_dir():
        return [path] * (path.is_file() and path.suffix.lower() in {*SUFFIXES, ".py"})
    found = list[Path]()
    for inner in sorted(path.iterdir()):
        is_others = {inner.name, f"{path.name}/{inner.name}"} & WORDS["skipped"].keys() and inner.is_dir()
        if inner.is_symlink() or inner.name.startswith("."):
            continue  # the target of a link is in this folder too, or not the extension's
        sources = _files(inner, [] if is_others else left_out)
        if is_others and sources:
            left_out.append(inner)
        elif not is_others:
            found += sources
    return found
