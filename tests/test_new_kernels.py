"""The tour's operators with their own kernels, and one over rows, in a project."""

import os
import re
import subprocess
import sys

import pytest
from generated import install, its_tests, run
from ten import GATHER, KERNEL, RMS_NORM, SCATTER, edit

from muladd_nb import _new

pytestmark = pytest.mark.slow  # test_new.py runs row_logsumexp

LEVEL = "level(Tensor x) -> Tensor"  # a kernel that returns x, and says what it was compiled for
SAYS = """\
#if defined(__AVX512F__)
    constexpr C level = 3;
#elif defined(__AVX2__)
    constexpr C level = 2;
#else
    constexpr C level = 1;
#endif
    const C value = static_cast<C>(x[i]);
    const bool rounds = value > 1000 && value < 2000; // ties among them
    out[i] = static_cast<T>(value == 1000 ? level : rounds ? value * static_cast<C>(1.0625) : value);
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Return a project with these operators of the tour, and `level`."""
    folder = tmp_path_factory.mktemp("kernels")
    project = _new.create("my_ops", [KERNEL], folder, kernel=True)
    edit(project, "row_logsumexp")
    for name, kernel in (("gather_rows", GATHER), ("scatter_rows", SCATTER)):
        _new.add([kernel], project, kernel=True)
        edit(project, name)
    _new.add(["pick(Tensor x, Tensor index) -> Tensor"], project, kernel=True)
    kernel = project / "src/pick.cpp"
    alike, checks = (
        '  elementwise::check_alike(kOperator, {{"x", x}, {"index", index}});\n',
        """\
  elementwise::check_beside(kOperator, {"x", x}, {"index", index}, elementwise::List<int16_t, int32_t>{});
  elementwise::check_index(kOperator, "index", index, 4);
""",
    )
    assert alike in kernel.read_text()
    text = kernel.read_text().replace(alike, checks)
    kernel.write_text(text.replace("kernel, x, x.numel()", "kernel, index.numel() == 1 ? index : x, x.numel()"))
    _new.add([RMS_NORM], project, rows=True)
    edit(project, "rms_norm")
    _new.add([LEVEL], project, kernel=True)
    kernel = project / "src/level.h"
    kernel.write_text(
        kernel.read_text().replace("    C value = static_cast<C>(x[i]);\n    out[i] = static_cast<T>(value);\n", SAYS)
    )
    install(project, folder / "site")
    return project, folder / "site"


INDEX = """
import torch, my_ops
for dtype in (torch.int32, torch.int16):
    for last in (3, 4):
        try:
            print(my_ops.pick(torch.zeros(2), torch.tensor([0, last], dtype=dtype)).tolist())
        except RuntimeError as error:
            print(error)
try:
    my_ops.pick(torch.zeros(2), torch.tensor([3], dtype=torch.int32))  # src/pick.cpp then launches with the index
except RuntimeError as error:
    print(error)
"""


def test_an_index_may_be_of_int32(kernels):
    printed = run(sys.executable, "-c", INDEX, cwd="/", PYTHONPATH=str(kernels[1]))
    outside = "pick: index must lie in [0, 4), got 4"
    launched = "pick: the tensor that is passed to launch must be float16, bfloat16, float32 or float64, got int32"
    of_16_bits = 2 * ["pick: index must be int32 or int64, got int16"]
    assert printed.splitlines() == ["[0.0, 0.0]", outside, *of_16_bits, launched]


def test_those_of_the_tour_pass_their_tests(kernels):
    """test_new.py tests row_logsumexp."""
    its_tests(*kernels, "-k", "rms_norm or gather_rows or scatter_rows")


BITS = """
import hashlib, torch, my_ops
print(my_ops.level(torch.tensor(1000.0)).item())
assert my_ops.gather_rows(torch.empty(3, 0), torch.tensor([0, 2])).shape == (2, 0)
torch.manual_seed(0)
x = torch.randn(64, 301, dtype=torch.float64)
every = [torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype) for dtype in (torch.float16, torch.bfloat16)]
dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
results = [my_ops.row_logsumexp(x.to(dtype)) for dtype in dtypes]
results += [my_ops.level(x[x != 1000]) for x in every]
for dtype in dtypes:
    x, gradient = torch.randn(2, 300, 301, dtype=torch.float64).to(dtype)
    weight = torch.randn(301, dtype=torch.float64).to(dtype)
    def of_rows(first, last):
        rows = slice(first, last)
        inputs = x[rows].clone().requires_grad_(), weight.clone().requires_grad_()
        result = my_ops.rms_norm(*inputs, 1e-5)
        return result.detach(), *torch.autograd.grad(result, inputs, gradient[rows])
    of_all = of_rows(0, 300)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert all(map(torch.equal, of_rows(0, 300), of_all)), f"{threads} threads, {dtype}"
    for row in (0, 7, 299):
        alone = (y[row : row + 1] for y in of_all[:2])
        assert all(map(torch.equal, of_rows(row, row + 1), alone)), f"row {row} alone, {dtype}"
    results += [y.flatten() for y in of_all]
print(*(hashlib.sha256(bytes(y.view(torch.uint8).tolist())).hexdigest() for y in results))
"""


def test_a_kernel_is_compiled_for_every_instruction_set_and_gives_the_same_bits(kernels):
    """Results do not depend on the number of threads, and are the same for one row as in a batch."""

    def python(level, check=True):
        environment = os.environ | {"PYTHONPATH": str(kernels[1]), "MY_OPS_SIMD": level}
        command = [sys.executable, "-c", BITS]
        return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=check)

    (levels,) = re.findall("must be one of (.+) on this machine, got none", python("none", check=False).stderr)
    printed = [python(level).stdout.splitlines() for level in levels.split(", ")]
    compiled_for, bits = zip(*printed, strict=True)
    assert compiled_for == tuple(f"{n}.0" for n in range(len(printed), 0, -1))
    assert set(bits) == {bits[0]}
