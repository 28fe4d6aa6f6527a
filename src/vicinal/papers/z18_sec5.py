"""Z18 Section 5: with a larger α the training error rises and the generalisation gap falls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from vicinal.metrics import evaluate
from vicinal.papers import images
from vicinal.papers.base import Place, Scale, Settings, methods, with_later_seeds
from vicinal.papers.claims import Claim, pooled, trend
from vicinal.papers.plots import sweep
from vicinal.papers.trained import logits_of, metrics_of

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained

ALPHAS = {f"Mixup(alpha={alpha})": alpha for alpha in (0.2, 1.0, 2.0, 8.0, 32.0)}
#: Averages of pairs alone, the limit of a large α: drawn at 64.
AVERAGES = "Mixup(alpha=inf)"


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the errors of the last weights on the test set and on the training images, and their difference."""
    run = trained[0]
    train = run.task.train.relabelled(run.task.train.labels or [], augment="none")
    test = metrics_of(run.test_of_last())["error"]
    fitted = metrics_of(evaluate(torch.tensor(train.labels), logits=logits_of(run.last(), train)))["error"]
    return {"error": test, "train": fitted, "gap": test.value - fitted.value}


STEP: Settings = {
    "margin": 0.0025,
    "reason": "the contrast is a mean step: four of 0.25 points are a point between the smallest and largest α",
}


def claims(at: Scale) -> Iterable[Claim]:
    rows = [[on.metric(name, method) for method in ALPHAS] for name in ("train", "gap") for on in at.pairs()]
    rises, falls = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    text = "with a larger α the training error rises (mean step between the five values)"
    yield Claim(text, pooled(trend(row) for row in rises), primary=True, **STEP)
    text = "with a larger α the generalisation gap falls (mean step between the five values)"
    yield Claim(text, pooled(trend(row) * -1 for row in falls), primary=True, **STEP)
    for on in at.pairs():
        text = f"{on.data}: averages of pairs alone leave a training error below 10 %"
        below = on.metric("train", AVERAGES) * -1
        if on.data == "CIFAR-10":
            yield Claim(text, below, threshold=-0.1)


RECIPE = images.z18_table(
    place=Place("Z18", "Section 5", "Training error and generalisation gap by α"),
    methods=methods("ERM()", *ALPHAS, AVERAGES),
    measure=measure,
    claims=claims,
    columns={"train": "training error (%)", "error": "error (%)", "gap": "test − training error (%)"},
    scales=with_later_seeds(images.scales("cifar10", seeds=5, minutes=(20, 600, 5_000), paper=images.PREACT)),
    draw=sweep(
        {"train": "training error (%)", "error": "error (%)", "gap": "gap (%)"},
        {"ERM()": 0.0, **ALPHAS, AVERAGES: 64.0},
    ),
    reading=(
        "The section states a trend without numbers, that it is consistent over the experiments, and that averages "
        "alone (α → ∞) leave a very low training error on CIFAR-10. Very low is read as below 10 %. Images are those "
        "of the training set without augmentation, and weights those of the last epoch. α = ∞ is drawn at 64.",
    ),
)
