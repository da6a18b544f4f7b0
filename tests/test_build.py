"""A build that cannot work raises a clear error before it compiles anything."""

import os
import re
import sys
from pathlib import Path

import pytest
from conftest import needs, pretend_to_install, run

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "src/elementwise/tools/dependencies.py"


def configure(folder):
    """Look for torch and nanobind only in `folder`."""
    arguments = ["dependencies.py", "muladd_nb", str(ROOT), "so"]
    code = f"sys.path.append({str(folder)!r}); sys.argv = {arguments}; runpy.run_path({str(SCRIPT)!r})"
    return run(sys.executable, "-I", "-S", "-c", f"import runpy, sys; {code}")


HEADER = "include/torch/csrc/stable/library.h"
NANOBIND_HEADER = "include/nanobind/nanobind.h"
LIBRARY = "lib/libtorch.so"


@pytest.mark.parametrize(("torch", "nanobind", "says"), [
    (None, None, "muladd_nb needs torch>=2.10 to build, but it is not installed: run 'pip install \"torch>=2.10\"'"),
    (("2.9.1",), None, "muladd_nb needs torch>=2.10 to build, but 2.9.1 is installed: run 'pip install"),
    (("2.10.0rc1", HEADER), None, "muladd_nb needs nanobind>=3 to build, but it is not installed: run 'pip"),
    (("2.13.0", HEADER), ("2.9.2",), "muladd_nb needs nanobind>=3 to build, but 2.9.2 is installed: run 'pip"),
    (("2.13.0",), ("3.1.0", NANOBIND_HEADER), "to build, which this torch lacks: reinstall torch."),
    (("2.13.0", HEADER), ("3.1.0",), "to build, which this nanobind lacks: reinstall nanobind."),
])  # fmt: skip
def test_what_is_missing_is_named(tmp_path, torch, nanobind, says):
    for package, installed in (("torch", torch), ("nanobind", nanobind)):
        if installed:
            pretend_to_install(tmp_path, package, *installed)
    done = configure(tmp_path)
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_is_there_is_printed(tmp_path):
    pretend_to_install(tmp_path, "torch", "2.13.0", HEADER, LIBRARY)
    pretend_to_install(tmp_path, "nanobind", "3.1.0", NANOBIND_HEADER)
    expected = ["2.13.0", tmp_path / "torch/include", tmp_path / "torch/lib", tmp_path / "nanobind/include"]
    *lines, oldest, as_headers_take_it = configure(tmp_path).stdout.splitlines()
    assert lines == [str(line) for line in expected]
    assert (oldest, as_headers_take_it) == ("2.10", "0x020a000000000000")


@needs("meson", "ninja")
def test_another_system_is_refused_before_anything_is_compiled(tmp_path):
    machine = "system = 'windows'\ncpu_family = 'x86_64'\ncpu = 'x86_64'\nendian = 'little'"
    (tmp_path / "windows.ini").write_text(f"[binaries]\ncpp = 'c++'\n[host_machine]\n{machine}\n")
    done = run("meson", "setup", "--cross-file", tmp_path / "windows.ini", tmp_path / "build", ROOT)
    assert done.returncode == 1
    assert "There are kernels for Linux and macOS, not for windows. To port them, begin with " in done.stdout


@pytest.mark.slow
@needs("meson", "ninja", "nvcc")
@pytest.mark.parametrize(("says", "options", "architectures"), [
    ("9.0\n9.0\n99.9", [], ["90"]),  # nvcc does not know the last one
    ("9.0", ["-Dgpu_archs=all"], ["75", "80", "90"]),
    ("it has failed", [], ["75", "80", "90"]),
])  # fmt: skip
def test_cuda_kernels_are_for_the_gpu_that_is_there_or_else_for_all(tmp_path, says, options, architectures):
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho '{says}'\n")
    tool.chmod(0o755)
    path = {"PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}"}
    done = run("meson", "setup", tmp_path / "build", ROOT, *options, **path)
    assert done.returncode == 0, done.stdout
    found = re.findall(r"\d+", done.stdout.partition("architectures:")[2].partition("\n\n")[0])
    assert found[:3] == architectures


FUNCTOR = """
#include "elementwise/operator.h"
using elementwise::List, elementwise::Optional, elementwise::Results;
struct Clip {
  template <class C>
  ELEMENTWISE_FUNCTION Results<C, bool> operator()(int8_t q, C x, Optional<C> by, C limit) const {
    return {by.value_or(x) * C(q), x > limit};
  }
};
using Kernel = elementwise::Operator<
    "clip(Tensor q, Tensor x, Tensor? by, float limit)", Clip, elementwise::functional>::Kernel;
static_assert(std::is_same_v<Kernel::Inputs<float>, List<int8_t, float, float>>);
static_assert(std::is_same_v<Kernel::Results<float>, List<float, bool>>);
"""


@pytest.mark.slow
@needs("nvcc")
def test_nvcc_reads_the_dtypes_of_a_functor_as_the_host_compiler_does(tmp_path):
    source = tmp_path / "functor.cu"
    source.write_text(FUNCTOR)
    done = run("nvcc", "-std=c++20", "-arch=sm_90", f"-I{ROOT / 'src'}", "-c", source, "-o", os.devnull)
    assert done.returncode == 0, done.stdout + done.stderr


ROWS = """
#include "elementwise/elementwise.h"
struct OfRow {
  using dtypes = elementwise::List<double>;
  template <class C, class Row>
  ELEMENTWISE_FUNCTION elementwise::Results<C, int64_t> operator()(
      Row& row, elementwise::Elements<C> x, elementwise::Elements<int64_t> time) const {
    return {row.log_sum_exp(x), {row.argmax(time)}};
  }
};
using Operators =
    elementwise::List<elementwise::Operator<"of_row(Tensor x, Tensor time)", OfRow, elementwise::functional>>;
ELEMENTWISE_OPERATORS(ops, Operators)
"""


@pytest.mark.slow
@needs("nvcc")
def test_a_reduction_calls_no_function_of_the_host_on_a_gpu(tmp_path):
    """nvcc only warns of such a call; the build makes an error of it."""
    source = tmp_path / "rows.cu"
    source.write_text(ROWS)
    options = ["-std=c++20", "-arch=sm_90", "--diag-error=20013", "-DELEMENTWISE_LIBRARY=ops", f"-I{ROOT / 'src'}"]
    done = run("nvcc", *options, "-cubin", source, "-o", tmp_path / "rows.cubin")
    assert done.returncode == 0, done.stdout + done.stderr
