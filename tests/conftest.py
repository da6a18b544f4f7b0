"""Fixtures: every test that takes `device` or `dtype` runs on each of them."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

import muladd_nb

# Tests start the programs of this environment even if it is not activated.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# The processes of pytest-xdist share the processors. With OpenMP threads that spin while they wait, some tests take six
# times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# If Triton is installed, Inductor starts processes that import torch and wait for Triton kernels, even if a test
# compiles only for the CPU.
os.environ.setdefault("TORCH_WARM_POOL", "0")
# Inductor should not compile six programs to find out which instruction sets the compiler supports.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
if not HAS_GIL:  # torch may import triton, which would turn it on
    os.environ.setdefault("PYTHON_GIL", "0")

MODULE = Path(muladd_nb._C.__file__).name  # its suffix is for this CPython
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CUDA_DEVICES = torch.cuda.device_count() if muladd_nb.build_info()["cuda_version"] else 0
CUDA = CUDA_DEVICES > 0


def on_cuda(devices=1):
    """Return the mark of a case that needs this many CUDA devices. Without them the case is not collected."""
    return pytest.mark.cuda(devices)


DEVICES = ["cpu", pytest.param("cuda", marks=on_cuda())]


def each(calls):
    """Return the mark that runs a test once for each of these calls from `calls.py`."""
    return pytest.mark.parametrize("call", calls, ids=str)


def fuses(device, *dtypes):
    """Return whether Inductor fuses the operators on this device. No test has compared the bits on a GPU."""
    keeps_roundings = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
    is_wide = all(torch.finfo(dtype).bits > 16 for dtype in dtypes)
    return device == "cpu" and platform.machine() == "x86_64" and (keeps_roundings or is_wide)


def message(function, *args, **kwargs):
    """Return the error message of a call, which must raise a ``RuntimeError``."""
    with pytest.raises(RuntimeError) as error:
        function(*args, **kwargs)
    return str(error.value).splitlines()[0]


def needs(*tools):
    """Return the mark of a test that needs these programs."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not on PATH")


def run(*command, cwd="/", **environment):
    """Run a program, and return its exit status, stdout and stderr."""
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def pretend_to_install(folder, package, version, *files):
    """Write what makes a build find this version of a package in a folder."""
    for file in ("__init__.py", *files):
        path = folder / package / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request):
    return request.param


@pytest.fixture(autouse=True)
def reproducible():
    torch.manual_seed(0)
    torch._dynamo.reset()


MISSING = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config, items):
    here = [item for item in items if all(mark.args[0] <= CUDA_DEVICES for mark in item.iter_markers("cuda"))]
    config.stash[MISSING] = len(items) - len(here)
    # Give both processes of pytest-xdist work at the start: one compiles the headers that Inductor's programs share,
    # and the other gets files that do not need them yet.
    first = {f"test_{name}.py": place for place, name in enumerate(("compile", "contract", "derivative"), -3)}
    items[:] = sorted(here, key=lambda item: first.get(item.path.name, 0))


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # a worker of pytest-xdist: the controller prints it once
        session.config.workeroutput["missing"] = session.config.stash[MISSING]


def pytest_testnodedown(node):
    if hasattr(node, "workeroutput"):  # missing if the worker crashed
        node.config.stash[MISSING] = node.workeroutput["missing"]


def pytest_terminal_summary(terminalreporter, config):
    if missing := config.stash.get(MISSING, 0):
        devices = f"only {CUDA_DEVICES} CUDA devices" if CUDA else "no CUDA device, or no kernels for one"
        terminalreporter.write_line(f"{devices} here: {missing:,} cases that need more are not collected")
