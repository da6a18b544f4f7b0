"""Check that a project's tests notice each mistake of the table: a few tests must fail, and name the operator.

A project with an operator of each kind is written and built once, and one for each operator over rows. A mistake in
Python is copied over the installed file, one in C++ is compiled, and one in CUDA is tested by the test that runs CUDA
kernels on the host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rows
from table import TABLE

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "over_rows"))
import project as over_rows
from ten import write_project

MOST = 10  # the most tests that may fail for one mistake
ON_HOST = "CUDA kernels of one's own on the host"


class Project:
    """A project, its build folder and its installed files."""

    def __init__(self, folder: Path, sources: Path) -> None:
        self.sources, self.build, self.site = sources, folder / "build", folder / "site"
        pip = [sys.executable, "-m", "pip"]
        options = ["--no-build-isolation", "--no-deps", "--quiet"]
        settings = [f"-Csetup-args=-D{option}" for option in ("cuda=disabled", "optimization=1", "native=true")]
        run(*pip, "install", *options, *settings, f"-Cbuild-dir={self.build}", f"--target={self.site}", self.sources)
        self.module = self.site / sources.name / "_C.abi3.so"
        self.compiled = self.module.read_bytes()

    def install(self, file: str) -> None:
        if file.endswith(".py"):
            shutil.copy(self.sources / file, self.site / file.removeprefix("python/"))
        elif not file.endswith(".cu"):
            run("meson", "compile", "-C", self.build)
            shutil.copy(self.build / "_C.abi3.so", self.module)

    def restore(self, file: str) -> None:
        if file.endswith(".py"):
            self.install(file)
        else:  # the restored file is compiled with the next mistake
            self.module.write_bytes(self.compiled)

    def test(self, file: str, operator: str) -> tuple[int, str]:
        """Return how many tests fail, and the last lines of what they print."""
        if file.endswith(".cu"):
            command = ["meson", "test", "-C", self.build, "--print-errorlogs", ON_HOST]
            printed = run(*command, PYTHONPATH=str(self.site), check=False)
            return int(re.search(r"^Fail: +(\d+)", printed, re.MULTILINE)[1]), printed
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-k", operator]
        printed = run(*command, cwd=self.sources, PYTHONPATH=str(self.site), COLUMNS="200", check=False)
        # If the process ended, pytest printed no summary. It does if it stops at the first failure.
        if "Fatal Python error" in printed:
            printed = run(*command, "-x", cwd=self.sources, PYTHONPATH=str(self.site), COLUMNS="200", check=False)
        counted = re.search(r"(\d+) failed", printed)
        if counted is None and not re.search(r"\d+ passed", printed):
            sys.exit(printed)
        return int(counted[1]) if counted else 0, printed


def run(*command: object, cwd: Path | None = None, check: bool = True, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout + done.stderr


def main() -> None:
    chosen = [row for row in TABLE if row[0] in (sys.argv[1:] or row)]
    chosen_rows = [row for row in rows.TABLE if row[0] in (sys.argv[1:] or row)]
    with tempfile.TemporaryDirectory() as folder:
        unseen = plant(Project(Path(folder), write_project(Path(folder))), chosen, ["", ".cu"]) if chosen else []
    # A mistake in a functor or in the layer compiles every operator of a project again, so each has its own.
    for operator in dict.fromkeys(row[0] for row in chosen_rows):
        with tempfile.TemporaryDirectory() as folder:
            sources = over_rows.write_project(Path(folder), operator)
            of_operator = [row for row in chosen_rows if row[0] == operator]
            unseen += plant(Project(Path(folder), sources), of_operator, [""])
    if unseen:
        sys.exit(f"mistakes that no test sees, or too many, or without the operator's name: {unseen}")
    print(f"all {len(chosen) + len(chosen_rows)} mistakes are seen")


def plant(project: Project, table: list[tuple[str, str, str, str]], without: list[str]) -> list[str]:
    """Return the mistakes of a table that the tests of a project do not see as they should."""
    for file in without:
        failed, printed = project.test(file, "")
        if failed:
            sys.exit(f"without a mistake:\n{printed}")
    unseen = []
    for number, (operator, file, right, wrong) in enumerate(table, 1):
        path, start = project.sources / file, time.monotonic()
        text = path.read_text()
        if text.count(right) != 1:
            sys.exit(f"mistake {number}: {file} has {text.count(right)} places for {right!r}, not one")
        path.write_text(text.replace(right, wrong))
        project.install(file)
        failed, printed = project.test(file, operator)
        path.write_text(text)
        project.restore(file)
        few = failed <= MOST or "/elementwise/" in file  # a mistake in the layer may fail every test
        seen = failed > 0 and few and operator in "\n".join(printed.strip().splitlines()[-20:])
        what = f"{number:2} {operator:16} {file:32} {failed:2} tests fail, {time.monotonic() - start:3.0f} s"
        print(what if seen else f"{what}: NOT SEEN as it should be\n{printed[-3000:]}", flush=True)
        unseen += [] if seen else [f"{number} {operator}"]
    return unseen


if __name__ == "__main__":
    main()
