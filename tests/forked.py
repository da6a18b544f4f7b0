"""Run Python code in a new process, forked from one that has imported torch: the import takes most of the time."""

import multiprocessing
import os
from pathlib import Path

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    [
        "ctypes",
        "pytest",
        "torch._dynamo",
        # torch imports these modules at the first assert_close, dual number and compilation.
        "torch.distributed.tensor",
        "torch._decomp.decompositions_for_jvp",
        "torch._inductor.compile_fx",
    ]
)


def python(code, stderr):
    """Run `code` with its stderr in that file; return the exit status and the text of stderr."""
    (result,) = together({stderr: code})
    return result


def together(codes):
    """Run all codes at the same time, and return what `python` returns for each; `codes` has the files."""
    processes = [_server.Process(target=_run, args=(code, str(stderr))) for stderr, code in codes.items()]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [(process.exitcode, Path(stderr).read_text()) for process, stderr in zip(processes, codes, strict=True)]


def _run(code, stderr):
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    exec(code, {})
