"""Redraw every picture of the docs with the library itself, on scikit-learn's digits.

python docs/pictures.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import torch
from matplotlib.figure import Figure

import vicinal
from vicinal import plots

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]

import digits  # noqa: E402  # found by the path above
from pictures_comparison import draw_comparison  # noqa: E402
from pictures_puzzlemix import draw_puzzlemix  # noqa: E402
from pictures_robustness import draw_robustness  # noqa: E402


def predictions() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the test labels of the demo and the logits of its three methods."""
    x, y, x_test, y_test = digits.data()
    models = {type(objective).__name__: digits.train(objective, x, y) for objective in digits.METHODS}
    with torch.no_grad():
        return y_test, {name: model(x_test) for name, model in models.items()}


def draw(folder: Path) -> None:
    """Draw the plots that `docs/reference/plots.md` shows into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    labels, logits = predictions()
    tables = {name: vicinal.ReliabilityTable.from_logits(labels, z) for name, z in logits.items()}
    for name, plot in {"reliability": plots.reliability_diagram, "confidence": plots.confidence_histogram}.items():
        figure = Figure(figsize=(13, 4.6), layout="constrained")
        for ax, (title, table) in zip(figure.subplots(1, len(tables)), tables.items(), strict=True):
            plot(table, ax=ax).set_title(title)
        figure.savefig(folder / f"{name}.png", dpi=70, bbox_inches="tight")
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    for ax, (title, z) in zip(figure.subplots(1, len(logits)), logits.items(), strict=True):
        plots.accuracy_confidence_density(vicinal.evaluate(labels, logits=z), ax=ax).set_title(title)
    figure.savefig(folder / "density.png", dpi=70, bbox_inches="tight")


if __name__ == "__main__":
    draw(HERE / "img")
    draw_comparison(HERE / "img")
    draw_robustness(HERE / "img")
    draw_puzzlemix(HERE.parent / "src" / "vicinal" / "cards" / "img")
