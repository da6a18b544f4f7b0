"""Train a classifier of handwritten digits, and compile it for a process without Python.

    python export.py [FOLDER]

writes ``digits.pt2``, the model compiled by AOTInductor for any batch size, and ``digits.csv``, the scans of the
test set: 64 grey levels a line.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import muladd_nb

PIXELS = 64
LEVELS = 16.0


class Classifier(nn.Module):
    """Two layers, and between them gains computed from the same scan (Perez et al., "FiLM", 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((PIXELS,), 2 / LEVELS))
        self.features = nn.Linear(PIXELS, 64)
        self.gain = nn.Linear(PIXELS, 64)
        self.classes = nn.Linear(64, 10)

    def forward(self, scans: torch.Tensor) -> torch.Tensor:
        x = muladd_nb.mymuladd(scans, self.scale.expand_as(scans), -1.0)  # to [-1, 1]
        features, gain = self.features(x).relu(), self.gain(x)
        # Gradients need the features as they are; without them, the result takes their place.
        out = None if torch.is_grad_enabled() else features
        return self.classes(muladd_nb.mymuladd(features, gain, 0.1, out=out).relu())


def train(scans: torch.Tensor, digits: torch.Tensor) -> Classifier:
    """Return a trained model."""
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    for _ in range(30):
        for batch in torch.randperm(len(scans)).split(64):
            loss = nn.functional.cross_entropy(model(scans[batch]), digits[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def main(folder: Path) -> Classifier:
    """Write the compiled model and the rows to classify; return the model."""
    data = load_digits()
    x, test_x, y, test_y = train_test_split(data.data, data.target, test_size=0.25, random_state=0)
    model = train(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    scans = torch.tensor(test_x, dtype=torch.float32)

    with torch.no_grad():
        accuracy = (model(scans).argmax(1).numpy() == test_y).mean()
        batch = torch.export.Dim("batch", min=1)
        exported = torch.export.export(model, (scans,), dynamic_shapes=({0: batch},))
    torch._inductor.aoti_compile_and_package(
        exported,
        package_path=str(folder / "digits.pt2"),
        # AOTInductor does not check the shapes of inputs: the program does, which reads this.
        inductor_configs={"aot_inductor.metadata": {"columns": str(PIXELS)}},
    )
    np.savetxt(folder / "digits.csv", test_x, fmt="%g", delimiter=",")
    print(f"{folder / 'digits.pt2'}: right on {accuracy:.1%} of the {len(scans)} scans in {folder / 'digits.csv'}")
    return model


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]))
