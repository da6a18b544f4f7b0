"""Building and loading the kernels for ExecuTorch: for the right version, and for the selected operators only."""

import importlib.metadata
import json
import re
import sys
from pathlib import Path

import conftest
import pytest
import torch
from calls import OPERATORS
from conftest import pretend_to_install
from exported import Both, built, ops, pte, python, with_executorch
from generated import QUICKLY, install, run

import muladd_nb
import muladd_nb.executorch
from muladd_nb.__main__ import main
from muladd_nb._layer import executorch

ROOT = Path(__file__).parent.parent
BUILD_SCRIPT = ROOT / "src/elementwise/executorch/select_operators.py"
OURS = [call.form.op.name() for call in OPERATORS if call.returns_out]
OF_THIS_PROJECT = ["muladd_nb", str(ROOT), *OURS]
PINNED = re.search(r'"executorch==([^"]+)"', (ROOT / "pyproject.toml").read_text())[1]


def test_one_version_is_built_documented_and_tested():
    for text in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / ".ci" / "run"):
        assert set(re.findall(r"executorch==([\d.]+\d)", text.read_text())) <= {PINNED}, text
    assert muladd_nb.build_info()["executorch_version"] in (None, PINNED)


def configure(folder, *args, project=OF_THIS_PROJECT):
    """Run the build's script with only the packages in `folder`."""
    code = f"import sys, runpy; sys.path.append({str(folder)!r}); runpy.run_path({str(BUILD_SCRIPT)!r})"
    return conftest.run(sys.executable, "-I", "-S", "-c", code, *project, *args)


@pytest.mark.parametrize(
    ("version", "args", "says"),
    [
        (None, [], f"needs executorch=={PINNED} to build with -Dexecutorch=enabled, but it is not installed: run"),
        ("1.4.0", [], f"executorch=={PINNED} to build with -Dexecutorch=enabled, but 1.4.0 is installed: run"),
        (PINNED, [], "but pyyaml, which its code generator needs, is not installed: run 'pip install pyyaml'"),
    ],
)
def test_what_the_build_needs_is_named(tmp_path, version, args, says):
    if version:
        pretend_to_install(tmp_path, "executorch", version)
    run = configure(tmp_path, *args)
    assert run.returncode == 1
    assert says in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_a_project_needs_an_out_variant(tmp_path):
    run = configure(tmp_path, project=["my_ops", str(ROOT)])
    assert run.returncode == 1
    assert run.stderr.startswith("ExecuTorch calls out variants, but there is none: give an operator the form `out`")


@with_executorch
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--operators", "muladd_nb::nothing.out"], "muladd_nb::nothing.out is none of the operators muladd_nb::mymul"),
        (["--model", "missing.pte"], "there is no file missing.pte"),
        (["--model", "random.pte"], "gen_oplist cannot read random.pte; is it an ExecuTorch program?"),
        (["--model", "sine.pte"], f"sine.pte uses none of the operators {', '.join(OURS)}"),
    ],
)
def test_a_selection_that_cannot_be_is_refused(tmp_path, args, says):
    class Sine(torch.nn.Module):
        def forward(self, x):
            return x.sin()

    (tmp_path / "random.pte").write_bytes(bytes(range(200)))
    (tmp_path / "sine.pte").write_bytes(pte(Sine(), (torch.ones(2),)))
    run = conftest.run(sys.executable, BUILD_SCRIPT, *OF_THIS_PROJECT, *args, cwd=tmp_path)
    assert run.returncode == 1
    assert says in run.stderr
    assert len(run.stderr.splitlines()) == 1


@with_executorch
def test_only_selected_operators_are_registered(tmp_path):
    class One(torch.nn.Module):
        def forward(self, a, b):
            return ops.mymul(a, b)

    args = torch.ones(2), torch.ones(2)
    (tmp_path / "one.pte").write_bytes(pte(One(), args))
    (tmp_path / "both.pte").write_bytes(pte(Both(), args))
    code = """
import ctypes, sys
from executorch.runtime import Runtime
ctypes.CDLL(sys.argv[1])
print(sorted(name for name in Runtime.get().operator_registry.operator_names if name.startswith("muladd_nb::")))
for path in ("one.pte", "both.pte"):
    try:
        Runtime.get().load_program(path).load_method("forward")
        print(path, "loads")
    except RuntimeError as error:
        print(path, error)
"""
    build = tmp_path / "build"
    target = "src/elementwise/executorch/libmuladd_nb_executorch.so"
    common = ["-Dexecutorch=enabled", "-Dcuda=disabled", "-Dwerror=true", "-Dnative=true", "-Doptimization=1"]
    for selection, registered, one, missing in (
        ("-Dexecutorch_operators=muladd_nb::mymuladd.out", "mymuladd.out", "Failed to load method", "mymul.out"),
        (f"-Dexecutorch_model={tmp_path / 'one.pte'}", "mymul.out", "loads", "mymuladd.out"),
    ):
        forget = ["-Dexecutorch_operators="] if build.exists() else []
        again = ["--reconfigure"] if build.exists() else []
        for command in (
            ["meson", "setup", *again, build, ROOT, *common, *forget, selection],
            ["ninja", "-C", build, target],
        ):
            run(*command, cwd=tmp_path)
        ran = python(code, str(build / target), cwd=tmp_path)
        lines = ran.stdout.splitlines()
        assert lines[0] == f"['muladd_nb::{registered}']"
        assert one in lines[1]
        assert lines[2] == "both.pte Failed to load method forward, error: 0x:14"
        assert re.search(rf"Missing operator: \[\d\] muladd_nb::{missing}", ran.stderr)
        assert f"muladd_nb::{registered}" not in ran.stderr


@with_executorch
def test_a_copy_of_the_library_may_have_come_first(tmp_path):
    copy = tmp_path / "copy.so"
    copy.write_bytes(Path(muladd_nb.executorch.library_path()).read_bytes())
    code = f"""
import ctypes, executorch.runtime, muladd_nb.executorch
ctypes.CDLL({str(copy)!r})
muladd_nb.executorch.load()
print("well")
"""
    assert python(code).stdout.strip() == "well"


OF_A_PROJECT = """
import sys, torch
from executorch.exir import to_edge
import my_ops, my_ops.executorch
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x, gate, weight):
        my_ops.scale(x, 2.0, out=gate)
        of_rows = my_ops.norm(x, [3], weight), my_ops.norm(x, [4, 3], None), my_ops.mean(x), my_ops.mean(x, 1, True)
        return my_ops.scale(x, 0.1), my_ops.gated(weight, x, gate), my_ops.gated(None, x, gate), *of_rows

n = torch.export.Dim("n", min=1, max=9)
args = torch.randn(2, 4, 3), torch.randn(2, 4, 3), torch.randn(3)
program = torch.export.export(Model(), args, dynamic_shapes=({0: n}, {0: n}, {}))
my_ops.executorch.load()
my_ops.executorch.load()
of_runtime = Runtime.get().load_program(to_edge(program).to_executorch().buffer)  # owns the bytes that the method reads
method = of_runtime.load_method("forward")
for args in args, (torch.randn(9, 4, 3), torch.randn(9, 4, 3), torch.randn(3)):
    for of_program, of_eager in zip(method.execute(args)[-7:], Model()(*args), strict=True):
        assert torch.equal(of_program, of_eager)
print(sorted(name for name in Runtime.get().operator_registry.operator_names if name.startswith("my_ops")))
"""


@with_executorch
def test_the_operators_of_a_project_run_in_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schemas = ["scale(Tensor x, float by) -> Tensor", "gated(Tensor? weight, Tensor x, Tensor gate) -> Tensor"]
    of_rows = [
        "norm(Tensor x, SymInt[] normalized_shape, Tensor? weight) -> Tensor",
        "mean(Tensor x, int dim=-1, bool keepdim=False) -> Tensor",
    ]
    assert main(["new", "my_ops", *schemas]) == 0
    monkeypatch.chdir(tmp_path / "my_ops")
    assert main(["add", "--rows", *of_rows]) == 0
    entries = tmp_path / "my_ops/src/operators.h"
    entries.write_text(entries.read_text().replace(" | differentiable", ""))  # derivatives take long to compile
    install(tmp_path / "my_ops", tmp_path / "site", *QUICKLY, "--config-settings=setup-args=-Dexecutorch=enabled")
    printed = run(sys.executable, "-c", OF_A_PROJECT, cwd="/", PYTHONPATH=str(tmp_path / "site"))
    assert (
        printed.splitlines()[-1] == "['my_ops::gated.out', 'my_ops::mean.out', 'my_ops::norm.out', 'my_ops::scale.out']"
    )


@with_executorch
def test_an_edit_of_the_operators_configures_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my_ops", "scale(Tensor x, float by) -> Tensor"]) == 0
    monkeypatch.chdir("my_ops")
    conftest.run("meson", "setup", tmp_path / "build", "-Dexecutorch=enabled", "-Dcuda=disabled", cwd=".")
    configure_again = ["ninja", "-C", tmp_path / "build", "build.ninja"]
    assert main(["add", "Neg2(Tensor x) -> Tensor"]) == 0
    assert conftest.run(*configure_again).returncode == 0
    made = json.loads((tmp_path / "build/src/elementwise/executorch/executorch.json").read_text())
    assert made["operators"] == "my_ops::scale.out,my_ops::Neg2.out"
    with Path("src/operators.h").open("a") as entries:
        entries.write("#error A mistake of the author\n")
    assert "error: #error A mistake of the author" in conftest.run(*configure_again).stdout


def test_executorch_that_is_missing_or_another_one_is_named(monkeypatch):
    def not_there(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(executorch, "built", lambda: executorch.Built("1.5.1", []))
    monkeypatch.setattr(importlib.metadata, "version", not_there)
    with pytest.raises(ImportError, match=r"needs executorch 1\.5\.1: run 'pip install --no-deps executorch==1\.5\.1'"):
        muladd_nb.executorch.load()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.6.0")
    with pytest.raises(ImportError, match=r"built with executorch 1\.5\.1, but executorch 1\.6\.0 is installed: run"):
        muladd_nb.executorch.load()


@pytest.mark.skipif(built, reason="muladd_nb was built with ExecuTorch")
def test_a_package_without_the_kernels_says_how_to_build_them():
    for function in (muladd_nb.executorch.load, muladd_nb.executorch.library_path):
        with pytest.raises(
            ImportError, match=r"built without kernels for ExecuTorch: .* -Csetup-args=-Dexecutorch=enabled"
        ):
            function()
    # _new has sources for such a build, which `muladd-nb new` copies, but nothing that it has built.
    files = [str(file) for file in importlib.metadata.files("muladd_nb") if "_new" not in file.parts]
    assert [file for file in files if "executorch" in file and not file.endswith((".py", ".pyc"))] == []
