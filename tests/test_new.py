"""``muladd-nb new``: the project it writes can be installed and passes its own tests; bad names write nothing."""

import os
import subprocess
import sys

import pytest

from muladd_nb.__main__ import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command, cwd, **environment):
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("cuda", ["false", pytest.param("nvcc", marks=pytest.mark.whole)])
def test_the_project_installs_and_passes_its_tests(folder, cuda):
    assert main(["new", "signal_ops", "--operator", "modulate"]) == 0
    project, site = folder / "signal_ops", folder / "site"
    compilers = folder / "compilers.ini"
    compilers.write_text(f"[binaries]\ncuda = '{cuda}'\n")
    # What it builds with is here already: pip need not fetch a torch of its own.
    pip = ["pip", "install", "--no-build-isolation", "--no-deps", f"-Csetup-args=--native-file={compilers}"]
    run(*pip, f"--target={site}", ".", cwd=project)
    assert (site / "signal_ops" / "_C.abi3.so").exists()
    run("pytest", "-q", cwd=project, PYTHONPATH=str(site))
    run("doctest", "README.md", cwd=project, PYTHONPATH=str(site))


def test_only_the_names_of_the_user_are_left(folder):
    assert main(["new", "signal_ops", "--operator", "modulate"]) == 0
    files = [path for path in (folder / "signal_ops").rglob("*") if path.is_file()]
    assert {"library.cpp", "cpu.cpp", "cuda.cu", "module.cpp", "meson.build", "test_modulate.py"} <= {
        f.name for f in files
    }
    for name in ("my_ops", "mymul", "muladd"):
        assert not [file for file in files if name in file.read_text() or name in str(file.relative_to(folder))]


@pytest.mark.parametrize(
    "name", ["1st", "my-ops", "my ops", "größe", "_ops", "ops_", "", "class", "../ops", "torch", "json", "aten"]
)
@pytest.mark.parametrize("which", ["package", "operator"])
def test_bad_names_are_refused(folder, capsys, name, which):
    arguments = [name] if which == "package" else ["signal_ops", "--operator", name]
    assert main(["new", *arguments]) == 2
    sentence = capsys.readouterr().err
    assert sentence.startswith(f"muladd-nb new: the name of the {which} must ")
    assert sentence.endswith(f"got {name!r}\n")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("existing", ["file", "folder"])
def test_what_exists_is_left_alone(folder, capsys, existing):
    taken = folder / "signal_ops"
    taken.mkdir() if existing == "folder" else taken.touch()
    assert main(["new", "signal_ops"]) == 2
    assert "signal_ops exists already" in capsys.readouterr().err
    assert list(folder.rglob("*")) == [taken]
