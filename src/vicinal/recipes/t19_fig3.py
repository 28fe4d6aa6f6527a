"""T19 Figure 3: calibration with many classes (ImageNet in the paper)."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Data, Network, Scale, methods
from vicinal.recipes.claims import Claim, figure

ERM, SMOOTHED, MIXUP = "ERM()", "ERM(label_smoothing=0.1)", "Mixup(alpha=0.4)"


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():
        for name in ("ece", "oe"):
            for printed, method in (("label smoothing", SMOOTHED), ("mixup", MIXUP)):
                yield Claim(
                    text=f"{data}, {network}: {printed} lowers the {name.upper()}",
                    contrast=figure(name, data, network, ERM) - figure(name, data, network, method),
                    overconfident=(data, network, ERM),
                )
        yield Claim(
            text=f"{data}, {network}: mixup lowers the error",
            contrast=figure("error", data, network, ERM) - figure("error", data, network, MIXUP),
            paper=0.004,
        )


_SMALL = images.scales("cifar100", seeds=3, minutes=(4, 90, 0), paper=images.T19_NETWORKS)

RECIPE = images.calibration(
    paper="T19",
    place="Figure 3",
    title="Calibration with many classes",
    methods=methods(ERM, SMOOTHED, MIXUP),
    claims=claims,
    scales={
        "cpu": _SMALL["cpu"],
        "night": _SMALL["night"],
        "paper": Scale(
            seeds=range(1),
            minutes=200_000,
            data={"ImageNet": Data("imagenet", where=images.IMAGENET)},
            networks={"ResNet-50": Network("resnet50"), "ResNeXt-101": Network("resnext101")},
            training={**images.imagenet(90), "stop_at": ("top5_error", 0.07)},
            about="ImageNet, until 93 % of the validation images are among the top 5, for at most 90 epochs.",
        ),
    },
    reading=(
        "CIFAR-100 stands for ImageNet below paper scale. The paper gives one number, about 0.4 points of accuracy "
        "gained "
        "by mixup; on ResNet-50 it found mixup no better calibrated than label smoothing.",
    ),
)
