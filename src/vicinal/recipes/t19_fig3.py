"""T19 Figure 3: calibration with many classes (ImageNet in the paper)."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Network, Place, Scale, methods
from vicinal.recipes.claims import Claim

ERM, SMOOTHED, MIXUP = "ERM()", "ERM(label_smoothing=0.1)", "Mixup(alpha=0.4)"


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        for name in ("ece", "oe"):
            for printed, method in (("label smoothing", SMOOTHED), ("mixup", MIXUP)):
                falls = on.fall(name, ERM, method)
                yield Claim(f"{on}: {printed} lowers the {name.upper()}", falls, overconfident=on.cell(ERM))
        yield Claim(f"{on}: mixup lowers the error", on.fall("error", ERM, MIXUP), paper=0.004)


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 3", "Calibration with many classes"),
    methods=methods(ERM, SMOOTHED, MIXUP),
    claims=claims,
    scales={
        **images.scales("cifar100", seeds=3, minutes=(4, 90, 0), paper=images.T19_NETWORKS),
        "paper": images.on_imagenet(
            minutes=200_000,
            networks={"ResNet-50": Network("resnet50"), "ResNeXt-101": Network("resnext101")},
            training={**images.imagenet(90), "stop_at": ("top5_error", 0.07)},
            about="ImageNet, until 93 % of the validation images are among the top 5, for at most 90 epochs.",
        ),
    },
    reading=(
        "CIFAR-100 stands for ImageNet below paper scale. The paper gives one number, about 0.4 points of accuracy "
        "gained by mixup; on ResNet-50 it found mixup no better calibrated than label smoothing.",
    ),
)
