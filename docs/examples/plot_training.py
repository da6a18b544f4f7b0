"""
A training run, compiled and not
================================

A residual network of element-wise gates learns a spiral, once in eager mode and once under ``torch.compile``, from the
same start. The operators round once in both; the two curves differ because the compiler rounds the operations that it
fuses around them differently.
"""

import math

import matplotlib.pyplot as plt
import torch
from torch import nn

import muladd_nb

# %%
# Two arms of a spiral, and some noise.

torch.manual_seed(0)
turn = 3 * math.pi * torch.rand(1000).sqrt()
arm = torch.randint(2, (1000,))
angle = turn + math.pi * arm
points = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 9
points += 0.02 * torch.randn(1000, 2)

# %%
# A layer adds to its input what a gate lets through: ``gate * candidate + x`` is one :func:`muladd_nb.mymuladd`, with a
# gradient for all three.


class Gated(nn.Module):
    """Add ``tanh(candidate)``, times the gate, to the input."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gate = nn.Linear(features, features)
        self.candidate = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return muladd_nb.mymuladd(self.gate(x).sigmoid(), self.candidate(x).tanh(), x)


def train(compiled: bool) -> tuple[list[float], nn.Module]:
    """Return the loss of each step, and the model."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 32), Gated(32), Gated(32), nn.Linear(32, 2))
    forward = torch.compile(model, fullgraph=True) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(200):
        loss = nn.functional.cross_entropy(forward(points), arm)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


eager_losses, model = train(compiled=False)
compiled_losses, _ = train(compiled=True)
both = zip(eager_losses[:20], compiled_losses[:20], strict=True)
apart = max(abs(x - y) for x, y in both)
print(f"loss at the end: eager {eager_losses[-1]:.4f}, compiled {compiled_losses[-1]:.4f}")
print(f"in the first 20 steps they are never further apart than {apart:.0e}")

# %%
# Both curves, and to which arm the model assigns each point of the plane.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
left.semilogy(eager_losses, label="eager")
left.semilogy(compiled_losses, "--", label="compiled")
left.set(xlabel="step", ylabel="cross entropy", title="it learns, compiled or not")
left.legend(frameon=False)
side = torch.linspace(-1.2, 1.2, 120)
plane = torch.cartesian_prod(side, side)
with torch.no_grad():
    first = model(plane).softmax(1)[:, 0].view(120, 120)
right.contourf(side, side, first.T, levels=20, cmap="coolwarm", alpha=0.6)
right.scatter(*points.T, c=1 - arm, s=3, cmap="coolwarm")
right.set(aspect="equal", xticks=[], yticks=[], title="both arms are told apart")
plt.show()
