"""Write a project with ten operators, each of another kind, and edit it as an author would."""

import subprocess
from pathlib import Path

from muladd_nb import _new

ROOT = Path(__file__).parent.parent
DIFFS = ROOT / "docs/ship/diffs"  # the site shows these
SOFTCLIP = "softclip(Tensor x, float limit) -> Tensor"
POPCOUNT = "popcount(Tensor x) -> Tensor"
BLEND = "blend(Tensor x, Tensor y, Tensor z, float p, float q) -> Tensor"
REFLECT = "reflect_out(Tensor x, float c, Tensor(a!) out) -> ()"
BIAS_ACT = "bias_act(Tensor x, Tensor bias, float slope, float clamp) -> Tensor"
KERNEL = "row_logsumexp(Tensor x) -> Tensor"
GATHER = "gather_rows(Tensor x, Tensor index, Tensor? keep=None) -> Tensor"
SCATTER = "scatter_rows(Tensor src, Tensor index, int rows, Tensor? keep=None) -> (Tensor, Tensor)"
RMS_NORM = "rms_norm(Tensor x, Tensor weight, float eps) -> Tensor"  # over rows; the project of ten has it as a kernel
KERNELS = ["running_sum(Tensor x, int dim, bool reverse) -> Tensor", RMS_NORM]
# Every kind of argument, with names that the generated files use themselves.
EVERY_ARGUMENT = [
    "scaled(Tensor? bias, Tensor x, float c, int? n=None, *, float eps=1.5, str mode='none', ScalarType? dtype=None, "
    "int[2] pad=1) -> Tensor",
    "adam_(Tensor(b!)[] m, Tensor(a!) p, Tensor grad, Tensor!? v, Tensor? C, float lr, *, bool f_=True) -> ()",
    "fold(Tensor[] out, SymInt n, SymInt[] dims, bool? flag, float? T) -> (Tensor, Tensor)",
    "update_(int k, Tensor! dtype, Tensor kernel, Device device, Layout layout, MemoryFormat value, float[] fs, "
    "bool[] bs, str? s, str[] names, int[]? group_shape=None, ScalarType[]? types=None) -> Tensor",
    "_hidden(Tensor double, float p, *, Tensor(a!) out) -> ()",
    "gated(Tensor errno, *, Tensor tangent, Tensor? saved=None) -> (Tensor, Tensor)",
]


def edit(project: Path, *diffs: Path | str) -> None:
    """Apply diffs. The site's own diffs are named without a path."""
    for diff in diffs:
        path = DIFFS / f"{diff}.diff" if isinstance(diff, str) else diff
        subprocess.run(["git", "apply", "-p0"], input=path.read_bytes(), cwd=project, check=True)


def write_project(parent: Path) -> Path:
    """Write the project ``my_ops`` into a folder outside of any repository, and return the project's folder."""
    project = _new.create("my_ops", [SOFTCLIP], parent)
    edit(project, "softclip")
    _new.add([POPCOUNT], project)
    edit(project, "popcount")
    _new.add([BLEND, REFLECT], project)
    edit(project, "blend", "reflect_out")
    for kernel in (KERNEL, GATHER, SCATTER):
        _new.add([kernel], project, kernel=True)
        edit(project, kernel.partition("(")[0])
    _new.add([BIAS_ACT], project)
    _new.add(KERNELS, project, kernel=True)
    edit(project, ROOT / "tests/mistakes/operators.diff")
    return project
