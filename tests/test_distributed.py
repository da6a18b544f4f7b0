"""DTensor, FSDP2 and tensor parallelism in real processes, which meet over the loopback."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from conftest import on_cuda

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "docs" / "examples" / "distributed" / "train.py"


def run(*command):
    """Run a program as a user would, and return the last line that it prints; Gloo's greeting comes before."""
    environment = {
        "OMP_NUM_THREADS": "1",
        # Otherwise torch may give a process the program that another one compiled, for shards of another size.
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    result = subprocess.run(
        [sys.executable, *command],
        env=os.environ | environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-8000:]
    return result.stdout.splitlines()[-1]


def start(processes, script, *arguments):
    """Run a script under torchrun."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
    return run(*torchrun, str(script), *arguments)


def checks():
    """Return the names of the worker's functions with @check."""
    tree = ast.parse((HERE / "distributed_worker.py").read_text())
    return [f.name for f in tree.body if isinstance(f, ast.FunctionDef) and f.decorator_list]


def fork(processes, folder):
    """Run the worker in forked processes, which need not import torch again."""
    code = (
        f"import os, sys; os.dup2(2, 1); sys.path.insert(0, {str(HERE)!r}); import torch; torch.set_num_threads(1); "
        f"import distributed_worker; distributed_worker.main('cpu', init_method='file://{folder}/store', "
        f"world_size={processes}, rank={{}})"
    )
    (status, printed), *others = forked.together({folder / str(rank): code.format(rank) for rank in range(processes)})
    assert status == 0 and not any(status for status, _ in others), "".join([printed, *(text for _, text in others)])
    return next(line for line in printed.splitlines() if line.startswith("{"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("cpu", 2), id="cpu-2"),
        pytest.param(("cpu", 4), id="cpu-2x2", marks=pytest.mark.slow),
        pytest.param(("cuda", 2), id="cuda-2", marks=on_cuda(2)),
        pytest.param(("cuda", 4), id="cuda-2x2", marks=[on_cuda(4), pytest.mark.slow]),
    ],
)
def report(request, tmp_path_factory):
    device, processes = request.param
    if request.param == ("cpu", 2):
        return json.loads(fork(processes, tmp_path_factory.mktemp("processes")))
    return json.loads(start(processes, HERE / "distributed_worker.py", device))


@pytest.mark.parametrize("name", checks())
def test_distributed(report, name):
    assert report[name] == ""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["--tensor-parallel"]], ids=["fsdp", "tensor_parallel"])
def test_the_example_says_the_same_on_one_process_and_on_two(arguments):
    alone = run(str(EXAMPLE), *arguments)
    assert alone.startswith("1 processes: 99.")
    assert start(2, EXAMPLE, *arguments) == alone.replace("1 processes", "2 processes")
