"""Redraw the pictures of docs/reference/plots.md that compare models, on scikit-learn's digits.

python docs/pictures_comparison.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import torch
from matplotlib.figure import Figure
from torch import Tensor

import vicinal
from vicinal import plots
from vicinal.metrics import max_probability

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "examples")]

import digits  # noqa: E402  # found by the path above

ALPHAS = (0.0, 0.1, 0.2, 0.4, 1.0, 4.0)
EPOCHS = (1, 5, 20, 40)
SEEDS = (0, 1)


def train(objective: Any, seed: int) -> tuple[list[Tensor], Tensor]:
    """Return the test logits after each epoch, and those of as much noise at the end."""
    x, y, x_test, _ = digits.data()
    torch.manual_seed(seed)
    model = digits.network()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    logits = []
    for _ in range(EPOCHS[-1]):
        for batch in torch.randperm(len(x)).split(digits.BATCH):
            optimiser.zero_grad()
            objective(model, x[batch], y[batch]).backward()
            optimiser.step()
        with torch.no_grad():
            logits.append(model(x_test))
    noise = x.mean() + x.std() * torch.randn(len(x_test), 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return logits, model(noise)


def draw_comparison(folder: Path) -> None:
    """Draw the pictures into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = digits.data()[3]
    mixup = {alpha: [train(vicinal.Mixup(alpha=alpha), seed) for seed in SEEDS] for alpha in ALPHAS}
    methods = {"ERM": mixup[0.0], "Mixup, α = 0.4": mixup[0.4], "Mixup, α = 4": mixup[4.0]}

    figure = Figure(figsize=(9.4, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    last = {name: runs[0][0][-1] for name, runs in methods.items()}
    tables = {name: vicinal.ReliabilityTable.from_logits(labels, z, n_bins=30) for name, z in last.items()}
    plots.accuracy_confidence_scatter(tables, ax=left)
    plots.confidence_histograms({name: max_probability(runs[0][1]) for name, runs in methods.items()}, ax=right)
    right.set_xlabel("confidence on Gaussian noise")
    figure.savefig(folder / "scatter.png", dpi=70)

    figure = Figure(figsize=(13, 3.6), layout="constrained")
    bars, sweep, curves = figure.subplots(1, 3)
    evaluations = {name: vicinal.evaluate(labels, logits=z) for name, z in last.items()}
    figures = {"ECE": "ece", "OE": "oe", "error": "error"}
    plots.method_bars(
        {
            title: {name: _figure(evaluation, field) for name, evaluation in evaluations.items()}
            for title, field in figures.items()
        },
        name="15 bins, 95 % intervals",
        percent=True,
        ax=bars,
    )
    by_alpha = {alpha: vicinal.evaluate(labels, logits=runs[0][0][-1]) for alpha, runs in mixup.items()}
    plots.alpha_sweep(
        {title: {alpha: _figure(e, field) for alpha, e in by_alpha.items()} for title, field in figures.items()},
        name="15 bins, 95 % intervals",
        percent=True,
        ax=sweep,
    )
    histories = {name: [_history(logits, labels) for logits, _ in runs] for name, runs in methods.items()}
    plots.training_curves(histories, name="val_nll", log=True, ax=curves)
    figure.savefig(folder / "comparison.png", dpi=70)

    evaluations = {
        name: {epoch: vicinal.evaluate(labels, logits=runs[0][0][epoch - 1]) for epoch in EPOCHS}
        for name, runs in methods.items()
    }
    rows = plots.accuracy_confidence_rows(evaluations, group_size=25)
    rows[0][0].figure.savefig(folder / "rows.png", dpi=70)


def _figure(evaluation: Any, field: str) -> vicinal.metrics.Estimate:
    if field != "error":
        return getattr(evaluation, field)
    accuracy = evaluation.accuracy
    return vicinal.metrics.Estimate(1 - accuracy.value, 1 - accuracy.high, 1 - accuracy.low)


def _history(logits: list[Tensor], labels: Tensor) -> list[dict[str, float]]:
    return [
        {"epoch": epoch, "val_nll": float(torch.nn.functional.cross_entropy(z, labels))}
        for epoch, z in enumerate(logits, start=1)
    ]


if __name__ == "__main__":
    draw_comparison(HERE / "img")
