"""
Handwritten digits, modulated
=============================

A small classifier of scikit-learn's 1,797 scanned digits with a feature-wise modulation layer (Perez et al.,
"FiLM", 2018): every hidden feature of an image is multiplied by a gain, which a second branch of the network
computes from the same image, and moved by a constant offset. That is one :func:`muladd_nb.mymuladd`, forward
and backward, in eager mode and inside ``torch.compile``.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import muladd_nb

# %%
# The data: 8 x 8 scans with 17 grey levels, a quarter of them held back for the test.

digits = load_digits()
split = train_test_split(digits.data / 16, digits.target, test_size=0.25, random_state=0, stratify=digits.target)
train_x, test_x = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
train_y, test_y = (torch.tensor(part) for part in split[2:])
print(f"{len(train_x)} scans to train on, {len(test_x)} to test with")

# %%
# The layer. ``mymuladd`` broadcasts nothing, and nothing needs to be: each image has its own gains.


class Modulation(nn.Module):
    """Multiply features by gains computed from ``condition``, and add a constant offset."""

    def __init__(self, features: int, condition: int, offset: float) -> None:
        super().__init__()
        self.gain = nn.Linear(condition, features)
        self.offset = offset

    def forward(self, features: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        return muladd_nb.mymuladd(features, self.gain(condition), self.offset)


class Classifier(nn.Module):
    """Two layers with the modulation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(64, 64)
        self.modulation = Modulation(64, 64, offset=0.1)
        self.classes = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.modulation(self.features(x).relu(), x).relu())


# %%
# Training, the same in eager mode and compiled.


def train(compiled: bool) -> tuple[list[float], torch.Tensor]:
    """Train a model; return its loss after each epoch and its predictions for the test scans."""
    torch.manual_seed(0)
    model = Classifier()
    step = torch.compile(model, fullgraph=True) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    losses = []
    for _ in range(40):
        batches = torch.randperm(len(train_x)).split(64)[:-1]  # the last one is smaller
        for batch in batches:
            loss = nn.functional.cross_entropy(step(train_x[batch]), train_y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return losses, model(test_x).argmax(1)


eager_losses, eager_predictions = train(compiled=False)
compiled_losses, compiled_predictions = train(compiled=True)
eager_accuracy = (eager_predictions == test_y).float().mean().item()
compiled_accuracy = (compiled_predictions == test_y).float().mean().item()
print(f"test accuracy: eager {eager_accuracy:.1%}, compiled {compiled_accuracy:.1%}")

# %%
# The loss, and twelve scans of the test set with what the model takes them for; a wrong one is red.

rows = [["loss"] * 4 + list(range(first, first + 4)) for first in (0, 4, 8)]
figure, axes = plt.subplot_mosaic(rows, figsize=(9, 3.6), layout="constrained")
axes["loss"].semilogy(eager_losses, label="eager")
axes["loss"].semilogy(compiled_losses, "--", label="compiled")
axes["loss"].set(xlabel="epoch", ylabel="cross entropy")
axes["loss"].legend()
for i in range(12):
    right = eager_predictions[i] == test_y[i]
    axes[i].imshow(test_x[i].view(8, 8), cmap="gray_r")
    axes[i].set_title(eager_predictions[i].item(), color="black" if right else "red", fontsize=10)
    axes[i].axis("off")
plt.show()
