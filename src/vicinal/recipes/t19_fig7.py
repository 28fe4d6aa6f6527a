"""T19 Figure 7: training for very long does not undo mixup's calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vicinal.recipes import images
from vicinal.recipes.base import Data, Method, Network, Recipe, Scale, Settings, methods
from vicinal.recipes.claims import Claim, Contrast, figure
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
    for data, network in at.pairs():

        def figures(name: str, method: str, data: str = data, network: str = network) -> Contrast:
            return figure(name, data, network, method)

        yield Claim(
            text=f"{data}, {network}: under ERM the ECE rises in long training",
            contrast=figures("late", ERM) - figures("early", ERM),
            overconfident=(data, network, ERM),
        )
        yield Claim(
            text=f"{data}, {network}: under mixup the ECE does not rise by more than a point",
            contrast=figures("early", MIXUP) - figures("late", MIXUP),
            margin=0.01,
            overconfident=(data, network, ERM),
        )
        yield Claim(
            text=f"{data}, {network}: at the end mixup's ECE is below ERM's",
            contrast=figures("late", ERM) - figures("late", MIXUP),
            overconfident=(data, network, ERM),
        )
        yield Claim(
            text=f"{data}, {network}: mixup's training loss stays above ERM's",
            contrast=figures("loss", MIXUP) - figures("loss", ERM),
            unit="nats",
        )


CONSTANT: Settings = {**images.TRAINING, "schedule": "constant", "keep_predictions_at": []}

RECIPE = Recipe(
    paper="T19",
    place="Figure 7",
    title="Calibration in extended training",
    methods=methods(ERM, MIXUP),
    measure=measure,
    claims=claims,
    columns={
        "early": "ECE, second fifth (%)",
        "late": "ECE, last fifth (%)",
        "gap": "confidence − accuracy, last fifth (%)",
        "loss": "training loss, last fifth",
    },
    scales={
        "cpu": Scale(
            seeds=range(3),
            minutes=9,
            data={"CIFAR-10": Data("cifar10", {"train_size": 500, "val": 1000, "augment": "none"})},
            networks=images.TINY,
            training={**CONSTANT, "epochs": 200, "eval_every": 5},
            about="500 training images, 200 epochs at a constant rate of 0.05; the ECE of 1,000 held-out images.",
        ),
        "night": Scale(
            seeds=range(3),
            minutes=120,
            data={"CIFAR-10": Data("cifar10", {"train_size": 1000, "val": 1000, "augment": "none"})},
            networks=images.TINY,
            training={**CONSTANT, "epochs": 1000, "eval_every": 10},
            about="1,000 images, 1,000 epochs.",
        ),
        "paper": Scale(
            seeds=range(1),
            minutes=20_000,
            data=images.whole("cifar10", "cifar100"),
            networks={"VGG-16": Network("vgg16"), "ResNet-34": Network("resnet34")},
            training={**images.T19_TRAINING, "epochs": 1000},
            about="1,000 epochs; the networks of this figure are not named.",
        ),
    },
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
