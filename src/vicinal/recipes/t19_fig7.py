"""T19 Figure 7: training for very long does not undo mixup's calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vicinal.recipes import images
from vicinal.recipes.base import Data, Method, Place, Recipe, Scale, Settings, methods, three_scales
from vicinal.recipes.claims import Claim
from vicinal.recipes.drawing import curves

if TYPE_CHECKING:
    from vicinal.recipes.results import Measured
    from vicinal.recipes.trained import Trained

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"


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
        rise = {method: on.figure("late", method) - on.figure("early", method) for method in (ERM, MIXUP)}
        yield Claim(f"{on}: under ERM the ECE rises in long training", rise[ERM], overconfident=on.cell(ERM))
        yield Claim(
            f"{on}: under mixup the ECE does not rise by more than a point",
            rise[MIXUP] * -1,
            margin=0.01,
            overconfident=on.cell(ERM),
        )
        at_the_end = on.fall("late", ERM, MIXUP)
        yield Claim(f"{on}: at the end mixup's ECE is below ERM's", at_the_end, overconfident=on.cell(ERM))
        yield Claim(f"{on}: mixup's training loss stays above ERM's", on.fall("loss", MIXUP, ERM), unit="nats")


CONSTANT: Settings = {**images.TRAINING, "schedule": "constant", "keep_predictions_at": []}


def data(train_size: int) -> dict[str, Data]:
    return {"CIFAR-10": Data("cifar10", {"train_size": train_size, "val": 1000, "augment": "none"})}


RECIPE = Recipe(
    place=Place("T19", "Figure 7", "Calibration in extended training"),
    methods=methods(ERM, MIXUP),
    measure=measure,
    claims=claims,
    columns={
        "early": "ECE, second fifth (%)",
        "late": "ECE, last fifth (%)",
        "gap": "confidence − accuracy, last fifth (%)",
        "loss": "training loss, last fifth",
    },
    scales=three_scales(
        seeds=(3, 3, 1),
        minutes=(9, 120, 20_000),
        data=(data(500), data(1000), images.whole("cifar10", "cifar100")),
        networks=(images.TINY, images.TINY, images.T19_NETWORKS),
        training=(
            {**CONSTANT, "epochs": 200, "eval_every": 5},
            {**CONSTANT, "epochs": 1000, "eval_every": 10},
            {**images.T19_TRAINING, "epochs": 1000},
        ),
        about=(
            "500 training images, 200 epochs at a constant rate of 0.05; the ECE of 1,000 held-out images.",
            "1,000 images, 1,000 epochs.",
            "1,000 epochs; the networks of this figure are not named.",
        ),
    ),
    draw=curves("ece", xlabel="evaluation", ylabel="ECE (%)"),
    reading=("α is in an image; 0.4 is used. The figure is of the validation set.",),
    pilot="None of its own: the common cell with fewer images, more epochs and a constant rate. Of the common cell: "
    + images.PILOT,
    further={"ERM(), without weight decay": Method(ERM, training={"weight_decay": 0.0})},
    findings=(
        "Why plain training's ECE falls at cpu scale: 500 images are learned by heart within some 25 epochs, and by "
        "then the ECE has risen from a tenth to a half; with a training loss of 0.001 little is left to learn but "
        "weight decay goes on, shrinks the weights and with them the confidence. Without weight decay, the row that "
        "no claim is about, the ECE goes on rising slowly in all three seeds to the end of training, as the paper "
        "says of its larger networks.",
    ),
)
