"""``muladd-nb port``: finds what binds an existing extension to one torch, and what to write instead.

:mod:`._source` parses a C++ file; :mod:`._reader` and :mod:`._python` find; :mod:`._table` knows the replacements;
:mod:`._report` writes the report. The reader is a class in layers, each a file and an idea, from the bottom up:
:mod:`._findings`, :mod:`._names`, :mod:`._operators`, :mod:`._calls`, :mod:`._reader`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import _python
from ._findings import rewritten
from ._reader import Reader
from ._source import Project
from ._table import FIRST

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
        if not re.fullmatch(r"2\.\d\d", target) or target < FIRST:
            raise ValueError(f"--target must be a torch from {FIRST} on, like {FIRST}, got {target!r}")
        self.paths, self.target, self.files = list(paths), target, len(files)
        scripts = [_python.Script(path) for path in files if path.suffix == ".py"]
        limited = any("Py_LIMITED_API" in script.text for script in scripts if script.is_setup)
        project = Project(path for path in files if path.suffix.lower() in SUFFIXES)
        broken: dict[Path, dict[str, str]] = {source.path: {} for source in project.sources}
        for _ in range(4):  # each round finds lines that follow from those of the round before
            readers, before = list[Reader](), sum(map(len, broken.values()))
            for source in project.sources:
                around = sorted(x.path for x in project.around[source])
                seen = {name: where for path in around for name, where in broken[path].items()}
                readers.append(Reader(source, project, target, seen, limited))
            for reader in readers:
                reader.read()
                broken[reader.source.path] = reader.newly_broken | broken[reader.source.path]
            if sum(map(len, broken.values())) == before:
                break
        modules = {name for script in scripts if script.is_setup for name in script.modules()}
        found = [finding for reader in readers for finding in reader.findings]
        found += [finding for script in scripts for finding in script.findings(target, modules)]
        unique = {(f.path, f.line, f.end_line, f.what, f.how, f.to): f for f in found}
        self.findings = sorted(unique.values(), key=lambda f: (f.path, f.line, f.what))
        new = {reader.source.path: rewritten(reader.source.data, reader.edits) for reader in readers}
        self.changed = {file.path: new[file.path] for file in project.sources if new[file.path] != file.data}
        self.unparsed = {str(file.path): file.unparsed for file in project.sources if file.unparsed}
        self.schemas = {schema.split("(")[0]: schema for reader in readers for schema in reader.schemas}

    def write(self, *, force: bool) -> list[Path]:
        """Make the mechanical changes, all or none; raise ``ValueError`` if that cannot be undone by git."""
        for path in [] if force else self.paths:
            self._check_is_clean(path)
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

    def _check_is_clean(self, path: Path) -> None:
        here, changed = path.resolve(), [file.resolve() for file in self.changed]
        inside = [str(file) for file in changed if here in (file, *file.parents)]

        def git(*words: str) -> subprocess.CompletedProcess[str]:
            folder = str(here if here.is_dir() else here.parent)
            return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)

        try:
            status, known = git("status", "--porcelain"), git("ls-files", "-z", "--", *inside)
        except FileNotFoundError:
            raise ValueError("git is not here to undo the changes with: use --force") from None
        if status.returncode:
            raise ValueError(f"{path} is in no git repository, so the changes could not be undone: use --force")
        if status.stdout.strip():
            raise ValueError(f"{path} has changes that are not committed: commit them, or use --force")
        if inside and known.stdout.count("\0") < len(inside):
            raise ValueError(f"{path} has files that git ignores, so the changes could not be undone: use --force")


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    return [
        file
        for file in ([path] if path.is_file() else sorted(path.rglob("*")))
        if file.suffix.lower() in {*SUFFIXES, ".py"}
        and file.is_file()
        and (file == path or not file.is_symlink())  # its target is here, too, or is not the extension's
        and not any(part.startswith(".") or part in SKIPPED for part in file.relative_to(path).parts[:-1])
    ]
