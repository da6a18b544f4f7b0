"""Importing the package: its error messages, and what it does not import."""

import re
import shutil
import sys
from pathlib import Path

import forked
import pytest
from conftest import HAS_GIL, MODULE, run

import muladd_nb
from muladd_nb._layer.operator import Elementwise, declared

ROOT = Path(__file__).parent.parent


@pytest.fixture
def last_line(tmp_path):
    """Return the last line that a failing program prints."""

    def last_line(code):
        status, stderr = forked.python(code, tmp_path / "stderr")
        assert status != 0
        return stderr.strip().splitlines()[-1]

    return last_line


def test_an_old_torch_is_refused(last_line):
    code = "import torch; torch.__version__ = '2.9.1'; import muladd_nb"
    assert last_line(code) == (
        "ImportError: muladd_nb needs torch 2.10 or newer, but torch 2.9.1 is installed: "
        "run 'pip install --upgrade torch'."
    )


def _without(module):
    return f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {module!r} else find_spec(name, *rest)
sys.meta_path.insert(0, Missing())
import muladd_nb
"""


def test_a_missing_torch_or_backend_is_named(last_line):
    assert last_line(_without("torch")) == (
        "ImportError: muladd_nb needs torch 2.10 or newer: run 'pip install torch'."
    )
    if ".abi3" not in MODULE:
        return  # the module contains nanobind
    assert last_line(_without("nanobind_backend")) == (
        "ImportError: muladd_nb needs nanobind-backend: run 'pip install nanobind-backend'."
    )


def test_a_module_that_python_cannot_load_is_not_called_sources(last_line, tmp_path):
    for name in ("__init__.py", "_layer/__init__.py", "_layer/load.py"):  # as in a package of the generator
        path = tmp_path / "site/zoo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((ROOT / "muladd_nb" / name).read_text() if path.name == "load.py" else "")
    archive = shutil.make_archive(tmp_path / "wheel", "zip", tmp_path / "site")
    module = tmp_path / "site/zoo/_C.cpython-39.so"
    module.touch()
    code = "import sys; sys.path.insert(0, {!r}); from zoo._layer.load import load; load()"
    assert last_line(code.format(str(tmp_path / "site"))) == (
        f"ImportError: {module} was not compiled for this Python, {sys.version.split()[0]}: install zoo with its pip."
    )
    assert last_line(code.format(archive)) == (
        f"ImportError: {archive}/zoo is in a zip file, and Python can load no compiled module from it: unpack the file."
    )


@pytest.mark.parametrize(("setting", "got", "known"), [
    ("SIMD", "foo", "must be one of .*baseline on this machine"),
    ("HUGEPAGES", "banana", "must be 0 or 1"),
])  # fmt: skip
def test_an_invalid_setting_is_refused(last_line, setting, got, known):
    code = f"import os; os.environ['MULADD_NB_{setting}'] = {got!r}; import muladd_nb"
    assert re.fullmatch(f"ImportError: muladd_nb: MULADD_NB_{setting} {known}, got {got}", last_line(code))


def test_an_operator_that_one_side_lacks_is_named_with_both_files():
    with pytest.raises(ImportError) as error:
        declared([{"declaration": "f(Tensor x)", "of": ""}], {"g(Tensor x)": Elementwise()})
    assert str(error.value) == (
        'muladd_nb: src/operators.h has "f(Tensor x)", but muladd_nb/_operators.py does not: add it there; '
        'muladd_nb/_operators.py has "g(Tensor x)", but src/operators.h does not: add it there'
    )


@pytest.mark.skipif(HAS_GIL, reason="this CPython has the GIL")
def test_importing_leaves_the_gil_off(monkeypatch):
    monkeypatch.delenv("PYTHON_GIL")
    code = "import sys, muladd_nb; print(sys._is_gil_enabled())"
    assert run(sys.executable, "-c", code).stdout == "False\n"


FORGET = "import sys; [sys.modules.pop(name) for name in [*sys.modules] if name.startswith('muladd_nb')]"


def test_a_second_import_works_or_says_why_not(last_line, tmp_path):
    again = "import sys, muladd_nb; del sys.modules['muladd_nb']; import muladd_nb"
    assert forked.python(again, tmp_path / "stderr") == (0, "")
    said = last_line(f"import muladd_nb; {FORGET}; import muladd_nb")
    assert re.fullmatch(
        "ImportError: muladd_nb was imported before in this process, from /.*muladd_nb, and the process keeps what was "
        "registered then: leave its modules in sys.modules, or start Python again",
        said,
    )


RELOAD = """
import importlib, sys, torch
import muladd_nb, muladd_nb.dtensor
for name in sorted(name for name in sys.modules if name.startswith("muladd_nb")):
    try:
        importlib.reload(sys.modules[name])
    except ImportError as error:
        assert str(error).startswith("muladd_nb") and "start Python again" in str(error), error
        refused = name
    x = torch.ones(3, requires_grad=True)
    muladd_nb.mymuladd(x, x, 0.5).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0)), name
    assert torch.equal(torch.compile(lambda x: muladd_nb.mymul(x, x), backend="aot_eager")(x), x)
    assert torch.equal(torch.vmap(muladd_nb.mymul)(x, x), x)
    if name in ("muladd_nb._operators", "muladd_nb.dtensor"):
        assert refused == name
"""


def test_a_module_that_is_reloaded_as_notebooks_do_works_or_says_why_not(tmp_path):
    assert forked.python(RELOAD, tmp_path / "stderr") == (0, "")


# Modes that may be active when a function imports the package. They must not see how the package inspects ATen's nodes.
AROUND = {
    "a transform": "torch.func.grad(lambda x: muladd().mymul(x, x).sum())(torch.ones(3))",
    "a dispatch mode": "\nwith FlopCounterMode(display=False) as mode: muladd()\nassert not mode.get_total_flops()",
    "a fake mode": "\nwith FakeTensorMode(): muladd()",
    "inference mode": "\nwith torch.inference_mode(): muladd()",
    "a default device": "\nwith torch.device('meta'): muladd()",
    "hooks": "\nwith torch.autograd.graph.save_on_cpu(): muladd()",
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_importing_inside_of_anything(around, tmp_path):
    status, stderr = forked.python(
        f"""
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

def muladd():
    import muladd_nb
    return muladd_nb

{around}
x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
packed = []
with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x), torch.profiler.profile():
    muladd().mymul(x, y)
assert [z.data_ptr() for z in packed] == [y.data_ptr(), x.data_ptr()]
with torch.inference_mode(), torch.enable_grad():
    assert not muladd().mymuladd(x, y, y).requires_grad
""",
        tmp_path / "stderr",
    )
    assert status == 0, stderr


def test_importing_is_lean():
    code = """
import sys, torch
before = set(sys.modules)
import muladd_nb
print(sorted(m for m in set(sys.modules) - before
             if m.startswith(("torch._dynamo", "torch._inductor", "torch.distributed", "numpy", "torch.onnx", "triton"))
             or m == "torch.utils.flop_counter"))
"""
    ran = run(sys.executable, "-c", code)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_build_info():
    info = muladd_nb.build_info()
    assert list(info) == [
        "version", "compiler", "torch_built_with", "torch_target", "cuda_version", "cuda_architectures", "simd",
        "library_path",
        "executorch_version", "executorch_operators", "missing_in_torch",
    ]  # fmt: skip
    assert info["torch_target"] == "2.10"
    assert bool(info["cuda_version"]) == bool(info["cuda_architectures"])
    assert info["simd"] in ("avx512", "avx2", "baseline")
