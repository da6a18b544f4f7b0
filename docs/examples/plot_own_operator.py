"""
An operator of one's own
========================

``muladd-nb new`` writes a project around an operator, here a soft clip, ``x / (1 + |x| / limit)``. This page runs the
command, makes the edits of :doc:`the tour </ship/index>`, builds the project, and uses the operator as a layer that
keeps a recurrent network from growing without bounds.
"""

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

# %%
# The project, one edit, the arithmetic of an element, and the build. (The tour has a second edit, a reference for the
# project's tests.)

folder = Path(tempfile.mkdtemp())
schema = "softclip(Tensor x, float limit) -> Tensor"
command = ["muladd-nb", "new", "clip_ops", schema]
subprocess.run(command, cwd=folder, check=True, capture_output=True)

project, site = folder / "clip_ops", folder / "site"
functors = project / "src/functors.h"
before, after = "return x * limit;", "return x / (1 + elementwise::abs(x) / limit);"
assert before in functors.read_text()
functors.write_text(functors.read_text().replace(before, after))

pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"]
options = ["--target", site, "--config-settings=setup-args=-Dcuda=disabled"]
subprocess.run([*pip, *options, "."], cwd=project, check=True)

sys.path.insert(0, str(site))
clip_ops = importlib.import_module("clip_ops")
print(clip_ops.softclip(torch.tensor([-10.0, -0.1, 0.0, 0.1, 10.0]), 1.0))

# %%
# The derivative, which is made from the arithmetic, is right in both modes and up to the third order. The operator
# works in compiled programs and in batches.

some = torch.randn(8, dtype=torch.float64, requires_grad=True)
torch.autograd.gradcheck(lambda x: clip_ops.softclip(x, 1.5), some, check_forward_ad=True)
second = {"check_fwd_over_rev": True}
torch.autograd.gradgradcheck(lambda x: clip_ops.softclip(x, 1.5), some, **second)


def curve(x, limit):
    """Return the value and the slope at one point."""
    return clip_ops.softclip(x, limit), torch.func.grad(clip_ops.softclip)(x, limit)


x = torch.linspace(-6, 6, 240)
batched = torch.vmap(curve, in_dims=(0, None))
curves = {limit: batched(x, limit) for limit in (0.5, 1.5, 5.0)}

# %%
# A random recurrence, ``h = W h``, whose largest eigenvalue is 1.1: it grows for ever, unless it is clipped.

torch.manual_seed(0)
weights = torch.randn(64, 64)
weights *= 1.1 / torch.linalg.eigvals(weights).abs().max()
norms: dict[str, list[float]] = {"as it is": [], "with softclip": []}
for name, clip in (
    ("as it is", lambda h: h),
    ("with softclip", lambda h: clip_ops.softclip(h, 1.5)),
):
    h = torch.ones(64)
    for _ in range(100):
        h = clip(weights @ h)
        norms[name].append(h.norm().item())

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for limit, values in curves.items():
    left.plot(x, values[0], label=f"limit {limit}")
    middle.plot(x, values[1])
left.set(title="softclip", xlabel="x")
left.legend(frameon=False, fontsize=8)
middle.set(title="its derivative", xlabel="x")
for name, values in norms.items():
    right.semilogy(values, label=name)
right.set(title="norm of the state", xlabel="step")
right.legend(frameon=False, fontsize=8)
figure.suptitle("an operator of one's own bounds what would grow")
plt.show()
