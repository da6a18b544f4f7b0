"""ExecuTorch: an exported model has the bits of eager, in Python and in C++; and what is said when it cannot run."""

import doctest
import importlib.metadata
import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import muladd_nb
import muladd_nb.executorch
from muladd_nb import _build_info

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "executorch"
BUILD_SCRIPT = ROOT / "tools" / "executorch_build.py"
PINNED = re.search(r'"executorch==([^"]+)"', (ROOT / "pyproject.toml").read_text())[1]

installed = importlib.util.find_spec("executorch") is not None
built = muladd_nb.build_info()["executorch_version"] is not None
with_executorch = pytest.mark.skipif(
    not (installed and built), reason="executorch is not installed, or muladd_nb was built without it"
)
ops = torch.ops.muladd_nb


class Both(torch.nn.Module):
    def forward(self, a, b):
        return ops.mymul(ops.mymuladd(a, b, 0.1), b)


def pte(model, args, dynamic_shapes=None):
    """The .pte of `model`, as bytes."""
    from executorch.exir import to_edge

    program = torch.export.export(model.eval(), args, dynamic_shapes=dynamic_shapes)
    return to_edge(muladd_nb.executorch.functional(program)).to_executorch().buffer


def forward(program):
    from executorch.runtime import Runtime

    muladd_nb.executorch.load()
    program = Runtime.get().load_program(program)
    method = program.load_method("forward")
    return lambda *args: (program, method.execute(args))[1]  # a method does not keep its program


def same_bits(x, y):
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.dtype == y.dtype and torch.equal(x.contiguous().view(integer), y.contiguous().view(integer))


def python(code, *args, cwd="/"):
    return subprocess.run([sys.executable, "-c", code, *args], cwd=cwd, capture_output=True, text=True, check=False)


# ---- The results.


@with_executorch
def test_the_bits_are_those_of_eager_at_every_dynamic_shape(dtype):
    rows = torch.export.Dim("rows", min=1, max=64)
    args = torch.randn(8, 5).to(dtype), torch.randn(8, 5).to(dtype)
    run = forward(pte(Both(), args, ({0: rows}, {0: rows})))
    for n in (8, 1, 64, 13):
        a, b = ((torch.randn(n, 5) * 10.0 ** torch.randint(-9, 5, (n, 5))).to(dtype) for _ in range(2))
        a[0, :3] = torch.tensor([0.0, -0.0, float("inf")])
        (result,) = run(a, b)
        assert same_bits(result, Both()(a, b))


@with_executorch
@pytest.mark.parametrize(
    "shape", [(), (0, 3), (1,), (7, 1, 5), (3, 2, 2, 2, 2, 3), (500, 301)], ids=lambda shape: "x".join(map(str, shape))
)
def test_every_shape(shape):
    a, b = torch.randn(shape), torch.randn(shape)
    (result,) = forward(pte(Both(), (a, b)))(a, b)
    assert result.shape == a.shape
    assert same_bits(result, Both()(a, b))


@with_executorch
def test_the_dim_orders_of_the_inputs_may_differ():
    a, b = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(2, 3, 4, 5)
    for x, y in ((a, b), (b, a), (a, a)):
        (result,) = forward(pte(Both(), (x, y)))(x, y)
        assert result.stride() == x.stride()
        assert same_bits(result, Both()(x, y))


@with_executorch
def test_the_mutating_operators_become_functional_ones():
    class Sums(torch.nn.Module):
        def forward(self, a, b, total):
            muladd_nb.mymuladd(a, b, 0.1, out=b)
            out = torch.zeros_like(a)
            ops.myadd_out(out=out, b=total, a=b)
            return out * 2

    args = [torch.randn(4, 3) for _ in range(3)]
    run = forward(pte(Sums(), tuple(args)))
    assert same_bits(run(*args)[-1], Sums()(*args))


# ---- What is wrong at run time, and in which words. ExecuTorch raises a number and logs the reason.


@with_executorch
def test_a_program_that_runs_before_the_kernels_are_loaded(tmp_path):
    (tmp_path / "both.pte").write_bytes(pte(Both(), (torch.ones(2), torch.ones(2))))
    code = """
import torch
from executorch.runtime import Runtime
program = Runtime.get().load_program("both.pte")
try:
    program.load_method("forward")
except RuntimeError as error:
    print(error)
import muladd_nb.executorch
muladd_nb.executorch.load()
muladd_nb.executorch.load()
print(program.load_method("forward").execute([torch.ones(2), torch.ones(2)]))
"""
    run = python(code, cwd=tmp_path)
    assert run.stdout.splitlines() == ["Failed to load method forward, error: 0x:14", "[tensor([1.1000, 1.1000])]"]
    assert "Missing operator: [0] muladd_nb::mymuladd.out" in run.stderr


@with_executorch
def test_wrong_arguments_are_refused_and_the_process_goes_on(capfd):
    n = torch.export.Dim("n", min=1, max=9)
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    run = forward(pte(Both(), (a, b), ({0: n}, {0: n})))
    for args, says in (
        ((a, torch.randn(5, 3)), "mymuladd.out: a and b must have the same shape, got [4, 3] and [5, 3]"),
        ((a.double(), b.double()), "Input 0 has unexpected scalar type: expected Float but was Double"),
        ((a, b.t().contiguous().t()), "Input 1 for method forward should be contiguous or channels-last"),
        ((a, b[:, 0].clone()), "Attempted to change the tensor rank which is immutable: old=2, new=1"),
        ((torch.randn(10, 3), torch.randn(10, 3)), "maximum capacity of 27 elements to 30 elements"),
        ((a,), "Invalid number of inputs provided. Expected 2, but got 1"),
    ):
        with pytest.raises(RuntimeError) as raised:
            run(*args)
        assert says in str(raised.value) + capfd.readouterr().err
    assert same_bits(run(a, b)[0], Both()(a, b))


@with_executorch
@pytest.mark.parametrize(
    ("result", "a", "says"),
    [
        ("a + b", torch.ones(3, dtype=torch.int32), "a must be float16, bfloat16, float32 or float64, got int32"),
        ("a + b", torch.ones(3, dtype=torch.bool), "a must be float16, bfloat16, float32 or float64, got bool"),
        ("(a + b)[:2]", torch.ones(3), "a and out must have the same shape, got [3] and [2]"),
        ("(a + b).double()", torch.ones(3), "a and out must have the same dtype, got float32 and float64"),
    ],
)
def test_a_program_that_only_the_kernel_refuses(tmp_path, capfd, result, a, says):
    # Registered from Python, without a check, the operator can be exported with anything.
    code = f"""
import torch
from executorch.exir import to_edge
for schema, function in (
    ("mymuladd(Tensor a, Tensor b, float c) -> Tensor", lambda a, b, c: {result}),
    ("mymuladd.out(Tensor a, Tensor b, float c, *, Tensor(a!) out) -> Tensor(a!)", lambda a, b, c, *, out: out),
):
    name, arguments = schema.split("(", 1)
    torch.library.define(f"muladd_nb::{{name}}", "(" + arguments)
    torch.library.impl(f"muladd_nb::{{name}}", "CompositeExplicitAutograd", function)
class Model(torch.nn.Module):
    def forward(self, a):
        return torch.ops.muladd_nb.mymuladd(a, a, 0.5)
program = torch.export.export(Model(), (torch.ones({list(a.shape)}, dtype={a.dtype}),))
open("model.pte", "wb").write(to_edge(program).to_executorch().buffer)
"""
    exported = python(code, cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    run = forward((tmp_path / "model.pte").read_bytes())
    with pytest.raises(RuntimeError, match="failed with error 0x12"):
        run(a)
    assert f"mymuladd.out: {says}" in capfd.readouterr().err


@with_executorch
def test_an_instruction_set_that_cannot_be_is_no_abort():
    code = f"""
import torch, muladd_nb.executorch
from executorch.runtime import Runtime
muladd_nb.executorch.load()
program = Runtime.get().load_program({pte(Both(), (torch.ones(2), torch.ones(2)))!r})
try:
    program.load_method("forward").execute([torch.ones(2), torch.ones(2)])
except RuntimeError as error:
    print(error)
"""
    run = python("import os; os.environ['MULADD_NB_SIMD'] = 'sse9'" + code)
    assert run.stdout.strip() == "method->execute() failed with error 0x12"
    assert "MULADD_NB_SIMD must be one of" in run.stderr


# ---- Loading.


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


def test_executorch_that_is_missing_or_another_one_is_named(monkeypatch):
    def not_there(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(_build_info, "EXECUTORCH_VERSION", "1.5.1")
    monkeypatch.setattr(importlib.metadata, "version", not_there)
    with pytest.raises(ImportError, match=r"needs executorch 1\.5\.1: run 'pip install --no-deps executorch==1\.5\.1'"):
        muladd_nb.executorch.load()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.6.0")
    with pytest.raises(ImportError, match=r"built with executorch 1\.5\.1, but executorch 1\.6\.0 is installed: run"):
        muladd_nb.executorch.load()


@pytest.mark.skipif(built, reason="muladd_nb was built with ExecuTorch")
def test_a_package_without_the_kernels_says_how_to_build_them():
    for function in (muladd_nb.executorch.load, muladd_nb.executorch.library_path):
        with pytest.raises(ImportError, match=r"built without kernels for ExecuTorch: .* -Dexecutorch=enabled"):
            function()
    files = [str(file) for file in importlib.metadata.files("muladd_nb")]
    assert [file for file in files if "executorch" in file and not file.endswith((".py", ".pyc"))] == []


@with_executorch
def test_docstrings():
    names = {"muladd_nb": muladd_nb, "torch": torch}
    result = doctest.testmod(muladd_nb.executorch, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


# ---- The build.


def test_schemas_are_those_of_torch():
    text = (ROOT / "src" / "executorch" / "custom_ops.yaml").read_text()
    schemas = re.findall(r"^- func: (.+)$", text, re.MULTILINE)
    assert schemas == [str(ops.mymuladd.out._schema), str(ops.mymul.out._schema)]


def install(folder, package, version):
    (folder / f"{package}-{version}.dist-info").mkdir(parents=True)
    (folder / f"{package}-{version}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    )
    (folder / package).mkdir()


def configure(folder, *args):
    """Run the build's script with the packages in `folder` alone."""
    code = f"import sys, runpy; sys.path.append({str(folder)!r}); runpy.run_path({str(BUILD_SCRIPT)!r})"
    return subprocess.run([sys.executable, "-I", "-S", "-c", code, *args], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "args", "says"),
    [
        (None, [], f"needs executorch=={PINNED} to build with -Dexecutorch=enabled, but it is not installed: run"),
        ("1.4.0", [], f"executorch=={PINNED} to build with -Dexecutorch=enabled, but 1.4.0 is installed: run"),
        (PINNED, [], "but flatbuffers, which its tools need, is not installed: run 'pip install flatbuffers"),
    ],
)
def test_what_the_build_needs_is_named(tmp_path, version, args, says):
    if version:
        install(tmp_path, "executorch", version)
    run = configure(tmp_path, *args)
    assert run.returncode == 1
    assert says in run.stderr
    assert len(run.stderr.splitlines()) == 1


@with_executorch
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--operators", "muladd_nb::nothing.out"], "muladd_nb::nothing.out is none of the operators muladd_nb::mymul"),
        (["--model", "missing.pte"], "there is no file missing.pte"),
        (["--model", "random.pte"], "gen_oplist cannot read random.pte; is it an ExecuTorch program?"),
        (["--model", "sine.pte"], "sine.pte uses none of the operators muladd_nb::mymuladd.out, muladd_nb::mymul.out"),
    ],
)
def test_a_selection_that_cannot_be_is_refused(tmp_path, args, says):
    class Sine(torch.nn.Module):
        def forward(self, x):
            return x.sin()

    (tmp_path / "random.pte").write_bytes(bytes(range(200)))
    (tmp_path / "sine.pte").write_bytes(pte(Sine(), (torch.ones(2),)))
    run = subprocess.run(
        [sys.executable, BUILD_SCRIPT, *args], cwd=tmp_path, capture_output=True, text=True, check=False
    )
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
    target = "src/executorch/libmuladd_nb_executorch.so"
    common = ["-Dexecutorch=enabled", "-Dcuda=disabled", "-Dwerror=true"]
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
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stdout + run.stderr
        run = python(code, str(build / target), cwd=tmp_path)
        lines = run.stdout.splitlines()
        assert lines[0] == f"['muladd_nb::{registered}']"
        assert one in lines[1]
        assert lines[2] == "both.pte Failed to load method forward, error: 0x:14"
        assert re.search(rf"Missing operator: \[\d\] muladd_nb::{missing}", run.stderr)
        assert f"muladd_nb::{registered}" not in run.stderr


# ---- C++.


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The folder of the example's models, what export.py defines, and the C++ program."""
    folder = tmp_path_factory.mktemp("example")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["export.py", str(folder)])
        names = runpy.run_path(str(EXAMPLE / "export.py"))
    for command in (["meson", "setup", folder / "build", EXAMPLE], ["ninja", "-C", folder / "build"]):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
    return folder, names, folder / "build" / "digits"


def digits(program, *args):
    return subprocess.run([program, *args], capture_output=True, text=True, check=False)


def rows(text):
    return torch.tensor([[float(field) for field in line.split(",")] for line in text.splitlines()])


@with_executorch
def test_the_cpp_program_has_the_bits_of_eager(example):
    folder, names, program = example
    run = digits(program, folder / "digits.pte", folder / "digits.csv")
    assert run.returncode == 0, run.stderr
    assert same_bits(rows(run.stdout), names["scores"])
    assert names["accuracy"] > 0.95


@with_executorch
def test_python_has_the_bits_of_eager_on_the_digits(example):
    folder, names, _ = example
    run = forward((folder / "digits.pte").read_bytes())
    results = [run(batch)[0] for batch in names["test_x"].split(50)]
    assert same_bits(torch.cat(results), names["scores"])


@with_executorch
def test_an_operator_registered_from_python_alone(example):
    folder, names, program = example
    run = digits(program, folder / "cube.pte", folder / "cube.csv")
    assert run.returncode == 0, run.stderr
    assert same_bits(rows(run.stdout), names["Cube"]()(names["test_x"][:5]))


@with_executorch
def test_the_cpp_program_knows_neither_python_nor_torch(example):
    loaded = digits("ldd", example[2]).stdout
    assert "libexecutorch.so" in loaded
    assert not re.search(r"libpython|libtorch|libc10|not found", loaded)


@with_executorch
def test_what_the_cpp_program_refuses(example, tmp_path):
    folder, _, program = example
    (tmp_path / "short.csv").write_text("1,2\n")
    (tmp_path / "words.csv").write_text("one,two\n")
    (tmp_path / "random.pte").write_bytes(bytes(range(200)))
    for args, says in (
        ((folder / "digits.pte",), "usage: "),
        (("missing.pte", folder / "digits.csv"), "cannot load missing.pte: Error::AccessFailed"),
        ((tmp_path / "random.pte", folder / "digits.csv"), "random.pte: Error::InvalidProgram"),
        ((folder / "digits.pte", "missing.csv"), "cannot read missing.csv"),
        ((folder / "digits.pte", tmp_path / "short.csv"), "a row must have 64 numbers, as the model does, got 2"),
        ((folder / "digits.pte", tmp_path / "words.csv"), "not a number: one"),
    ):
        run = digits(program, *args)
        assert run.returncode in (1, 2)
        assert run.stdout == ""
        assert says in run.stderr
