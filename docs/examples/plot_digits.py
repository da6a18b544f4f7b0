"""
Handwritten digits, modulated
=============================

One small network for two tasks: which digit is this, and is it even or odd? Both tasks share the hidden features of
scikit-learn's 1,797 scanned digits, and each has its own *feature-wise modulation* of them (Perez et al., "FiLM",
2018): every feature is multiplied by a ``gamma`` and moved by a ``beta``, and both are learned. That is one
:func:`muladd_nb.mymuladd` of three tensors, with a gradient for each.
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
x, y = digits.data / 16, digits.target
split = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
train_x, test_x = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
train_y, test_y = (torch.tensor(part) for part in split[2:])
print(f"{len(train_x)} scans to train on, {len(test_x)} to test with")

# %%
# The layer. A row of ``gamma`` and one of ``beta`` are broadcast to all images, and their gradients are summed over
# the images.


class Modulation(nn.Module):
    """Multiply each feature by its ``gamma``, and add its ``beta``, a row for each task."""

    def __init__(self, tasks: int, features: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(tasks, features))
        self.beta = nn.Parameter(torch.zeros(tasks, features))

    def forward(self, x: torch.Tensor, task: int) -> torch.Tensor:
        return muladd_nb.mymuladd(x, self.gamma[task], self.beta[task])


class Classifier(nn.Module):
    """Shared features, modulated for the task that is asked for, and shared classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(64, 32)
        self.modulation = Modulation(2, 32)
        self.classes = nn.Linear(32, 12)

    def forward(self, x: torch.Tensor, task: int) -> torch.Tensor:
        scores = self.classes(self.modulation(self.features(x), task).relu())
        return scores[:, :10] if task == 0 else scores[:, 10:]


# %%
# Training, on both tasks at once.

torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
labels = (train_y, train_y % 2)
for _ in range(30):
    for batch in torch.randperm(len(train_x)).split(64):
        x = train_x[batch]
        losses = [nn.functional.cross_entropy(model(x, t), labels[t][batch]) for t in (0, 1)]
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()

with torch.no_grad():
    predictions = [model(test_x, task).argmax(1) for task in (0, 1)]
accuracy = [
    (predictions[0] == test_y).float().mean().item(),
    (predictions[1] == test_y % 2).float().mean().item(),
]
print(f"right on the test scans: which digit {accuracy[0]:.1%}, ", end="")
print(f"even or odd {accuracy[1]:.1%}")

# %%
# The figure shows the result of the training. The upper plots have the modulations. The features are sorted: those to
# the right matter more to the first task than to the second. The lower plots show test scans with both answers; a wrong
# one is red.

gamma, beta = model.modulation.gamma.detach(), model.modulation.beta.detach()
figure, axes = plt.subplot_mosaic(
    [["gamma"] * 5 + ["beta"] * 5, list(range(10))],
    figsize=(8, 3.6),
    height_ratios=(2, 1),
    layout="constrained",
)
for name, values in {"gamma": gamma, "beta": beta}.items():
    order = (gamma[0] - gamma[1]).argsort()
    axes[name].plot(values[0, order], "o", ms=4, label="which digit")
    axes[name].plot(values[1, order], "s", ms=4, mfc="none", label="even or odd")
    axes[name].axhline(float(name == "gamma"), color="gray", linewidth=1)
    axes[name].set(title=name, xlabel="feature")
both = axes["gamma"].get_legend_handles_labels()
figure.legend(*both, loc="outside lower center", ncols=2, frameon=False)
for i in range(10):
    right = predictions[0][i] == test_y[i] and predictions[1][i] == test_y[i] % 2
    axes[i].imshow(test_x[i].view(8, 8), cmap="gray_r")
    title = f"{predictions[0][i]} {('even', 'odd')[predictions[1][i]]}"
    axes[i].set_title(title, color="black" if right else "red", fontsize=9)
    axes[i].axis("off")
figure.suptitle("one network, two tasks: what each makes of the same features")
plt.show()
