"""Run ``muladd-nb port`` on other extensions, compile the result, and write the counts into ``docs/ported.csv``.

Usage: ``tools/port_others.py pytorch_scatter=DIR ...``, where DIR is a clone. In a copy, the script makes the
mechanical changes and the report, and compiles each C++ file for the CPU with only the headers of the stable ABI. If
an error is at a line that the report does not name, the script prints it, and exits with 1.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import itertools
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs/ported.csv"
OTHER_DEVICES = {"cuda", "mps", "mlu", "npu", "musa", "hip", "rocm", "xpu", "metal"}
# A processor with all instructions that the sources use. Nothing is run.
EXTRA = ["-march=sapphirerapids"] if platform.machine() == "x86_64" else []
# Headers that an extension has as a submodule and needs to compile.
STUBS = {
    "parallel_hashmap/phmap.h": """#include <unordered_map>
#include <unordered_set>
namespace phmap { template <class K, class V> using flat_hash_map = std::unordered_map<K, V>;
template <class K> using flat_hash_set = std::unordered_set<K>; }""",
}
FIELDS = [
    "extension",
    "commit",
    "files",
    "lines",
    "mechanical",
    "decision",
    "none",
    "follows",
    "compiled",
    "errors",
    "unnamed",
]


def main() -> int:
    """Port each named extension, and write a line for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extensions", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--target", default="2.10")
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--keep", type=Path, help="keep the copies in this folder")
    parser.add_argument("--include", action="append", default=[], help="a folder of headers of other libraries")
    parser.add_argument("--define", action="append", default=[], help="a macro that the extension's setup.py defines")
    parser.add_argument("--headers", type=Path, help="torch/include of another torch than the installed one")
    parser.add_argument("--jobs", type=int, default=1, help="how many files to compile at once")
    arguments = parser.parse_args()
    EXTRA.extend(f"-isystem{folder}" for folder in arguments.include)
    EXTRA.extend(f"-D{macro}" for macro in arguments.define)
    port = _port_module()
    rows = {row["extension"]: row for row in csv.DictReader(TABLE.read_text().splitlines())} if TABLE.exists() else {}
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        headers = stable_headers(Path(temporary), arguments.headers)
        for name, _, folder in (word.partition("=") for word in arguments.extensions):
            copy = (arguments.keep or Path(temporary)) / name
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".git"), ignore_dangling_symlinks=True)
            row, unnamed = measure(port, name, copy, headers, arguments.target, arguments.jobs)
            row["commit"] = subprocess.check_output(
                ["git", "-C", folder, "rev-parse", "--short=10", "HEAD"], text=True
            ).strip()
            rows[name] = row
            print(*(f"{key} {row[key]}" for key in FIELDS), sep=", ", flush=True)
            print("\n".join(unnamed))
            failed |= bool(unnamed)
            if not arguments.no_record:
                with TABLE.open("w", newline="") as file:
                    writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows.values())
    return int(failed)


def measure(
    port: Any, name: str, copy: Path, headers: Path, target: str, jobs: int
) -> tuple[dict[str, Any], list[str]]:
    """Port a copy. Return its line of the table, and the errors at lines that the report does not name."""
    before = port.Port([copy], target)
    before.write(force=True)
    after = port.Port([copy], target)
    named = {(finding.path, line) for finding in after.findings for line in range(finding.line, finding.end_line + 1)}
    counts = Counter(
        how
        for how in ("mechanical", "decision", "none", "follows")
        for _ in {(f.path, f.line) for f in (before if how == "mechanical" else after).findings if f.how == how}
    )
    again = [f for f in after.findings if f.how == "mechanical"]
    sources = [path for path in sorted(copy.rglob("*")) if path.suffix in (".cpp", ".cc", ".cxx") and path.is_file()]
    # A file that another one includes is compiled as part of it.
    included = {name for path in sources for name in re.findall(rb'#[ \t]*include ".*?([^/"]+)"', path.read_bytes())}
    files = [path for path in sources if _is_for_cpu(path, copy) and path.name.encode() not in included]
    errors, unnamed = set(), [f"{f.path}:{f.line}: changes again: {f.what}" for f in again]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda path: compile_errors(path, copy, headers, target), files))
    # A file is left out if it needs a header of a library that is not installed here.
    lacks = re.compile(r"fatal error: (?!(?:ATen|c10|torch|pybind11)/)([\w./+-]+): No such file")
    missing = [path for path, texts in zip(files, found, strict=True) if any(lacks.match(text[2]) for text in texts)]
    print("Left out:", *missing)
    found = [texts for path, texts in zip(files, found, strict=True) if path not in missing]
    for where, line, text in itertools.chain(*found):
        if re.match(r"}\s*;?\s*(//.*)?$", Path(where).read_text("utf-8", "replace").splitlines()[max(line - 1, 0)]):
            continue  # the end of a namespace: g++ reports it after it failed in a class
        errors.add((where, line))
        if (where, line) not in named:
            unnamed.append(f"{where}:{line}: {text}")
    lines = sum(len(path.read_bytes().splitlines()) for path in copy.rglob("*") if path.suffix in port.SUFFIXES)
    row = {
        "extension": name,
        "files": before.files,
        "lines": lines,
        "compiled": len(found),
        "errors": len(errors),
        "unnamed": len(set(unnamed)),
    }
    return row | {how: counts[how] for how in ("mechanical", "decision", "none", "follows")}, sorted(set(unnamed))


def compile_errors(path: Path, root: Path, headers: Path, target: str) -> list[tuple[str, int, str]]:
    """Return the errors of g++ in the files of a project: file, line, text."""
    folders = sorted(
        {
            folder
            for folder in (*path.parents, *(folder for x in root.rglob("*.h*") for folder in x.parents))
            if folder == root or root in folder.parents
        }
    )
    version = 2 << 56 | int(target.split(".")[1]) << 48
    command = [
        "g++",
        "-std=c++20",
        "-fsyntax-only",
        "-w",
        "-fmax-errors=0",
        f"-DTORCH_TARGET_VERSION={version}ULL",
        "-fopenmp",
        "-DUSE_CUDA",
        "-DTORCH_API_INCLUDE_EXTENSION_H",  # as torch.utils.cpp_extension does
    ]
    command += EXTRA + [
        f"-I{headers}",
        f"-idirafter{headers}/stubs",
        f"-I{sysconfig.get_path('include')}",
        # After the system's: an extension may have an assert.h, which <cassert> must not include.
        *(f"-{'iquote' if hides_system(folder) else 'idirafter'}{folder}" for folder in folders),
    ]
    command += [f"-I{folder}" for folder in ("/usr/local/cuda/include",) if Path(folder).is_dir()]
    output = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False).stderr
    found, required, pending, last = [], None, None, (str(path), 0)
    for line in output.splitlines():
        match = re.match(r"(/[^:]+):(\d+):(?:\d+:)?\s*(.*)", line)
        if not match:
            continue
        where, number, text = os.path.normpath(match[1]), int(match[2]), match[3]
        inside = root in Path(where).parents
        if "required" in text and inside:
            required = required or (where, number)  # g++ prints the innermost line first
        elif pending and inside and ("in expansion of macro" in text or "required" in text):
            found.append((where, number, pending))
            pending = None
        elif text.startswith(("error:", "fatal error:")):
            last = required or last
            if inside:
                found.append((where, number, text))
            elif required:
                found.append((*required, text))
            else:
                pending = text
            required = None
    if pending:
        found.append((*last, pending))  # it belongs to the instance of a template in the last error
    return found


def hides_system(folder: Path) -> bool:
    """Tell whether a folder has a header named as one of the system's: it is meant by "" then, and the other by <>."""
    return any((Path("/usr/include") / path.name).exists() for path in folder.glob("*.h"))


def _is_for_cpu(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    if any(part in OTHER_DEVICES or part in ("test", "tests", "build", "examples", "dev") for part in parts):
        return False
    return "cuda" not in path.stem.lower() and re.search(rb"torch|ATen|c10", path.read_bytes()) is not None


def stable_headers(folder: Path, include: Path | None = None) -> Path:
    """Return a folder with the headers of the stable ABI, and no other headers of torch."""
    stable = folder / "stable"
    if include is None:
        import torch

        include = Path(torch.__file__).parent / "include"
    for name in ("stable", "inductor/aoti_torch/c", "inductor/aoti_torch/generated", "../headeronly"):
        name = f"torch/csrc/{name}".replace("csrc/../", "")
        (stable / name).parent.mkdir(parents=True, exist_ok=True)
        if not (stable / name).exists():
            (stable / name).symlink_to(include.resolve() / name)
    for name, text in STUBS.items():
        (stable / "stubs" / name).parent.mkdir(parents=True, exist_ok=True)
        (stable / "stubs" / name).write_text(text)
    return stable


def _port_module() -> ModuleType:
    """Import the sources beside this file, with no need to build the package."""
    package = ModuleType("muladd_nb")
    package.__path__ = [str(ROOT / "muladd_nb")]
    sys.modules["muladd_nb"] = package
    return importlib.import_module("muladd_nb._port")


if __name__ == "__main__":
    sys.exit(main())
