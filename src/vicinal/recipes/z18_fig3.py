"""Z18 Figure 3: test errors on CIFAR-10 and CIFAR-100, and their course over training."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Network, Place, Scale, methods
from vicinal.recipes.claims import Claim
from vicinal.recipes.drawing import curves

ERM, MIXUP = "ERM()", "Mixup(alpha=1.0)"


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        yield Claim(f"{on.data}: mixup lowers the error of {on.network}", on.fall("error", ERM, MIXUP))


RECIPE = images.z18_table(
    place=Place("Z18", "Figure 3", "Test errors of ERM and mixup on CIFAR-10 and CIFAR-100"),
    methods=methods(ERM, MIXUP),
    claims=claims,
    scales=images.scales(
        "cifar10",
        "cifar100",
        seeds=5,
        minutes=(7, 110, 20_000),
        paper={
            **images.PREACT,
            "WRN-28-10": Network("wideresnet28-10", training={"milestones": [60, 120, 180]}),
            "DenseNet-BC-190": Network("densenet-bc-190"),
        },
    ),
    draw=curves("course", x=None, xlabel="evaluation (every second epoch)", ylabel="validation error (%)"),
    reading=(
        "The error is that of the last epoch on the test set; the course is that of a validation set. The numbers of "
        "Figure 3a are an image, so none are quoted here.",
    ),
)
