"""``muladd-nb update``: a project's copies become those of this package, and what is the author's stays."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from ten import KERNEL, POPCOUNT, SOFTCLIP

from muladd_nb import _build_info
from muladd_nb.__main__ import main
from muladd_nb._new import _write
from muladd_nb._new._copies import RECORD

# As the projects have them that were written before there was a record.
NOTE = "Copied from muladd_nb 0.1.0, BSD-3-Clause (licenses/muladd_nb.txt); not to be edited.\n"
TESTS = ["tests/cases.py", "tests/conftest.py"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my_ops", SOFTCLIP]) == 0
    monkeypatch.chdir(tmp_path / "my_ops")
    assert main(["add", "--kernel", KERNEL]) == 0
    return Path()


def contents():
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def recorded(project):
    return [line.partition("  ")[2] for line in (project / RECORD).read_text().splitlines() if line[0] != "#"]


def record_anew(project, *more):
    """Write the record of what is there now."""
    head = "".join(line for line in (project / RECORD).read_text().splitlines(keepends=True) if line[0] == "#")
    names = sorted(name for name in {*recorded(project), *more} if (project / name).exists())
    sums = subprocess.run(["sha256sum", *names], capture_output=True, text=True, check=True).stdout
    (project / RECORD).write_text(head + sums)


def make_older(project):
    """Make the layer another one than it is, as one of before would be, and of the same record."""
    header, test = Path("src/elementwise/contract.h"), Path("tests/cases.py")
    header.write_text(header.read_text().replace("#pragma once", "#pragma once // before"))
    test.write_text(test.read_text().replace("class Case", "class CaseOfBefore"))
    Path("src/elementwise/own_kernel/rows.h").unlink()  # there is one now
    old = ["src/elementwise/old/before.h", "python/my_ops/_layer/before.py"]  # there was one
    for name in old:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("before\n")
    record_anew(project, *old)


def test_what_is_copied_is_renewed_and_the_rest_is_left_alone(project, capsys):
    after = contents()
    make_older(project)
    before = contents()
    capsys.readouterr()
    assert main(["update", "--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert contents() == before
    assert main(["update"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[:-1]
        == printed[:-1]
        == [
            "removed python/my_ops/_layer/before.py",
            "renewed src/elementwise/contract.h",
            "removed src/elementwise/old/before.h",
            "added   src/elementwise/own_kernel/rows.h",
            "renewed tests/cases.py",
        ]
    )
    assert contents() == after
    assert not Path("src/elementwise/old").exists()
    assert os.access("src/elementwise/tools/audit_wheel", os.X_OK)
    assert main(["update"]) == 0
    assert capsys.readouterr().out == "Nothing has changed.\n"
    assert subprocess.run(["sha256sum", "--check", "--quiet", RECORD]).returncode == 0


def test_a_project_that_has_no_record_is_adapted(project, capsys):
    """It was written by a muladd_nb in which the layer stood in other folders, by other names."""
    after = contents()
    folders = {"python/my_ops/_layer": "python/my_ops/_register", "src/elementwise/tests": "tests/kernels/cuda"}
    folders["src/elementwise/own_kernel"] = "src/elementwise/plain"
    moved = {f"src/elementwise/tools/{name}": f"tools/{name}" for name in ("audit_wheel", "repair_wheel")}
    moved |= {f"python/my_ops/_layer/{name}.py": f"python/my_ops/_{name}.py" for name in ("load", "torch_private")}
    for name in recorded(project):
        path = Path(name)
        if (path.suffix in (".py", ".h", ".cpp", ".build") and path.parts[0] != "tests") or name in moved:
            first, rest = re.fullmatch(r"(#!.*\n)?([\s\S]*)", path.read_text()).groups(default="")
            path.write_text(f"{first}{'//' if path.suffix in ('.h', '.cpp') else '#'} {NOTE}{rest}")
    for now, before in [*moved.items(), *folders.items()]:
        Path(before).parent.mkdir(parents=True, exist_ok=True)
        Path(now).rename(before)
    Path(RECORD).unlink()
    replaced = [
        (r"\._layer import torch_private", " import _torch_private"),
        (r"\b_layer\b", "_register"),
        (r"src/elementwise/tools/(?=audit|repair)", "tools/"),
        (r"src/elementwise/tests", "tests/kernels/cuda"),
        (r"elementwise/own_kernel/", "elementwise/plain/"),
        (r"elementwise::compute_t", "elementwise::computed_t"),
        (r"\b(cuda_)?own_kernels\b", r"\1kernels_of_its_own"),
        (
            r"using elementwise::differentiable, elementwise::Operator;\nusing (.*);",
            r"using \1, elementwise::Operator;",
        ),
    ]
    for name in after.keys() - {RECORD}:
        if Path(name).exists():
            text = Path(name).read_text()
            for now, before in replaced:
                text = re.sub(now, before, text)
            Path(name).write_text(text)
    before = contents()
    capsys.readouterr()
    for command in (["add", POPCOUNT], ["update"]):
        assert main(command) == 2
    add, update = capsys.readouterr().err.splitlines()
    assert add.endswith("run 'muladd-nb update' first")
    assert f"there is no {RECORD}" in update and "'muladd-nb update --overwrite'" in update
    assert contents() == before
    assert main(["update", "--overwrite"]) == 0
    assert contents() == after
    assert main(["add", POPCOUNT]) == 0


def test_the_file_of_a_kernel_of_ones_own_follows_what_forms_are_called(project):
    file = Path("python/my_ops/_own.py")
    import_of, call = "from ._layer.operator import {}Form\n", 'FORM = Form("own(Tensor x)", {}, OP, DTYPES)\n'
    file.write_text(import_of.format("FUNCTIONAL, ") + call.format("FUNCTIONAL"))
    assert main(["update"]) == 0
    assert file.read_text() == import_of.format("") + call.format('"functional"')


def test_a_file_keeps_its_line_ends(project):
    """In a checkout with the line ends of Windows; `add` changes what is the author's, `update` what is not."""
    for path in contents():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert main(["add", "scale(Tensor x, float c) -> Tensor"]) == 0
    layer = project / "python/my_ops/_layer/vmap.py"
    layer.write_text("older\r\n")
    assert main(["update", "--overwrite"]) == 0
    added = {path for path in contents() if b"\r\n" not in path.read_bytes()}
    assert not [path for path in added if path.read_bytes()]
    for path in contents():
        assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n"), path
    assert b"scale" in (project / "src/operators.h").read_bytes()
    assert len(layer.read_bytes()) > 100


def refused(capsys, *command):
    before = contents()
    capsys.readouterr()
    assert main(command or ["update"]) == 2
    assert contents() == before
    return capsys.readouterr().err.strip()


def test_what_was_edited_is_named_and_kept_until_it_is_told_otherwise(project, capsys):
    make_older(project)
    edited = ["src/elementwise/contract.h", *TESTS]
    for name in edited:
        Path(name).write_text(Path(name).read_text() + "\n")
    Path("src/elementwise/math/power.h").unlink()
    said = refused(capsys)
    assert {*re.findall(r"[\w/]+\.\w+", said.partition(": not as copied")[0])} == {
        *edited,
        "src/elementwise/math/power.h",
    }
    assert said.endswith("run 'muladd-nb update --overwrite', and see in your version control what it has changed")
    assert main(["update", "--overwrite"]) == 0
    assert Path("src/elementwise/math/power.h").exists()


def test_an_authors_file_of_the_name_of_a_new_copy_is_kept(project, capsys):
    make_older(project)
    Path("src/elementwise/own_kernel/rows.h").write_text("mine\n")
    assert "src/elementwise/own_kernel/rows.h: there is to be a copy of this name; rename yours" in refused(capsys)


def test_a_newer_layer_and_a_broken_record_are_refused(project, capsys):
    record = Path(RECORD).read_text()
    Path(RECORD).write_text(record.replace(f"muladd_nb {_build_info.VERSION}", "muladd_nb 99.0"))
    for command in (["update"], ["update", "--overwrite"], ["add", POPCOUNT]):
        assert "has the layer of muladd_nb 99.0, which is newer" in refused(capsys, *command)
    Path(RECORD).write_text(record.replace("  src", " src"))
    assert f"{RECORD} is not as 'muladd-nb' wrote it" in refused(capsys)
    Path(RECORD).write_text(record)
    Path("src/operators.h").unlink()
    assert "this folder is no project" in refused(capsys)


@pytest.mark.parametrize("at", [0, 3, 7])
def test_where_one_file_cannot_be_written_all_are_as_they_were(project, capsys, monkeypatch, at):
    make_older(project)
    move, moved = _write._move, []

    def broken(path, to):
        if len(moved) == at:
            moved.append(path)
            raise OSError(28, "No space left on device")
        moved.append(path)
        move(path, to)

    monkeypatch.setattr(_write, "_move", broken)
    assert "cannot be written: No space left on device" in refused(capsys)
