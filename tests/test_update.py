"""``muladd-nb update`` replaces the copies in a project, and keeps the author's files."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from generated import contents, recorded
from ten import KERNEL, POPCOUNT, SOFTCLIP

from muladd_nb import _build_info
from muladd_nb.__main__ import main
from muladd_nb._new import _write
from muladd_nb._new._copies import RECORD


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my_ops", SOFTCLIP]) == 0
    monkeypatch.chdir(tmp_path / "my_ops")
    assert main(["add", "--kernel", KERNEL]) == 0
    return Path()


def record_anew(project, *more):
    """Write the record of the present files."""
    head = "".join(line for line in (project / RECORD).read_text().splitlines(keepends=True) if line[0] == "#")
    names = sorted(name for name in {*recorded(project), *more} if (project / name).exists())
    sums = subprocess.run(["sha256sum", *names], capture_output=True, text=True, check=True).stdout
    (project / RECORD).write_text(head + sums)


def make_older(project):
    """Change the layer as if it were older, with a matching record."""
    header, test = Path("src/elementwise/contract.h"), Path("tests/cases.py")
    header.write_text(header.read_text().replace("#pragma once", "#pragma once // before"))
    test.write_text(test.read_text().replace("class Case", "class CaseOfBefore"))
    Path("src/elementwise/rows/task.h").unlink()  # a file that only the new layer has
    old = ["src/elementwise/old/before.h", "python/my_ops/_layer/before.py"]  # files that only the old layer has
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
    told = capsys.readouterr().out.splitlines()
    assert told[:-1] == printed[:-1]
    assert told[:-1] == [
        "removed python/my_ops/_layer/before.py",
        "renewed src/elementwise/contract.h",
        "removed src/elementwise/old/before.h",
        "added   src/elementwise/rows/task.h",
        "renewed tests/cases.py",
    ]
    assert contents() == after
    assert not Path("src/elementwise/old").exists()
    assert os.access("src/elementwise/tools/audit_wheel", os.X_OK)
    assert main(["update"]) == 0
    assert capsys.readouterr().out == "Nothing has changed.\n"
    assert subprocess.run(["sha256sum", "--check", "--quiet", RECORD]).returncode == 0


def test_a_project_that_lost_its_record_is_renewed_only_where_that_is_asked_for(project, capsys):
    after = contents()
    Path(RECORD).unlink()
    Path("tests/cases.py").write_text("older\n")
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


def test_a_file_keeps_its_line_ends(project):
    """A checkout with the line ends of Windows keeps them, both in the author's files and in the copies."""
    for name, content in contents().items():
        Path(name).write_bytes(content.replace(b"\n", b"\r\n"))
    assert main(["add", "scale(Tensor x, float c) -> Tensor"]) == 0
    layer = project / "python/my_ops/_layer/vmap.py"
    layer.write_text("older\r\n")
    assert main(["update", "--overwrite"]) == 0
    for name, content in contents().items():
        assert content.count(b"\n") == content.count(b"\r\n"), name
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
    edited = ["src/elementwise/contract.h", "tests/cases.py", "tests/conftest.py"]
    for name in edited:
        Path(name).write_text(Path(name).read_text() + "\n")
    Path("src/elementwise/math/power.h").unlink()
    said = refused(capsys)
    assert {*re.findall(r"[\w/]+\.\w+", said.partition(": not as copied")[0])} == {
        *edited,
        "src/elementwise/math/power.h",
    }
    assert said.endswith("run 'muladd-nb update --overwrite', and look at the changes in your version control")
    assert main(["update", "--overwrite"]) == 0
    assert Path("src/elementwise/math/power.h").exists()


def test_an_authors_file_of_the_name_of_a_new_copy_is_kept(project, capsys):
    make_older(project)
    Path("src/elementwise/rows/task.h").write_text("mine\n")
    assert "src/elementwise/rows/task.h: the update has a copy of this name; rename your file" in refused(capsys)


def test_a_newer_layer_and_a_broken_record_are_refused(project, capsys):
    record = Path(RECORD).read_text()
    Path(RECORD).write_text(record.replace(f"muladd_nb {_build_info.VERSION}", "muladd_nb 99.0"))
    for command in (["update"], ["update", "--overwrite"], ["add", POPCOUNT]):
        assert "has the layer of muladd_nb 99.0, which is newer" in refused(capsys, *command)
    Path(RECORD).write_text(record.replace("  src", " src"))
    assert f"{RECORD} is not as 'muladd-nb' wrote it" in refused(capsys)
    Path(RECORD).write_bytes(b"\xff" + record.encode())
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
    assert f"{project.resolve()} cannot be written: No space left on device" in refused(capsys)


@pytest.mark.parametrize("at", [0, 1, 2, 7])
@pytest.mark.parametrize("command", [["update"], ["add", POPCOUNT], ["remove", "softclip"]], ids=lambda x: x[0])
def test_where_it_is_interrupted_all_files_are_as_they_were(project, monkeypatch, command, at):
    if command == ["update"]:
        make_older(project)
    before, move, moved = contents(), _write._move, []

    def interrupted(path, to):
        moved.append(path)
        move(path, to)
        if len(moved) == at + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(_write, "_move", interrupted)
    assert main(command) == 130
    assert contents() == before
