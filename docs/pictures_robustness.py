"""Redraw the pictures of docs/howto/robustness.md: decision boundaries of several methods on 2-D toys.

python docs/pictures_robustness.py
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

import vicinal
from vicinal import plots
from vicinal.papers.toy_points import disc_in_ring, spirals
from vicinal.probes import between_samples

HERE = Path(__file__).parent
METHODS = {
    "ERM": vicinal.ERM(),
    "Mixup": vicinal.Mixup(alpha=1.0),
    "ManifoldMixup": vicinal.ManifoldMixup(alpha=2.0, layers=["input", "1", "3"]),
    "LogitMix": vicinal.LogitMix(vicinal.Mixup(alpha=3.0)),
    "RegMixup": vicinal.RegMixup(vicinal.Mixup(alpha=10.0)),
}


def train(objective: Callable[..., Tensor], x: Tensor, y: Tensor, *, steps: int = 1500, seed: int = 0) -> nn.Module:
    """Return a small network of two hidden layers, trained on the whole set in each step."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, int(y.max()) + 1))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        objective(model, x, y, generator=generator).backward()
        optimizer.step()
    return model.eval()


def draw_robustness(folder: Path) -> None:
    """Draw the pictures into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    sets = {
        "spirals": spirals(400, generator=torch.Generator().manual_seed(0)),
        "three spirals": spirals(450, n_classes=3, turns=0.8, generator=torch.Generator().manual_seed(0)),
        "disc": disc_in_ring(300, generator=torch.Generator().manual_seed(0)),
    }
    figure = Figure(figsize=(2.2 * len(METHODS), 2.0 * len(sets)), layout="constrained")
    rows = figure.subplots(len(sets), len(METHODS), squeeze=False)
    for axes, (name, (x, y)) in zip(rows, sets.items(), strict=True):
        models = {method: train(objective, x, y) for method, objective in METHODS.items()}
        plots.decision_boundaries(models, x, y, axes=axes)
        for ax in axes:
            ax.set(xlabel="", ylabel="", xticks=[], yticks=[], title=ax.get_title() if name == "spirals" else "")
        axes[0].set_ylabel(name)
        if name == "three spirals":
            arms = models
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=75)
    Image.open(buffer).convert("RGB").quantize(48).save(folder / "boundaries.png", optimize=True)
    draw_between(folder, arms, *sets["three spirals"])


def draw_between(folder: Path, models: dict[str, nn.Module], x: Tensor, y: Tensor) -> None:
    """Draw misses, gradient norm and confidence between, and beyond, the samples of three spirals."""
    curves = {
        name: between_samples(
            models[name], (x, y), lambdas=torch.linspace(-1, 2, 31), generator=torch.Generator().manual_seed(0)
        )
        for name in ("ERM", "Mixup", "LogitMix")
    }
    figure = Figure(figsize=(12, 3), layout="constrained")
    for ax, what in zip(figure.subplots(1, 3), ("misses", "gradient_norm", "mean_confidence"), strict=True):
        plots.between_curves(curves, what=what, ax=ax)
    figure.savefig(folder / "between.png", dpi=70)


if __name__ == "__main__":
    draw_robustness(HERE / "img")
