"""Z18 Figure 3: test errors on CIFAR-10 and CIFAR-100, and their course over training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from vicinal.papers import images
from vicinal.papers.base import Network, Place, Scale, methods
from vicinal.papers.claims import Claim
from vicinal.papers.plots import bars, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.papers.results import Result

ERM, MIXUP = "ERM()", "Mixup(alpha=1.0)"


def claims(at: Scale) -> Iterable[Claim]:
    falls = images.pooled_fall(at, "error", ERM, MIXUP)
    if images.is_night_cifar10(at):
        yield Claim("mixup lowers the error", falls, primary=True)
        return
    yield Claim("mixup lowers the error, on average", falls, primary=True)
    for on in at.pairs():
        yield Claim(f"{on.data}: mixup lowers the error of {on.network}", on.fall("error", ERM, MIXUP))


def draw(result: Result) -> Figure:
    """Draw the course of the error over training, or the errors where there is no validation set."""
    if not any(result.curve(key, "course").size for key in result.keys):
        return bars({"error": "error (%)"})(result)
    return curves({"course": ("validation error (%)", 100.0)}, xlabel="evaluation")(result)


_SCALES = images.at_night(
    images.scales(
        "cifar10",
        "cifar100",
        seeds=5,
        minutes=(10, 0, 100_000),
        paper={
            **images.PREACT,
            "WRN-28-10": Network("wideresnet28-10", training={"milestones": [60, 120, 180]}),
            "DenseNet-BC-190": Network("densenet-bc-190"),
        },
        paper_val=images.ORACLE,
    ),
    methods=2,
)
ABOUT = "The paper's own setting: all training images, the last epoch; the course of the test error."

RECIPE = images.z18_table(
    place=Place("Z18", "Figure 3", "Test errors of ERM and mixup on CIFAR-10 and CIFAR-100"),
    methods=methods(ERM, MIXUP),
    claims=claims,
    curves=("course",),
    scales={**_SCALES, "paper": dataclasses.replace(_SCALES["paper"], about=ABOUT)},
    draw=draw,
    reading=(
        "The error is that of the last epoch on the test set; the course is that of a validation set, which the night "
        "cell has none of; at paper scale it is that of the test set, as in Figure 3b. "
        "The numbers of Figure 3a are an image, so none are quoted here.",
    ),
    pilot=f"{images.PILOT} {images.NIGHT_CIFAR10_PILOT}",
)
