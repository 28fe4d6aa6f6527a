"""T19 Figure 7: training for very long does not undo mixup's calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vicinal.papers import images
from vicinal.papers.base import Data, Method, Place, Recipe, Scale, Settings, three_scales
from vicinal.papers.base import methods as by_expression
from vicinal.papers.claims import Claim, Pair, pooled
from vicinal.papers.plots import curves

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
#: At paper scale. The figure has several α, which are in an image.
OTHERS = ("Mixup(alpha=0.1)", "Mixup(alpha=0.2)", "Mixup(alpha=1.0)")


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    return by_expression(ERM, MIXUP, *(OTHERS if at.training["epochs"] == 1000 and "VGG-16" in at.networks else ()))


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the ECE of the validation set, its mean over the second and the last fifth of training, and the excess."""
    lines = [line for line in trained[0].history if "val_ece" in line]
    ece, loss, confidence, accuracy = (
        np.array([line[name] for line in lines]) for name in ("val_ece", "loss", "val_confidence", "val_accuracy")
    )
    fifth = len(ece) // 5
    return {
        "gap": float((confidence - accuracy)[-fifth:].mean()),
        "early": float(ece[fifth : 2 * fifth].mean()),
        "late": float(ece[-fifth:].mean()),
        "loss": float(loss[-fifth:].mean()),
        "ece": ece.tolist(),
        "losses": loss.tolist(),
    }


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        yield Claim(f"{on}: mixup's training loss stays above ERM's", on.fall("loss", MIXUP, ERM), unit="nats")
    gate = [on.cell(ERM) for on in at.pairs()]
    yield Claim(
        "under mixup the ECE does not rise by more than a point in long training",
        pooled([on.metric("early", MIXUP) - on.metric("late", MIXUP) for on in at.pairs()]),
        kind="no worse",
        primary=True,
        overconfident=gate,
    )
    yield Claim(
        "at the end of long training mixup's ECE is below ERM's",
        images.pooled_fall(at, "late", ERM, MIXUP),
        primary=True,
        overconfident=gate,
    )


CONSTANT: Settings = {**images.TRAINING, "schedule": "constant", "keep_predictions_at": []}


def data(train_size: int) -> dict[str, Data]:
    return {"CIFAR-10": Data("cifar10", {"train_size": train_size, "val": 2000, "augment": "none"})}


RECIPE = Recipe(
    place=Place("T19", "Figure 7", "Calibration in extended training"),
    methods=methods,
    measure=measure,
    claims=claims,
    curves=("ece", "losses"),
    columns={
        "early": "ECE, second fifth (%)",
        "late": "ECE, last fifth (%)",
        "gap": "confidence − accuracy, last fifth (%)",
        "loss": "training loss, last fifth",
    },
    scales=three_scales(
        seeds=5,
        minutes=(10, 90, 100_000),
        data=(data(500), data(1000), images.whole("cifar10", "cifar100", val=images.ORACLE)),
        networks=(images.TINY, images.TINY, images.T19_NETWORKS),
        training=(
            {**CONSTANT, "epochs": 200, "eval_every": 5},
            {**CONSTANT, "epochs": 1000, "eval_every": 10},
            {**images.T19_TRAINING, "epochs": 1000, "select": "last"},
        ),
        about=(
            "500 training images, 200 epochs at a constant rate of 0.05; the ECE of 2,000 held-out images.",
            "1,000 images, 1,000 epochs.",
            "1,000 epochs; the networks of this figure are not named.",
        ),
    ),
    draw=curves({"ece": ("ECE (%)", 100.0), "losses": ("training loss", 1.0)}, xlabel="evaluation"),
    reading=(
        "The values of α are in an image. 0.4 is that of the claims, and the paper scale has three more. "
        "The figure is of the validation set. The ECE is said to rise if its mean over "
        "the last fifth of training exceeds that over the second fifth.",
    ),
    pilot="None of its own: the common cell with fewer images, more epochs and a constant rate. Of the common cell: "
    + images.PILOT,
)
