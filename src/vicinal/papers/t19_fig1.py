"""T19 Figure 1: confidence exceeds accuracy by more as plain training continues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vicinal.metrics import evaluate
from vicinal.papers import images
from vicinal.papers.base import Network, Place, Recipe, Scale, Settings, methods
from vicinal.papers.claims import Claim
from vicinal.papers.plots import panels
from vicinal.papers.trained import metrics_of
from vicinal.plots import draw_density, group_means

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.papers.results import Measured, Result
    from vicinal.papers.trained import Trained

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return how far confidence exceeds accuracy on the validation set after some epochs, and both for groups of it."""
    measured: Measured = {}
    for epoch in settings["epochs"]:
        logits, labels = trained[0].at_epoch(epoch)
        evaluation = evaluate(labels, logits=logits)
        measured[f"gap {epoch}"] = metrics_of(evaluation)["gap"]
        accuracy, confidence = group_means("evaluation", evaluation, settings["group"])
        measured[f"groups {epoch}"] = [accuracy.tolist(), confidence.tolist()]
    return {**measured, "gap": measured[f"gap {settings['epochs'][-1]}"]}


def claims(at: Scale) -> Iterable[Claim]:
    first, last = f"gap {at.settings['epochs'][0]}", f"gap {at.settings['epochs'][-1]}"
    for on in at.pairs():
        end = on.metric(last, ERM)
        yield Claim(
            f"{on.data}: confidence exceeds accuracy by more at the end of plain training than at its beginning",
            end - on.metric(first, ERM),
            primary=True,
        )
        yield Claim(
            f"{on.data}: at the end confidence exceeds accuracy by less under mixup than under plain training",
            on.fall(last, ERM, MIXUP),
            primary=True,
            overconfident=[on.cell(ERM)],
        )
        yield Claim(f"{on.data}: at the end of plain training confidence exceeds accuracy", end)


def draw(result: Result) -> Figure:
    epochs = result.settings["settings"]["epochs"]
    drawn, axes = panels(len(result.keys) * len(epochs), size=(2.5, 2.5), across=len(epochs))
    for row, key in enumerate(result.keys):
        for column, epoch in enumerate(epochs):
            ax = axes[row * len(epochs) + column]
            accuracy, confidence = np.concatenate([cell.curves[f"groups {epoch}"] for cell in result.of(key)], axis=1)
            draw_density(ax, accuracy, confidence, (0.0, 1.0))
            ax.set(xlabel="confidence", ylabel="accuracy", title=f"{key[-1]}, epoch {epoch}")
            ax.title.set_fontsize("small")
    return drawn


RECIPE = Recipe(
    place=Place("T19", "Figure 1", "Accuracy against confidence in the course of training"),
    methods=methods(ERM, MIXUP),
    measure=measure,
    claims=claims,
    curves=tuple(f"groups {epoch}" for epoch in (1, 60, 120, 200)),
    columns={"gap": "confidence − accuracy at the end (%)"},
    scales=images.scales(
        "cifar100",
        seeds=5,
        minutes=(6, 190, 7_500),
        paper={"VGG-16": Network("vgg16")},
        paper_val=images.ORACLE,
        paper_training={**images.T19_TRAINING, "keep_predictions_at": [1, 60, 120, 200]},
        settings=(
            {"epochs": [1, 5, 10, 20], "group": 50},
            {"epochs": [1, 5, 20, 60], "group": 50},
            {"epochs": [1, 60, 120, 200], "group": 100},
        ),
    ),
    draw=draw,
    reading=(
        "The density is that of groups of samples of the validation set. α is not given for this figure; 0.4 is used.",
    ),
    pilot=images.PILOT,
)
