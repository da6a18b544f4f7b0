"""Train a classifier of handwritten digits and export it for ExecuTorch; and a model with an operator of one's own.

Writes digits.pte, digits.csv (scans to classify), cube.pte and cube.csv into the folder that is given.
"""

import pathlib
import sys

import torch
from executorch.exir import to_edge
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import muladd_nb

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")


class Digits(nn.Module):
    """A maxout network (Goodfellow et al., 2013): each class has eight features, and the largest one is its score.

    The features are modulated by gains that are computed from the same image.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(64, 80)
        self.gains = nn.Linear(64, 80)
        self.scale = nn.Parameter(torch.ones(80))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        modulated = muladd_nb.mymuladd(self.features(x), self.gains(x), 0.1)
        scaled = muladd_nb.mymul(modulated, self.scale.expand_as(modulated))
        return scaled.unflatten(1, (10, 8)).amax(2)


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train `model`, and round the weights that are summed with."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    for _ in range(40):
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    # Grey levels are multiples of 1/16. With weights that are multiples of 1/256 every partial sum of a row is
    # exact, so that torch and ExecuTorch, which sum in different orders, get the same bits.
    with torch.no_grad():
        for parameter in [*model.features.parameters(), *model.gains.parameters()]:
            parameter.mul_(256).round_().div_(256)


def export(model: nn.Module, example: torch.Tensor, path: pathlib.Path) -> None:
    """Write `model` as a .pte for 1 to 64 rows, which is what ExecuTorch plans memory for."""
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(model.eval(), (example,), dynamic_shapes=({0: rows},))
    path.write_bytes(to_edge(program).to_executorch().buffer)


def write_rows(x: torch.Tensor, path: pathlib.Path) -> None:
    """Write the rows of `x` as CSV, with as many digits as give the same float32 again."""
    path.write_text("".join(",".join(f"{value:.9g}" for value in row) + "\n" for row in x.tolist()))


# An operator that is registered from Python alone: to export a model with it, torch needs the functional form and the
# out variant. What runs on the device is the kernel in cube.cpp.
torch.library.define("example::cube", "(Tensor x) -> Tensor")
torch.library.define("example::cube.out", "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")


@torch.library.impl("example::cube", "CompositeExplicitAutograd")
def cube(x: torch.Tensor) -> torch.Tensor:
    """Return x * x * x."""
    return x * x * x


@torch.library.impl("example::cube.out", "CompositeExplicitAutograd")
def cube_out(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Write x * x * x to `out`."""
    return out.copy_(x * x * x)


class Cube(nn.Module):
    """The operator from Python beside one from C++."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return muladd_nb.mymuladd(torch.ops.example.cube(x), x, 0.5)


digits = load_digits()
split = train_test_split(digits.data / 16, digits.target, test_size=0.25, random_state=0, stratify=digits.target)
train_x, test_x = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
train_y, test_y = (torch.tensor(part) for part in split[2:])

torch.manual_seed(0)
model = Digits()
train(model, train_x, train_y)
with torch.no_grad():
    scores = model(test_x)
accuracy = (scores.argmax(1) == test_y).float().mean().item()
print(f"test accuracy: {accuracy:.1%}")

FOLDER.mkdir(parents=True, exist_ok=True)
export(model, test_x[:8], FOLDER / "digits.pte")
write_rows(test_x, FOLDER / "digits.csv")
export(Cube(), test_x[:8], FOLDER / "cube.pte")
write_rows(test_x[:5], FOLDER / "cube.csv")
