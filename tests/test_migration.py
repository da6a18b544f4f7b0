"""The page on moving an extension to the stable ABI: its code before and after computes the same results."""

import runpy
import shutil

import pytest
import torch
from ten import ROOT, edit
from test_new import install
from torch.utils.cpp_extension import load

from muladd_nb.__main__ import main

BEFORE = ROOT / "docs/ship/migrate"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_an_extension_that_moved_computes_what_it_did(tmp_path, monkeypatch):
    flags = ["-std=c++20"]
    load("before", [str(BEFORE / "before.cpp")], build_directory=tmp_path, extra_cflags=flags, is_python_module=False)
    runpy.run_path(str(BEFORE / "before.py"))
    monkeypatch.chdir(tmp_path)
    assert main(["new", "moved_ops", "silu_mul(Tensor x, Tensor y) -> Tensor"]) == 0
    project = tmp_path / "moved_ops"
    difference = (ROOT / "docs/ship/diffs/silu_mul.diff").read_text().replace("my_ops", "moved_ops")
    (tmp_path / "silu_mul.diff").write_text(difference)
    edit(project, tmp_path / "silu_mul.diff")
    install(project, tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    import moved_ops

    before, after = torch.ops.before.silu_mul, moved_ops.silu_mul
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x, y = torch.randn(50, 37).to(dtype).t(), torch.randn(37, 50).to(dtype)
        torch.testing.assert_close(after(x, y), before(x, y))  # the C library's exp differs in the last bits
        assert after(x, y).stride() == before(x, y).stride()
    x, y = torch.randn(2, 8, dtype=torch.float64)
    gradients = [torch.autograd.functional.jacobian(silu_mul, (x, y)) for silu_mul in (before, after)]
    torch.testing.assert_close(*gradients)
    assert torch.autograd.gradcheck(
        after, (x.clone().requires_grad_(), y.clone().requires_grad_()), check_forward_ad=True
    )
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: before(x, y).sum())(x)
    torch.testing.assert_close(torch.func.grad(lambda x: after(x, y).sum())(x), gradients[1][0].sum(0))
